"""What the forwarding side tells the observer. ``connection`` is its number, ``at`` seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pixy.tap.partial_decoders import FetchAsk, FetchedHead, ProduceHead


class Opened(NamedTuple):
    """A client is connected to a broker; addresses are host:port."""

    connection: int
    at: float
    client: str
    broker: str


class Closed(NamedTuple):
    """A connection is over."""

    connection: int
    at: float
    reason: str


class Asked(NamedTuple):
    """A request, with its header; ``number`` counts the connection's requests."""

    connection: int
    at: float
    number: int
    key: int
    version: int
    frame: bytes


class Answered(NamedTuple):
    """The response to the request of the same number."""

    connection: int
    at: float
    number: int
    key: int
    version: int
    frame: bytes


class Produced(NamedTuple):
    """A Produce passed."""

    connection: int
    at: float
    client_id: str
    head: ProduceHead


class FetchAsked(NamedTuple):
    """A Fetch passed."""

    connection: int
    at: float
    client_id: str
    ask: FetchAsk


class Fetched(NamedTuple):
    """The answer to a Fetch passed."""

    connection: int
    at: float
    head: FetchedHead


class Opaque(NamedTuple):
    """A connection that is not looked into any more; it is forwarded all the same."""

    connection: int
    at: float
    reason: str


class Tally(NamedTuple):
    """What has passed since the last tally: counters by name, requests by (API key, version)."""

    connection: int
    at: float
    counts: Mapping[str, int]
    requests: Mapping[tuple[int, int], int]
    seconds: Mapping[int, float]
    """Sum of the answers' times by API key."""


class Lost(NamedTuple):
    """Events that the observer never got because it was behind."""

    at: float
    events: int
    open: frozenset[int]
    """The connections that are open all the same."""


Event = Opened | Closed | Asked | Answered | Produced | FetchAsked | Fetched | Opaque | Tally | Lost
