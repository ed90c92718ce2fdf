"""The tap's configuration: addresses, and a limit for everything that it keeps."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pixy.config.model import Tls
from pixy.errors import ConfigError

KAFKA_PORT: Final = 9092
MAX_PORT: Final = 65535

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of everything that the tap keeps; docs/tap.md says what happens at each."""

    connections: int = 5_000
    """Open connections; further clients wait in the listeners' backlogs."""
    groups: int = 1_000
    members: int = 1_000
    """Members of one group."""
    partitions: int = 100_000
    """Partitions with end offsets; also (producer, partition) pairs with a sequence."""
    offsets: int = 10_000
    """Partitions with a committed offset in one group."""
    topics: int = 10_000
    """Topics with ids, and topics with their readers and writers."""
    software: int = 1_000
    """Client software (name and version) in the inventory."""
    timeline: int = 1_000
    """Rebalances in the timeline."""
    in_flight: int = 10_000
    """Requests of one connection that wait for a response."""
    capture: int = 4 * 1024 * 1024
    """Bytes of a captured frame; of a larger frame only the header is read."""
    backlog: int = 64 * 1024 * 1024
    """Bytes of captured frames that wait for the observer; further frames are forwarded unobserved."""
    rewrite: int = 32 * 1024 * 1024
    """Bytes of a response in which addresses are rewritten."""
    heads: int = 1_000
    """Partitions read in one Produce or Fetch."""
    dump: int = 1024 * 1024 * 1024
    """Bytes of the dump (``--dump``), which then ends."""
    decoded: int = 2_000
    """Small Produce, Fetch and other requests that change no group, decoded a second; of further ones only the header is read."""


@dataclass(frozen=True, slots=True)
class BrokerTls:
    """How the tap connects to brokers by TLS: files in PEM format."""

    ca: str = ""
    """The authorities that it trusts; empty for the system's."""
    certificate: str = ""
    """Its own certificate, for brokers that ask for one; empty for none."""
    key: str = ""
    """The certificate's key; empty if the certificate's file has it."""


@dataclass(frozen=True, slots=True)
class TapConfig:
    """The configuration of a tap, which serves one cluster."""

    brokers: tuple[Address, ...]
    listen: Address = ("127.0.0.1", 19093)
    rewrite: bool = False
    """Rewrite broker addresses in responses, so that clients connect to the tap."""
    advertise: str = ""
    """Host in rewritten responses; if empty, the host that the client connected to."""
    ports: range | None = None
    """Ports for brokers that responses name; if None, the ports after the last broker's (any, with port 0)."""
    connect_timeout: float = 10.0
    """Seconds to wait for a connection to a broker."""
    session_timeout: float = 45.0
    """Seconds without a heartbeat after which a KIP-848 member times out, which the protocol does not transmit."""
    bounds: Bounds = field(default_factory=Bounds)
    slow: float = 1.0
    """Seconds after which a response is reported as slow; 0 reports none."""
    verify: float = 0.0
    """Seconds between the tap's own questions to the brokers (see :mod:`pixy.tap.verify`); 0 asks nothing."""
    tls: Tls | None = None
    """Certificates for connections from clients; None forwards what they speak."""
    broker_tls: BrokerTls | None = None
    """Certificates for connections to brokers; None forwards what clients speak."""


def parse_address(text: str, default_port: int | None = None) -> Address:
    """Parse ``host:port``, ``[::1]:port``, ``:port`` (all interfaces) or, if there is a default port, ``host``.

    Args:
        text: the address.
        default_port: the port of an address without one; None requires a port.

    Raises:
        ConfigError: it is not an address.
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
        raise ConfigError(f"bad address {text!r}: expected HOST:PORT")
    return host.strip("[]") or "0.0.0.0", int(port)


def parse_ports(text: str) -> range:
    """Parse a range of ports such as ``9100-9199``, both ends included.

    Raises:
        ConfigError: it is not a range of ports.
    """
    first, dash, last = text.partition("-")
    if not (dash and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= MAX_PORT):
        raise ConfigError(f"bad port range {text!r}: expected FIRST-LAST, such as 9100-9199")
    return range(int(first), int(last) + 1)


def show_address(address: Address) -> str:
    """Format an address as ``host:port``, with brackets around IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
