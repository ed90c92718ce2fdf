"""Steps: the IO that the clients need, as values.

The clients are written once, as generators: a generator yields the step that it needs next and is sent the outcome,
or thrown the error. :mod:`pixy.wire.blocking` performs the steps with sockets in the caller's thread,
:mod:`pixy.wire.aio` on an event loop.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Transport(Protocol):
    """The outcome of :class:`Open`."""

    def close(self) -> None:
        """Close at once, without waiting for unsent data."""


@dataclass(frozen=True, slots=True)
class Open:
    """Connect within ``timeout`` seconds, with TLS if there is a context. The outcome is a Transport, or OSError."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Send:
    """Send all of ``data`` within ``timeout`` seconds."""

    transport: Any
    data: bytes
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait up to ``timeout`` seconds for bytes. The outcome is empty at the end of the stream."""

    transport: Any
    timeout: float | None


@dataclass(frozen=True, slots=True)
class Resolve:
    """Call a function that returns addresses. It may block; on an event loop it may be a coroutine function."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a function that takes long or blocks, such as the key derivation of SCRAM; an event loop runs it in a thread."""

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class LookUpSrv:
    """Look up an SRV record within ``timeout`` seconds. The outcome is a list of addresses, or WireError."""

    name: str
    timeout: float


Step = Open | Send | Receive | Resolve | Compute | LookUpSrv
Steps = Generator[Step, Any, T]
