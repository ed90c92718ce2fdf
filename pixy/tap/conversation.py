"""Both directions of a connection, frame by frame: find frames, match responses with requests, report events.

SASL tokens and SaslAuthenticate frames are skipped, never read. Frames that the observer does not need are skipped too.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Final, Protocol

from pixy.tap import events, partial_decoders
from pixy.tap.config import Bounds
from pixy.tap.in_flight import SASL_TOKEN, InFlight, PendingRequest
from pixy.tap.primitives import Decoder, skip, tags, varint, within
from pixy.tap.stream_tap import Reader, StreamTap
from pixy.wire import messages, schema

MAX_FRAME: Final = 1 << 30
"""The longest frame, in bytes: a connection with a greater length does not speak Kafka and is no longer observed."""

PRODUCE, FETCH, SASL_HANDSHAKE = 0, 1, 17
CAPTURED_REQUESTS: Final = frozenset({2, 8, 9, 11, 12, 13, 14, 18, 68})
"""API keys whose requests the observer reads."""
CAPTURED_RESPONSES: Final = frozenset({2, 3, 8, 9, 11, 12, 13, 14, 18, 19, 68, 75})
"""API keys whose responses the observer reads."""
REWRITTEN_RESPONSES: Final = frozenset({3, 10, 60})
"""API keys whose responses name brokers: Metadata, FindCoordinator, DescribeCluster."""
_PRODUCE_ENDPOINTS, _FETCH_ENDPOINTS = 10, 16  # the first versions whose responses name brokers
_NO_LIMIT: Final = 1 << 31


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
    """

    def __init__(
        self,
        connection: int,
        sink: Sink,
        clock: Callable[[], float],
        bounds: Bounds,
        rewrite: Rewrite | None = None,
    ) -> None:
        self.connection = connection
        self.opaque = ""
        """Why the connection is no longer observed; empty while it is."""
        self.counts: Counter[str] = Counter()
        self.requests: Counter[tuple[int, int]] = Counter()
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self._reserved = 0
        self._sink, self._clock, self._bounds, self._rewrite = sink, clock, bounds, rewrite
        self._in_flight = InFlight(bounds.in_flight)
        self._number = 0
        self._sasl_tokens = False  # between SaslHandshake v0 and the first request after it
        self._client_id = ""
        self.to_broker = StreamTap(self._read_requests, self._on_defect)
        self.to_client = StreamTap(self._read_responses, self._on_defect)

    @property
    def in_flight(self) -> int:
        """Number of requests that wait for a response."""
        return len(self._in_flight)

    def tally(self) -> events.Tally | None:
        """Return what was counted since the last call; None if nothing was."""
        if not self.counts:
            return None
        found = events.Tally(self.connection, self._clock(), self.counts, self.requests, self.seconds)
        self.counts, self.requests, self.seconds = Counter(), Counter(), defaultdict(float)
        return found

    def close(self) -> None:
        """Return the room reserved for frames that have not come completely."""
        self._sink.unreserve(self._reserved)
        self._reserved = 0

    def _stop_observing(self, reason: str, counter: str) -> None:
        self.counts[counter] += 1
        if not self.opaque:
            self.opaque = reason
            self._in_flight.clear()
            self._sink.put(events.Opaque(self.connection, self._clock(), reason))

    def _is_opaque(self) -> bool:
        return bool(self.opaque)

    def _on_defect(self, error: Exception) -> None:
        self._stop_observing(f"a defect of the tap: {error!r}", "defects")

    # -- requests ---------------------------------------------------------------------------------

    def _read_requests(self, stream: StreamTap) -> Reader:
        first = True
        while not self.opaque:
            head = yield 4
            if first and head[:2] == b"\x16\x03":
                self._stop_observing("TLS", "tls")
                return
            first = False
            size = int.from_bytes(head, "big", signed=True)
            if not 0 <= size <= MAX_FRAME:
                self._stop_observing(f"a request's length of {size} bytes", "lost_sync")
                return
            _, left = yield from within(self._read_request(size), size)
            yield from skip(left)

    def _read_request(self, size: int) -> Decoder[None]:
        self._number += 1
        if size < 8:
            if self._sasl_tokens:
                self._add_token()
            else:
                self.counts["undecodable"] += 1
            return
        head = yield 8
        key, version, correlation_id = struct.unpack(">hhi", head)
        known = _known(key, version)
        if self._sasl_tokens:
            if not known:
                self._add_token()
                return
            self._sasl_tokens = False
        self.counts["requests"] += 1
        if len(self.requests) < 1_000 or (key, version) in self.requests:
            self.requests[key, version] += 1
        request = PendingRequest(key, version, correlation_id, self._number, self._clock())
        if key == PRODUCE and known:
            yield from self._read_produce(request, size - 8)
            return
        self._add(request)
        if not known:
            self.counts["unknown"] += 1
        elif key == FETCH:
            yield from self._read_fetch(request, size - 8)
        elif key == SASL_HANDSHAKE:
            self._sasl_tokens = version == 0
        elif key in CAPTURED_REQUESTS and self._reserve(size):
            frame = head + (yield size - 8)
            self._put(
                events.RequestCaptured(self.connection, request.at, request.number, key, version, frame)
            )

    def _add(self, request: PendingRequest) -> None:
        self._in_flight.add(request, self.counts)

    def _add_token(self) -> None:
        self._add(PendingRequest(SASL_TOKEN, 0, 0, self._number, self._clock()))

    def _reserve(self, size: int) -> bool:
        if size > self._bounds.capture:
            self.counts["too_large"] += 1
            return False
        if not self._sink.reserve(size):
            self.counts["not_observed"] += 1
            return False
        self._reserved += size
        return True

    def _put(self, event: events.RequestCaptured | events.ResponseCaptured) -> None:
        self._reserved -= len(event.frame)
        self._sink.put(event)

    def _read_header(self, key: int, version: int) -> Decoder[None]:
        count = int.from_bytes((yield 2), "big", signed=True)
        if count >= 0:
            self._client_id = (yield count).decode("utf-8", "replace")
        yield from tags(messages.request_header_version(key, version) == 2)

    def _read_produce(self, request: PendingRequest, size: int) -> Decoder[None]:
        acks: list[int] = []
        summary, left = yield from within(self._read_produce_body(request, acks), size)
        if not acks:  # the body ends before the acks: the broker answers such a request with an error
            self._add(request)
        if summary is None:
            self.counts["undecodable"] += 1
        else:
            self._sink.put(events.ProduceSeen(self.connection, request.at, self._client_id, summary))
        yield from skip(left)

    def _read_produce_body(
        self, request: PendingRequest, acks: list[int]
    ) -> Decoder[partial_decoders.ProduceSummary]:
        yield from self._read_header(PRODUCE, request.version)
        body = partial_decoders.produce_request(request.version, self._bounds.heads, acks)
        want = next(body)
        while True:
            data = (yield want) if want else b""
            known = len(acks)
            try:
                want = body.send(data)
            except StopIteration as done:
                summary: partial_decoders.ProduceSummary = done.value
                return summary
            finally:
                if len(acks) > known and acks[0] != 0:
                    self._add(request)

    def _read_fetch(self, request: PendingRequest, size: int) -> Decoder[None]:
        def body() -> Decoder[partial_decoders.FetchRequestSummary]:
            yield from self._read_header(FETCH, request.version)
            return (yield from partial_decoders.fetch_request(request.version, self._bounds.heads))

        summary, left = yield from within(body(), size)
        if summary is None:
            self.counts["undecodable"] += 1
        else:
            self._sink.put(events.FetchRequestSeen(self.connection, request.at, self._client_id, summary))
        yield from skip(left)

    # -- responses --------------------------------------------------------------------------------

    def _read_responses(self, stream: StreamTap) -> Reader:
        while not self.opaque:
            if self._rewrite is not None:
                stream.hold()
            size = int.from_bytes((yield 4), "big", signed=True)
            if self._is_opaque():  # since the previous response
                return
            if not 0 <= size <= MAX_FRAME:
                self._stop_observing(f"a response's length of {size} bytes", "lost_sync")
                return
            _, left = yield from within(self._read_response(stream, size), size)
            if self._rewrite is not None:
                stream.release()
            yield from skip(left)

    def _read_response(self, stream: StreamTap, size: int) -> Decoder[None]:
        if size < 4:
            if not self._in_flight.take_token():
                self.counts["undecodable"] += 1
            return
        head = yield 4
        request = self._in_flight.match(int.from_bytes(head, "big", signed=True), self.counts)
        if self._in_flight.lost:
            self._stop_observing("no response matches a request", "lost_sync")
        if request is None or request.is_token:
            return
        key, version = request.key, request.version
        self.counts["responses"] += 1
        now = self._clock()
        self.seconds[key] += max(0.0, now - request.at)
        if not _known(key, version):
            return
        if key in (PRODUCE, FETCH):
            yield from self._read_bulk(stream, request, now)
        elif key == SASL_HANDSHAKE:
            if version == 0 and (yield 2) != b"\0\0":
                self._sasl_tokens = False  # refused: there will be no tokens
        else:
            yield from self._read_captured(stream, request, head, size, now)

    def _read_bulk(self, stream: StreamTap, request: PendingRequest, now: float) -> Decoder[None]:
        key, version = request.key, request.version
        limit = self._bounds.heads if self._rewrite is None else _NO_LIMIT
        if self._rewrite is not None:
            stream.release()
        if messages.response_header_version(key, version):
            yield from tags()
        if key == FETCH:
            summary = yield from partial_decoders.fetch_response(version, limit)
            self._sink.put(events.FetchResponseSeen(self.connection, now, summary))
            complete = summary.complete and version >= _FETCH_ENDPOINTS
        elif self._rewrite is None:
            return
        else:
            complete = (
                yield from partial_decoders.produce_response(version, limit)
            ) and version >= _PRODUCE_ENDPOINTS
        if complete and self._rewrite is not None and (yield from varint()) and (yield 1) == b"\0":
            # The response names the new leaders of partitions. Hiding the addresses instead of rewriting
            # them keeps the length, so nothing is withheld; clients then summary for Metadata.
            stream.patch(partial_decoders.ENDPOINTS_HIDDEN)
            self.counts["hidden"] += 1

    def _read_captured(
        self, stream: StreamTap, request: PendingRequest, head: bytes, size: int, now: float
    ) -> Decoder[None]:
        key, version = request.key, request.version
        rewrite = self._rewrite if key in REWRITTEN_RESPONSES else None
        if rewrite is not None and size > self._bounds.rewrite:
            self.counts["rewrite_failed"] += 1
            rewrite = None
        wanted = key in CAPTURED_RESPONSES and self._reserve(size)
        if rewrite is None and self._rewrite is not None:
            stream.release()
        if rewrite is None and not wanted:
            return
        frame = head + (yield size - 4)
        if rewrite is not None:
            self._replace(stream, rewrite, frame, key, version)
        if wanted:
            self._put(events.ResponseCaptured(self.connection, now, request.number, key, version, frame))

    def _replace(self, stream: StreamTap, rewrite: Rewrite, frame: bytes, key: int, version: int) -> None:
        changed = rewrite(frame, key, version)
        if changed is None:
            self.counts["rewrite_failed"] += 1
            stream.release()
        else:
            self.counts["rewritten"] += 1
            stream.replace(changed)


def load_tables() -> None:
    """Load the message tables, which takes a tenth of a second, before the first request needs them."""
    for key in sorted(schema.keys()):
        _known(key, 0)
        messages.response_header_version(key, 0)


def _known(key: int, version: int) -> bool:
    name = schema.keys().get(key)
    return name is not None and version in messages.versions(f"{name}Request")
