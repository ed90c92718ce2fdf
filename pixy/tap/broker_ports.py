"""The tap's ports: one for each broker, so that a client's choice of port names the broker it wants."""

from __future__ import annotations

import socket
from collections.abc import Callable

from pixy.errors import StartError, reason_of
from pixy.tap.config import MAX_PORT, Address, TapConfig, show_address

_BACKLOG = 1024
_MAX_PORTS = 1_000
"""Brokers that get a port, at most, when the configuration gives no range."""

Listen = Callable[[socket.socket, Address], None]
"""Accept connections on a listening socket, for a broker."""


class BrokerPorts:
    """Open a port for each broker when a response first names it.

    Args:
        config: the brokers and ports.
        listen: receives each listening socket with its broker.
    """

    def __init__(self, config: TapConfig, listen: Listen) -> None:
        self._config, self._on_listening = config, listen
        self._ports: dict[Address, int] = {}
        self._alias: Address | None = None
        self.exhausted = 0
        """Number of addresses returned unchanged because no port was free."""

    def start(self) -> list[tuple[Address, Address]]:
        """Listen for the configured brokers.

        Returns:
            Pairs of listening address and broker.

        Raises:
            StartError: a port cannot be opened.
        """
        host, first = self._config.listen
        found = []
        for i, broker in enumerate(self._config.brokers):
            if first and first + i > MAX_PORT:
                raise StartError(f"no port is left for the broker {show_address(broker)}")
            port = self._listen((host, first + i if first else 0), broker)
            self._ports[broker] = port
            found.append(((host, port), broker))
        return found

    def tap_address(self, broker: Address, brokers: int, local_host: str) -> Address:
        """Return the address that stands for a broker; open a port if it has none yet.

        Args:
            broker: the broker's address in a response.
            brokers: the number of brokers in the cluster, 0 if the response does not tell.
            local_host: the host that the client connected to, used unless the configuration sets ``advertise``.

        Returns:
            The tap's address, or the broker's own if no port is free.
        """
        if brokers > 1 and self._alias is not None:
            # The configured address leads to any of several brokers (a load balancer, a name with several addresses):
            # the first one had looked like the only one while the others were down.
            del self._ports[self._alias]
            self._alias = None
        port = self._ports.get(broker)
        if port is None and brokers == 1 and len(self._config.brokers) == 1 and len(self._ports) == 1:
            # The cluster has one broker: this is another name of it.
            port = self._ports[broker] = next(iter(self._ports.values()))
            self._alias = broker
        if port is None:
            port = self._open_port(broker)
        if port is None:
            self.exhausted += 1
            return broker
        return self._config.advertise or local_host, port

    def _open_port(self, broker: Address) -> int | None:
        for candidate in self._candidates():
            try:
                port = self._listen((self._config.listen[0], candidate), broker)
            except StartError:
                continue
            self._ports[broker] = port
            return port
        return None

    def _candidates(self) -> list[int]:
        if len(self._ports) >= _MAX_PORTS:
            return []
        used = set(self._ports.values())
        first = self._config.listen[1]
        if self._config.ports is not None:
            ports = self._config.ports
        elif first:
            ports = range(first + len(self._config.brokers), min(first + _MAX_PORTS, MAX_PORT) + 1)
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
            raise StartError(f"cannot listen on {show_address(address)}: {reason_of(error)}") from error
        self._on_listening(made, broker)
        return int(made.getsockname()[1])
