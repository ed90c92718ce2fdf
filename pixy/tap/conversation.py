"""Both directions of a connection, frame by frame: which answer belongs to which request, and what is worth a look.

A broker answers in the order of requests, but for Produce with acks=0, which it never answers, and for the raw
tokens after SaslHandshake v0, which have no header. Tokens and SaslAuthenticate are never looked into.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from pixy.tap import events, partial_decoders
from pixy.tap.config import Bounds
from pixy.tap.primitives import Pull, skip, tags, varint, within
from pixy.tap.stream_tap import Reader, Tape
from pixy.wire import messages, schema

MAX_FRAME: Final = 1 << 30
"""A length beyond this is no Kafka: nothing of that connection is looked into from there on."""

MAX_STRAYS: Final = 1_000
"""Responses in a row that match no request, after which a connection is not looked into any more."""

PRODUCE, FETCH, SASL_HANDSHAKE = 0, 1, 17
ASKED: Final = frozenset({2, 8, 9, 11, 12, 13, 14, 18, 68})
"""API keys whose requests the observer reads."""
ANSWERED: Final = frozenset({2, 3, 8, 9, 11, 12, 13, 14, 18, 19, 68, 75})
"""API keys whose responses the observer reads."""
REWRITTEN: Final = frozenset({3, 10, 60})
"""API keys whose answers name brokers: Metadata, FindCoordinator, DescribeCluster."""
_PRODUCE_ENDPOINTS, _FETCH_ENDPOINTS = 10, 16  # versions from which answers have brokers' addresses
_ALL: Final = 1 << 31


class Sink(Protocol):
    """Where events go."""

    def put(self, event: events.Event) -> None:
        """Take an event; may drop it."""

    def reserve(self, size: int) -> bool:
        """Keep room for a frame of that many bytes, if there is any; the event that brings it uses it."""

    def unreserve(self, size: int) -> None:
        """Give room back: the frame will not come."""


class Waiting(NamedTuple):
    """A request that waits for its answer; ``key`` is -1 for a SASL token."""

    key: int
    version: int
    correlation_id: int
    number: int
    at: float


Rewrite = Callable[[bytes, int, int], bytes | None]
"""(response without its length, API key, version) to the frame with its length, or None to leave it as it is."""


class Conversation:
    """Reads what passes on one connection: feed ``to_broker`` and ``to_client``."""

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
        """Why the connection is not looked into any more."""
        self.counts: Counter[str] = Counter()
        self.requests: Counter[tuple[int, int]] = Counter()
        self.seconds: defaultdict[int, float] = defaultdict(float)
        self._reserved = 0
        self._strays = 0  # responses in a row that nobody waits for
        self._sink, self._clock, self._bounds, self._rewrite = sink, clock, bounds, rewrite
        self._waiting: deque[Waiting] = deque()
        self._number = 0
        self._tokens = False  # between SaslHandshake v0 and the first request after it
        self._client_id = ""
        self.to_broker = Tape(self._read_requests, self._failed)
        self.to_client = Tape(self._read_responses, self._failed)

    @property
    def in_flight(self) -> int:
        """Requests that wait for an answer."""
        return len(self._waiting)

    def tally(self) -> events.Tally | None:
        """What has passed since the last call, if anything has."""
        if not self.counts:
            return None
        found = events.Tally(self.connection, self._clock(), self.counts, self.requests, self.seconds)
        self.counts, self.requests, self.seconds = Counter(), Counter(), defaultdict(float)
        return found

    def close(self) -> None:
        """Nothing more will come."""
        self._sink.unreserve(self._reserved)
        self._reserved = 0

    def _blind(self, reason: str, counter: str) -> None:
        self.counts[counter] += 1
        if not self.opaque:
            self.opaque = reason
            self._waiting.clear()
            self._sink.put(events.Opaque(self.connection, self._clock(), reason))

    def _is_opaque(self) -> bool:
        return bool(self.opaque)

    def _failed(self, error: Exception) -> None:
        self._blind(f"a defect of the tap: {error!r}", "defects")

    # -- requests ---------------------------------------------------------------------------------

    def _read_requests(self, tape: Tape) -> Reader:
        first = True
        while not self.opaque:
            head = yield 4
            if first and head[:2] == b"\x16\x03":
                self._blind("TLS", "tls")
                return
            first = False
            size = int.from_bytes(head, "big", signed=True)
            if not 0 <= size <= MAX_FRAME:
                self._blind(f"a request's length of {size} bytes", "lost_sync")
                return
            _, left = yield from within(self._request(size), size)
            yield from skip(left)

    def _request(self, size: int) -> Pull[None]:
        self._number += 1
        if size < 8:
            if self._tokens:
                self._wait(Waiting(-1, 0, 0, self._number, self._clock()))
            else:
                self.counts["undecodable"] += 1
            return
        head = yield 8
        key, version = (
            int.from_bytes(head[:2], "big", signed=True),
            int.from_bytes(head[2:4], "big", signed=True),
        )
        known = _known(key, version)
        if self._tokens:
            if not known:
                self._wait(Waiting(-1, 0, 0, self._number, self._clock()))
                return
            self._tokens = False
        self.counts["requests"] += 1
        if len(self.requests) < 1_000 or (key, version) in self.requests:
            self.requests[key, version] += 1
        waiting = Waiting(
            key, version, int.from_bytes(head[4:], "big", signed=True), self._number, self._clock()
        )
        if key == PRODUCE and known:
            yield from self._produce(waiting, size - 8)
            return
        self._wait(waiting)
        if not known:
            self.counts["unknown"] += 1
        elif key == FETCH:
            yield from self._fetch(waiting, size - 8)
        elif key == SASL_HANDSHAKE:
            self._tokens = version == 0
        elif key in ASKED and self._room(size):
            frame = head + (yield size - 8)
            self._put(events.Asked(self.connection, waiting.at, waiting.number, key, version, frame))

    def _wait(self, waiting: Waiting) -> None:
        if len(self._waiting) >= self._bounds.in_flight:
            self._waiting.popleft()
            self.counts["unanswered"] += 1
        self._waiting.append(waiting)

    def _room(self, size: int) -> bool:
        if size > self._bounds.capture:
            self.counts["too_large"] += 1
            return False
        if not self._sink.reserve(size):
            self.counts["not_observed"] += 1
            return False
        self._reserved += size
        return True

    def _put(self, event: events.Asked | events.Answered) -> None:
        self._reserved -= len(event.frame)
        self._sink.put(event)

    def _header(self, key: int, version: int) -> Pull[None]:
        count = int.from_bytes((yield 2), "big", signed=True)
        if count >= 0:
            self._client_id = (yield count).decode("utf-8", "replace")
        yield from tags(messages.request_header_version(key, version) == 2)

    def _produce(self, waiting: Waiting, size: int) -> Pull[None]:
        acks: list[int] = []
        head, left = yield from within(self._produce_body(waiting, acks), size)
        if not acks:  # cut before them: such a request is answered, with an error
            self._wait(waiting)
        if head is None:
            self.counts["undecodable"] += 1
        else:
            self._sink.put(events.Produced(self.connection, waiting.at, self._client_id, head))
        yield from skip(left)

    def _produce_body(self, waiting: Waiting, acks: list[int]) -> Pull[partial_decoders.ProduceHead]:
        yield from self._header(PRODUCE, waiting.version)
        body = partial_decoders.produce_request(waiting.version, self._bounds.heads, acks)
        want = next(body)
        while True:
            data = (yield want) if want else b""
            known = len(acks)
            try:
                want = body.send(data)
            except StopIteration as done:
                head: partial_decoders.ProduceHead = done.value
                return head
            finally:
                if len(acks) > known and acks[0] != 0:
                    self._wait(waiting)

    def _fetch(self, waiting: Waiting, size: int) -> Pull[None]:
        def body() -> Pull[partial_decoders.FetchAsk]:
            yield from self._header(FETCH, waiting.version)
            return (yield from partial_decoders.fetch_request(waiting.version, self._bounds.heads))

        ask, left = yield from within(body(), size)
        if ask is None:
            self.counts["undecodable"] += 1
        else:
            self._sink.put(events.FetchAsked(self.connection, waiting.at, self._client_id, ask))
        yield from skip(left)

    # -- responses --------------------------------------------------------------------------------

    def _read_responses(self, tape: Tape) -> Reader:
        while not self.opaque:
            if self._rewrite is not None:
                tape.hold()
            size = int.from_bytes((yield 4), "big", signed=True)
            if self._is_opaque():  # since the request before
                return
            if not 0 <= size <= MAX_FRAME:
                self._blind(f"a response's length of {size} bytes", "lost_sync")
                return
            _, left = yield from within(self._response(tape, size), size)
            if self._rewrite is not None:
                tape.release()
            yield from skip(left)

    def _response(self, tape: Tape, size: int) -> Pull[None]:
        if size < 4:
            if self._waiting and self._waiting[0].key < 0:
                self._waiting.popleft()
            else:
                self.counts["undecodable"] += 1
            return
        head = yield 4
        waiting = self._match(int.from_bytes(head, "big", signed=True))
        if waiting is None or waiting.key < 0:
            return
        key, version = waiting.key, waiting.version
        self.counts["responses"] += 1
        now = self._clock()
        self.seconds[key] += max(0.0, now - waiting.at)
        if not _known(key, version):
            return
        if key in (PRODUCE, FETCH):
            yield from self._bulk(tape, waiting, now)
        elif key == SASL_HANDSHAKE:
            if version == 0 and (yield 2) != b"\0\0":
                self._tokens = False  # refused: there will be no tokens
        else:
            yield from self._captured(tape, waiting, head, size, now)

    def _match(self, correlation_id: int) -> Waiting | None:
        waiting = self._waiting
        if waiting and waiting[0].key >= 0 and waiting[0].correlation_id == correlation_id:
            return waiting.popleft()
        # Tokens may go without an answer at the end, and a request's place may have been given up.
        place = next(
            (i for i, w in enumerate(waiting) if w.key >= 0 and w.correlation_id == correlation_id), None
        )
        if place is None:
            if waiting and waiting[0].key < 0:
                return waiting.popleft()
            self.counts["unmatched"] += 1
            self._strays += 1
            if self._strays >= MAX_STRAYS:
                self._blind("no answer matches a request", "lost_sync")
            return None
        self._strays = 0
        for _ in range(place):
            if waiting.popleft().key >= 0:
                self.counts["unanswered"] += 1
        return waiting.popleft()

    def _bulk(self, tape: Tape, waiting: Waiting, now: float) -> Pull[None]:
        key, version = waiting.key, waiting.version
        limit = self._bounds.heads if self._rewrite is None else _ALL
        if self._rewrite is not None:
            tape.release()
        if messages.response_header_version(key, version):
            yield from tags()
        if key == FETCH:
            head = yield from partial_decoders.fetch_response(version, limit)
            self._sink.put(events.Fetched(self.connection, now, head))
            whole = head.whole and version >= _FETCH_ENDPOINTS
        elif self._rewrite is None:
            return
        else:
            whole = (
                yield from partial_decoders.produce_response(version, limit)
            ) and version >= _PRODUCE_ENDPOINTS
        if whole and self._rewrite is not None and (yield from varint()) and (yield 1) == b"\0":
            # The brokers' own addresses, for clients whose partition has moved. They are put out of
            # sight and not rewritten, so that nothing has to be withheld: clients then ask Metadata.
            tape.patch(partial_decoders.ENDPOINTS_HIDDEN)
            self.counts["hidden"] += 1

    def _captured(self, tape: Tape, waiting: Waiting, head: bytes, size: int, now: float) -> Pull[None]:
        key, version = waiting.key, waiting.version
        rewrite = self._rewrite if key in REWRITTEN else None
        if rewrite is not None and size > self._bounds.rewrite:
            self.counts["rewrite_failed"] += 1
            rewrite = None
        wanted = key in ANSWERED and self._room(size)
        if rewrite is None and self._rewrite is not None:
            tape.release()
        if rewrite is None and not wanted:
            return
        frame = head + (yield size - 4)
        if rewrite is not None:
            self._replace(tape, rewrite, frame, key, version)
        if wanted:
            self._put(events.Answered(self.connection, now, waiting.number, key, version, frame))

    def _replace(self, tape: Tape, rewrite: Rewrite, frame: bytes, key: int, version: int) -> None:
        changed = rewrite(frame, key, version)
        if changed is None:
            self.counts["rewrite_failed"] += 1
            tape.release()
        else:
            self.counts["rewritten"] += 1
            tape.replace(changed)


def warm_up() -> None:
    """Read the tables of messages, which takes a tenth of a second, before the first request waits for it."""
    for key in sorted(schema.keys()):
        _known(key, 0)
        messages.response_header_version(key, 0)


def _known(key: int, version: int) -> bool:
    name = schema.keys().get(key)
    return name is not None and version in messages.versions(f"{name}Request")
