"""Events from the forwarding side to the observer.

``connection`` is a connection's number, ``at`` is in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pixy.tap.partial_decoders import (
    FetchRequestSummary,
    FetchResponseSummary,
    ProduceResponseSummary,
    ProduceSummary,
)
from pixy.tap.share_decoders import ShareSummary


class Opened(NamedTuple):
    """A client has connected, and the tap connects to the broker; addresses are host:port."""

    connection: int
    at: float
    client: str
    broker: str


class Connected(NamedTuple):
    """The tap is connected to the broker; for the dump."""

    connection: int
    at: float
    client: tuple[str, int]
    """IP address and port."""
    broker: tuple[str, int]


class Closed(NamedTuple):
    """A connection has ended. ``unreached`` is the broker's address if the tap has found no connection to it."""

    connection: int
    at: float
    reason: str
    unreached: str = ""


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
    number: int = 0
    """Position among the connection's requests, as in :class:`ProduceAnswered`."""


class ProduceAnswered(NamedTuple):
    """A Produce response passed."""

    connection: int
    at: float
    number: int
    asked: float
    """The time at which the request passed."""
    summary: ProduceResponseSummary


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
    asked: float = 0.0
    """The time at which the request passed."""


class ShareAnswered(NamedTuple):
    """A ShareFetch or ShareAcknowledge response passed; ``number`` is its request's."""

    connection: int
    at: float
    number: int
    key: int
    summary: ShareSummary


class SlowSeen(NamedTuple):
    """A response came later than the limit of slow requests."""

    connection: int
    at: float
    key: int
    version: int
    client_id: str
    seconds: float
    """What the broker took."""
    queued: float = 0.0
    """What the tap took."""


class FrameSeen(NamedTuple):
    """A frame passed, for the dump (``--dump``)."""

    connection: int
    at: float
    number: int
    """Position of the request among the connection's requests; a response has its request's."""
    key: int
    version: int
    asked: float = 0.0
    """The time at which the request passed, if this is a response."""
    size: int = 0
    """Bytes of the frame, without its length."""
    frame: bytes = b""
    """The frame or its beginning; of frames with credentials the header alone."""

    @property
    def is_request(self) -> bool:
        """Whether it is a request."""
        return not self.asked


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
    latency: Mapping[int, Sequence[int]] = {}
    """Number of responses by API key, one number for each bucket of :data:`pixy.tap.latency.BOUNDS`."""
    queues: Mapping[int, Sequence[int]] = {}
    """Likewise, by the time inside the tap: :data:`pixy.tap.queueing.BOUNDS`."""
    queue_seconds: Mapping[int, float] = {}
    """Sum of the times inside the tap by API key."""
    held: tuple[float, float] = (0.0, 0.0)
    """Seconds in which the broker, and the client, did not accept what the tap had for it."""
    sampled: Mapping[int, int] = {}
    """Requests of which only the header was read, by API key."""


class CommitsVerified(NamedTuple):
    """A coordinator has told all committed offsets of a group, on a connection of the tap's own (number 0)."""

    connection: int
    at: float
    asked: float
    """The time at which the tap asked."""
    group: str
    offsets: tuple[tuple[str, int, int], ...]
    """Topic, partition, committed offset."""


class EndsVerified(NamedTuple):
    """A leader has told ends of its partitions, on a connection of the tap's own."""

    connection: int
    at: float
    asked: float
    ends: tuple[tuple[str, int, int], ...]
    """Topic, partition, end offset."""


class VerifyFailed(NamedTuple):
    """A request of the tap's own has failed."""

    connection: int
    at: float
    about: str
    error: str


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
    | ProduceAnswered
    | FetchRequestSeen
    | FetchResponseSeen
    | ShareAnswered
    | SlowSeen
    | CommitsVerified
    | EndsVerified
    | VerifyFailed
    | Opaque
    | Tally
    | EventsLost
)
