"""Both directions of a connection, frame by frame: find frames, match responses with requests, report events.

:mod:`pixy.tap.request_reader` and :mod:`pixy.tap.response_reader` read the frames; this is what both directions share.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from pixy.tap import events
from pixy.tap.apis import FETCH, SHARE_FETCH, WAITING, known
from pixy.tap.config import Bounds
from pixy.tap.fast_path import FastPath, Sampler
from pixy.tap.in_flight import InFlight, PendingRequest, Run
from pixy.tap.latency import BOUNDS as LATENCY_BOUNDS
from pixy.tap.queueing import BOUNDS as QUEUE_BOUNDS, Queueing
from pixy.tap.request_reader import RequestReader
from pixy.tap.response_reader import ResponseReader
from pixy.tap.stream_tap import StreamTap

_HEADER: Final = 8
"""Bytes of a frame with credentials that a dump gets: API, version and correlation id of a request."""


class Sink(Protocol):
    """Destination of a conversation's events."""

    def put(self, event: events.Event) -> None:
        """Accept an event, or drop it if the observer is behind."""

    def reserve(self, size: int) -> bool:
        """Reserve room for a frame of ``size`` bytes; the event that carries it uses the room.

        Returns:
            False if there is no room; the frame must then not be captured.
        """

    def unreserve(self, size: int) -> None:
        """Return reserved room for frames that will not come."""


class FrameSink(Protocol):
    """Destination of whole frames: the dump."""

    def limit(self, key: int, version: int) -> int | None:
        """Return how many bytes of a frame it wants, by API key and version; None if it wants not even to know of it."""

    def reserve(self, size: int) -> bool:
        """Reserve room for a frame, as :meth:`Sink.reserve`; what finds no room is counted as lost."""

    def unreserve(self, size: int) -> None:
        """Return reserved room."""

    def put(self, event: events.Opened | events.Connected | events.FrameSeen | events.Closed) -> None:
        """Accept a frame, whose room is reserved, or the beginning or end of a connection."""


Rewrite = Callable[[bytes, int, int], bytes | None]
"""Change a response: (frame without length, API key, version) to the frame with length, or None to keep it."""


class Conversation:
    """Observe one connection: feed its bytes to ``to_broker`` and ``to_client``.

    Args:
        connection: the connection's number.
        sink: receives the events.
        clock: tells the time in seconds since the epoch.
        bounds: limits of requests in flight, captured bytes and partitions of one Produce or Fetch.
        rewrite: changes responses that name brokers; None forwards every byte unchanged.
        sampler: chooses the frames that are decoded under load; None decodes all that say something new.
        slow: seconds after which a response is reported as slow; 0 reports none.
        dump: receives whole frames, so none takes the fast path; None for no dump.
    """

    def __init__(
        self,
        connection: int,
        sink: Sink,
        clock: Callable[[], float],
        bounds: Bounds,
        rewrite: Rewrite | None = None,
        sampler: Sampler | None = None,
        slow: float = 0.0,
        dump: FrameSink | None = None,
    ) -> None:
        self.connection = connection
        self.opaque = ""
        """The reason why the connection is no longer observed; empty while it is."""
        self.counts: Counter[str] = Counter()
        self.requests: Counter[tuple[int, int]] = Counter()
        self.sampled: Counter[int] = Counter()
        """Requests of which only the header was read, by API key."""
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self.latency: dict[int, list[int]] = {}
        self.queues: dict[int, list[int]] = {}
        self.queue_seconds: defaultdict[int, float] = defaultdict(float)
        self.queueing = Queueing()
        self.slow = slow
        """Seconds after which a response is reported as slow; 0 reports none."""
        self.max_wait = 0.0
        """Seconds that the broker may hold back a response to the latest Fetch."""
        self.clock, self.bounds, self.rewrite, self.dump = clock, bounds, rewrite, dump
        self.waiting = InFlight(bounds.in_flight)
        """The requests that wait for a response."""
        self.number = 0
        """Number of requests so far."""
        self.sasl_tokens = False
        """Whether raw SASL tokens may come: between SaslHandshake v0 and the first request after it."""
        self.token_due = False
        """Whether the next frame is such a token, whatever it looks like."""
        self.client_id = ""
        self._sink, self._reserved, self._dump_reserved = sink, 0, 0
        self.fast = FastPath(self, self.waiting, clock, sampler, rewrite is not None, known)
        forth, back = (self.fast.requests, self.fast.responses) if dump is None else (None, None)
        self.to_broker = StreamTap(RequestReader(self).read, self._on_defect, forth)
        self.to_client = StreamTap(ResponseReader(self).read, self._on_defect, back)

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return len(self.waiting)

    def tally(self) -> events.Tally | None:
        """Return what was counted since the last call; None if nothing was."""
        if not self.counts:
            return None
        found = events.Tally(
            self.connection,
            self.clock(),
            self.counts,
            self.requests,
            self.seconds,
            self.latency,
            self.queues,
            self.queue_seconds,
            (self.queueing.held[0], self.queueing.held[1]),
            self.sampled,
        )
        self.sampled = Counter()
        self.counts, self.requests, self.seconds = Counter(), Counter(), defaultdict(float)
        self.latency, self.queues, self.queue_seconds = {}, {}, defaultdict(float)
        self.queueing.held = [0.0, 0.0]
        return found

    def close(self) -> None:
        """Return the room reserved for frames that have not come completely."""
        self._sink.unreserve(self._reserved)
        self._reserved = 0
        if self.dump is not None:
            self.dump.unreserve(self._dump_reserved)
            self._dump_reserved = 0

    def stop_observing(self, reason: str, counter: str) -> None:
        """Look at no further frame.

        Args:
            reason: is shown to people.
            counter: counts such connections.
        """
        self.counts[counter] += 1
        if not self.opaque:
            self.opaque = reason
            self.waiting.clear()
            self._sink.put(events.Opaque(self.connection, self.clock(), reason))

    @property
    def is_opaque(self) -> bool:
        """Whether the connection is no longer observed."""
        return bool(self.opaque)

    def _on_defect(self, error: Exception) -> None:
        self.stop_observing(f"a defect of the tap: {error!r}", "defects")

    def count_requests(self, key: int, version: int, count: int = 1) -> int:
        """Count requests of a known API and version that the reader does not read; return the last one's number."""
        self.number += count
        self.counts["requests"] += count
        self.requests[key, version] += count
        return self.number

    def capture_request(self, request: PendingRequest, frame: bytes) -> None:
        """Give a request to the observer that the reader did not read.

        Args:
            request: the request.
            frame: its bytes, header included.
        """
        if self.reserve(len(frame)):
            self.put_captured(
                events.RequestCaptured(
                    self.connection, request.at, request.number, request.key, request.version, frame
                )
            )

    def asked_at(self) -> float:
        """Return when the requests that are observed now went on to the broker."""
        return self.queueing.sent or self.clock()

    def time_response(self, request: PendingRequest | Run, now: float, count: int = 1) -> None:
        """Add the time that the broker took for responses and the time in the tap, and report a slow one.

        Args:
            request: the request, or one of those that came at the same time.
            now: the time of the responses, in seconds since the epoch.
            count: number of responses.
        """
        key, delay = request.key, self.queueing.delay(request.number)
        back = max(0.0, now - self.queueing.answered) if self.queueing.answered else 0.0
        took, queued = max(0.0, now - back - request.at - delay), request.queued + delay + back
        self.seconds[key] += count * took
        self.queue_seconds[key] += count * queued
        _count(self.latency, LATENCY_BOUNDS, key, took, count)
        _count(self.queues, QUEUE_BOUNDS, key, queued, count)
        if (
            self.slow
            and took + queued > self.slow
            and key not in WAITING
            and isinstance(request, PendingRequest)
        ):
            if key in (FETCH, SHARE_FETCH) and took + queued <= self.slow + self.max_wait:
                return
            self._sink.put(
                events.SlowSeen(self.connection, now, key, request.version, self.client_id, took, queued)
            )

    def put(self, event: events.Event) -> None:
        """Report an event."""
        self._sink.put(event)

    def add(self, request: PendingRequest) -> None:
        """Let a request wait for its response."""
        self.waiting.add(request, self.counts)

    def reserve(self, size: int) -> bool:
        """Reserve room for a frame that the observer is to get; return whether there is some."""
        if size > self.bounds.capture:
            self.counts["too_large"] += 1
            return False
        if not self._sink.reserve(size):
            self.counts["not_observed"] += 1
            return False
        self._reserved += size
        return True

    def put_captured(self, event: events.RequestCaptured | events.ResponseCaptured) -> None:
        """Report a frame for which room is reserved."""
        self._reserved -= len(event.frame)
        self._sink.put(event)
        self.fast.saw(event)

    def dump_from(self, stream: StreamTap) -> None:
        """Copy the header of a frame that begins here, for the dump."""
        if self.dump is not None:
            stream.record(_HEADER)

    def dump_rest(
        self, stream: StreamTap, key: int, version: int, size: int, *, header: int = _HEADER
    ) -> bool:
        """Copy the rest of the frame, too, as far as the dump wants it and has room.

        Args:
            stream: copies its beginning.
            key: the API key; -1 for a SASL token.
            version: the request's version.
            size: the frame's bytes.
            header: how many bytes the header has; of a frame whose body is hidden, no more are copied.

        Returns:
            Whether :meth:`dump_to` is to be told of it.
        """
        if self.dump is None:
            return False
        limit = self.dump.limit(key, version)
        if limit is None:
            stream.record(0)
            return False
        wanted = min(limit if limit > _HEADER else min(limit, header), size, self.bounds.capture)
        if not self.dump.reserve(wanted):
            stream.record(0)
            return False
        self._dump_reserved += wanted
        stream.record_up_to(wanted)
        return True

    def dump_to(self, stream: StreamTap, seen: events.FrameSeen | None) -> None:
        """Give the frame that ends here to the dump.

        Args:
            stream: has copied it.
            seen: what is known of it; None drops it.
        """
        if self.dump is None:
            return
        frame = stream.recorded()
        if seen is not None:
            self._dump_reserved -= len(frame)
            self.dump.put(seen._replace(frame=frame))


def _count(
    found: dict[int, list[int]], bounds: tuple[float, ...], key: int, seconds: float, count: int
) -> None:
    buckets = found.get(key)
    if buckets is None:
        buckets = found[key] = [0] * (len(bounds) + 1)
    buckets[bisect_left(bounds, seconds)] += count


__all__ = ["Conversation", "FrameSink", "Rewrite", "Sink"]
