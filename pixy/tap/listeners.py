"""Which address of the tap stands for which broker."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from pixy.errors import StartError
from pixy.tap.config import MAX_PORT, Address, TapConfig, show_address

_BACKLOG = 1024
_MOST = 1_000
"""Brokers that are given a port, where the configuration names no range."""

Open = Callable[[socket.socket, Address], None]
"""Have somebody accept connections on a socket, for a broker."""


class Places:
    """Opens a port for each broker that an answer names, the first time it does."""

    def __init__(self, config: TapConfig, open_: Open) -> None:
        self._config, self._open = config, open_
        self._ports: dict[Address, int] = {}
        self._single = False
        self.exhausted = 0
        """Brokers that had to be left as they are: no port was free."""

    def start(self) -> list[tuple[Address, Address]]:
        """Listen for the configured brokers: (where, for which). Raises StartError."""
        host, first = self._config.listen
        found = []
        for i, broker in enumerate(self._config.brokers):
            if first and first + i > MAX_PORT:
                raise StartError(f"no port is left for the broker {show_address(broker)}")
            port = self._listen((host, first + i if first else 0), broker)
            self._ports[broker] = port
            found.append(((host, port), broker))
        return found

    def place(self, broker: Address, brokers: int, local_host: str) -> Address:
        """The address that clients are told for a broker, of ``brokers`` in the cluster (0: not known)."""
        port = self._ports.get(broker)
        if port is None and brokers == 1 and len(self._config.brokers) == 1 and not self._single:
            # The only broker under another of its names.
            port = self._ports[broker] = next(iter(self._ports.values()))
            self._single = True
        if port is None:
            port = self._new(broker)
        if port is None:
            self.exhausted += 1
            return broker
        return self._config.advertise or local_host, port

    def _new(self, broker: Address) -> int | None:
        for candidate in self._candidates():
            try:
                port = self._listen((self._config.listen[0], candidate), broker)
            except StartError:
                continue
            self._ports[broker] = port
            return port
        return None

    def _candidates(self) -> list[int]:
        if len(self._ports) >= _MOST:
            return []
        used = set(self._ports.values())
        first = self._config.listen[1]
        if self._config.ports is not None:
            ports = self._config.ports
        elif first:
            ports = range(first + len(self._config.brokers), min(first + _MOST, MAX_PORT) + 1)
        else:
            return [0]
        return [port for port in ports if port not in used][:50]

    def _listen(self, address: Address, broker: Address) -> int:
        try:
            family, kind, proto, _, resolved = socket.getaddrinfo(
                *address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            made = socket.socket(family, kind, proto)
            try:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.bind(resolved)
                made.listen(_BACKLOG)
                made.setblocking(False)
            except BaseException:
                made.close()
                raise
        except OSError as error:
            reason = (
                "address already in use"
                if error.errno == errno.EADDRINUSE
                else (error.strerror or str(error)).lower()
            )
            raise StartError(f"cannot listen on {show_address(address)}: {reason}") from error
        self._open(made, broker)
        return int(made.getsockname()[1])
