"""Messages of the tap's actors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from actors import Request
from pixy.tap.config import Address

ViewName = Literal[
    "snapshot",
    "timeline",
    "clients",
    "connections",
    "topics",
    "metrics",
    "table",
    "latency",
    "talkers",
    "errors",
    "slow",
    "findings",
    "committed",
    "timings",
]


@dataclass(frozen=True, slots=True)
class OpenPorts(Request[list[tuple[Address, Address]]]):
    """To the tap: listen for the configured brokers. The reply pairs each listening address with its broker.

    The request fails with a StartError if a port cannot be opened.
    """


@dataclass(frozen=True, slots=True)
class DrainTap(Request[None]):
    """To the tap: close all ports and connections, and give the observer a second to process what is queued."""


@dataclass(frozen=True, slots=True)
class GetView(Request[Any]):
    """To the tap, which passes it to the observer: make a view. The reply is JSON, or text for ``metrics``."""

    view: ViewName
    group: str | None = None
    """Restrict ``snapshot`` or ``timeline`` to this group."""


@dataclass(frozen=True, slots=True)
class Tick(Request[None]):
    """Time out members and update anomalies. A reply says that all earlier events have been processed."""


__all__ = ["DrainTap", "GetView", "OpenPorts", "Tick", "ViewName"]
