"""Events from the forwarding side to the observer.

``connection`` is a connection's number, ``at`` is in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pixy.tap.partial_decoders import FetchRequestSummary, FetchResponseSummary, ProduceSummary


class Opened(NamedTuple):
    """A client has connected, and the tap connects to the broker; addresses are host:port."""

    connection: int
    at: float
    client: str
    broker: str


class Closed(NamedTuple):
    """A connection has ended."""

    connection: int
    at: float
    reason: str


class RequestCaptured(NamedTuple):
    """The copy of a request, header included; ``number`` counts the connection's requests from 1."""

    connection: int
    at: float
    number: int
    key: int
    version: int
    frame: bytes


class ResponseCaptured(NamedTuple):
    """The copy of the response to the request of the same number."""

    connection: int
    at: float
    number: int
    key: int
    version: int
    frame: bytes


class ProduceSeen(NamedTuple):
    """A Produce request passed."""

    connection: int
    at: float
    client_id: str
    summary: ProduceSummary


class FetchRequestSeen(NamedTuple):
    """A Fetch request passed."""

    connection: int
    at: float
    client_id: str
    summary: FetchRequestSummary


class FetchResponseSeen(NamedTuple):
    """A Fetch response passed."""

    connection: int
    at: float
    summary: FetchResponseSummary


class Opaque(NamedTuple):
    """A connection is no longer observed; its bytes are still forwarded."""

    connection: int
    at: float
    reason: str


class Tally(NamedTuple):
    """Counts since the last tally: counters by name, requests by (API key, version)."""

    connection: int
    at: float
    counts: Mapping[str, int]
    requests: Mapping[tuple[int, int], int]
    seconds: Mapping[int, float]
    """Sum of response times by API key, in seconds."""


class EventsLost(NamedTuple):
    """Events were dropped because the observer was behind."""

    at: float
    events: int
    open: frozenset[int]
    """Numbers of the connections that are still open."""


Event = (
    Opened
    | Closed
    | RequestCaptured
    | ResponseCaptured
    | ProduceSeen
    | FetchRequestSeen
    | FetchResponseSeen
    | Opaque
    | Tally
    | EventsLost
)
