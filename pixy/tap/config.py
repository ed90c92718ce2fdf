"""What the tap is told: addresses, views, and the bound of everything it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pixy.errors import ConfigError

KAFKA_PORT: Final = 9092
MAX_PORT: Final = 65535

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most of each thing that is kept; what is beyond is forgotten, the longest unused first, and counted."""

    connections: int = 5_000
    """Connections at the same time; more wait in the listeners' backlogs."""
    groups: int = 1_000
    members: int = 1_000
    """Members of one group."""
    partitions: int = 100_000
    """Partitions with end offsets; sequences of producers in partitions."""
    offsets: int = 10_000
    """Partitions with a committed offset, of one group."""
    topics: int = 10_000
    """Topics with ids, and topics with their readers and writers."""
    software: int = 1_000
    """Client software (name and version) in the inventory."""
    timeline: int = 1_000
    """Rebalances that are remembered."""
    in_flight: int = 10_000
    """Requests of one connection that wait for an answer."""
    capture: int = 4 * 1024 * 1024
    """Bytes of a frame that is looked into; of a larger one only the header is."""
    backlog: int = 64 * 1024 * 1024
    """Bytes of frames that wait to be looked into; more are forwarded without a look."""
    rewrite: int = 32 * 1024 * 1024
    """Bytes of an answer in which addresses are rewritten."""
    heads: int = 1_000
    """Partitions of one Produce or Fetch that are looked at."""


@dataclass(frozen=True, slots=True)
class TapConfig:
    """A tap for one cluster."""

    brokers: tuple[Address, ...]
    listen: Address = ("127.0.0.1", 19093)
    rewrite: bool = False
    """Rewrite the brokers' addresses in answers, so that clients stay on the tap."""
    advertise: str = ""
    """The host in rewritten answers; without it, the one that the client has connected to."""
    ports: range | None = None
    """Ports for brokers that appear in answers; without it, those after the last broker's (any, with port 0)."""
    connect_timeout: float = 10.0
    """Seconds for a connection to a broker."""
    session_timeout: float = 45.0
    """Seconds without a heartbeat after which a member of a KIP-848 group is gone: that is not on the wire."""
    bounds: Bounds = field(default_factory=Bounds)


def parse_address(text: str, default_port: int | None = None) -> Address:
    """``host:port``, ``[::1]:port``, ``:port`` (all interfaces) or, if there is a default port, ``host``.

    Raises ConfigError.
    """
    host, colon, port = text.rpartition(":")
    if (not colon or text.endswith("]")) and default_port is not None:
        host, port = text, str(default_port)
        colon = ":"
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ConfigError(
            f"bad address {text!r}: write an IPv6 address as [::1]:{default_port or KAFKA_PORT}"
        )
    if (
        not colon
        or not port.isascii()
        or not port.isdecimal()
        or int(port) > MAX_PORT
        or (default_port and not host)
    ):
        raise ConfigError(f"bad address {text!r}: it is not HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)


def parse_ports(text: str) -> range:
    """``9100-9199``, both included. Raises ConfigError."""
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= MAX_PORT):
        raise ConfigError(f"bad range of ports {text!r}: it is not FIRST-LAST, such as 9100-9199")
    return range(int(first), int(last) + 1)


def show_address(address: Address) -> str:
    """``host:port``, with brackets around IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
