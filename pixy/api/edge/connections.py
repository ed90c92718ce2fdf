"""Limit the connections that clients hold, in all and from one address. Pure but for the limit of open files."""

from __future__ import annotations

import ipaddress
import resource
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pixy.auth.principal import Caller
from pixy.config.model import Connections

IN_ALL: Final = "connections.max"
PER_ADDRESS: Final = "connections.max_per_address"
ADMIN: Final = "connections.max_admin"
UNIX: Final = "unix"
"""The address of a peer on a unix socket."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds in force.

    Attributes:
        http: connections of all HTTP listeners together.
        grpc: connections of the gRPC listener.
        per_address: HTTP connections from one address.
        cut: why the first two are lower than configured; empty if they are not.
    """

    http: int
    grpc: int
    per_address: int
    cut: str = ""


def bounds(config: Connections, open_files: int | None = None) -> Bounds:
    """Fit the configured bounds below the limit of open files, less what Kafka clients need.

    Args:
        config: the section ``connections``.
        open_files: the limit of the process; None: ask the system.
    """
    if open_files is None:
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if open_files == resource.RLIM_INFINITY:
            return Bounds(config.max, config.max_grpc, config.max_per_address)
    # A reserve larger than the limit would leave no connection; half of the files then remain for Kafka.
    room = max(open_files - config.reserved_files, open_files // 2, 2)
    wanted = config.max + config.max_grpc
    if wanted <= room:
        return Bounds(config.max, config.max_grpc, config.max_per_address)
    http = max(1, config.max * room // wanted)
    grpc = max(1, room - http)
    cut = (
        f"at most {http} HTTP and {grpc} gRPC connections: {open_files} files may be open (ulimit -n), of which "
        f"{open_files - room} are kept for Kafka (`connections.reserved_files`)"
    )
    return Bounds(http, grpc, min(config.max_per_address, http), cut)


class Slot:
    """The place of one connection in :class:`Book`."""

    __slots__ = ("_free", "caller", "known", "peer")

    def __init__(self, caller: str, free: Callable[[str], None]) -> None:
        self.caller = caller
        """The caller whose share the connection counts against; see :func:`caller_of`."""
        self.peer = ""
        """The peer's address and port; ``unix`` on a unix socket. The connection itself forgets them when it is reset."""
        self.known: tuple[Any, Caller] | None = None
        """The last head that has shown a caller, and who he was."""
        self._free: Callable[[str], None] | None = free

    def free(self) -> None:
        """Give the place back. Only the first call counts."""
        free, self._free = self._free, None
        if free is not None:
            free(self.caller)


class Book:
    """Counts the open connections of all HTTP listeners. For one event loop, so it needs no lock.

    Args:
        in_all: the most connections.
        per_caller: the most connections of one caller.
        key: of the configuration, for both bounds; by default each has its own.
    """

    def __init__(self, in_all: int, per_caller: int, key: str = "") -> None:
        self._in_all = in_all
        self._per_caller = per_caller
        self._keys = (key or PER_ADDRESS, key or IN_ALL)
        self._held: dict[str, int] = {}
        self.open = 0
        """Connections that are open."""
        self.refused = 0
        """Connections that were refused so far."""

    def enter(self, caller: str) -> Slot | str:
        """Take a place; or return the key of the bound that leaves none."""
        held = self._held.get(caller, 0)
        per_caller, in_all = self._keys
        full = per_caller if self.is_full(caller) else in_all if self.open >= self._in_all else ""
        if full:
            self.refused += 1
            return full
        self._held[caller] = held + 1
        self.open += 1
        return Slot(caller, self._leave)

    def _leave(self, caller: str) -> None:
        self.open -= 1
        held = self._held[caller] - 1
        if held:
            self._held[caller] = held
        else:
            del self._held[caller]

    def is_full(self, caller: str) -> bool:
        """Return whether a caller holds as many connections as one may."""
        return self.of(caller) >= self._per_caller

    def of(self, caller: str) -> int:
        """Return the number of connections that a caller holds."""
        return self._held.get(caller, 0)


def caller_of(connection: socket.socket) -> str:
    """Name the caller behind a connection, for its share of what is bounded.

    An address of IPv4, a /64 network of IPv6 (a host gets one for itself, and may use any address of it), or the user
    at the other end of a unix socket.
    """
    if connection.family == socket.AF_UNIX:
        size = struct.calcsize("3i")
        try:
            _, uid, _ = struct.unpack(
                "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
            )
        except (OSError, AttributeError):  # not Linux
            return "unix"
        return f"uid {uid}"
    return share_of(connection.getpeername()[0])


def peer_name(address: object) -> str:
    """Return the address and port of a peer as logs show them; ``unix`` on a unix socket, whose clients choose the name themselves.

    Args:
        address: as the socket, or a transport's ``peername``, has it.
    """
    return f"{address[0]}:{address[1]}" if isinstance(address, tuple) else UNIX


def share_of(host: str) -> str:
    """Return the address whose share an address counts against; see :func:`caller_of`."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.IPv6Network((address, 64), strict=False))
    return host


def share_of_forwarded(text: str) -> str:
    """Return the share of an address as a proxy writes it, some with a port: ``1.2.3.4:5``, ``[::1]:5``; empty: it is none."""
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and (":" not in host or host.startswith("[")):
        text = host
    text = text.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    return share_of(text)


__all__ = [
    "ADMIN",
    "IN_ALL",
    "PER_ADDRESS",
    "UNIX",
    "Book",
    "Bounds",
    "Slot",
    "bounds",
    "caller_of",
    "peer_name",
    "share_of",
    "share_of_forwarded",
]
