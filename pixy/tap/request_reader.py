"""Read the requests of one connection: decode what is needed and report events.

SASL tokens and SaslAuthenticate frames are skipped, never read. Frames that the observer does not need are skipped too.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pixy.tap import events, partial_decoders
from pixy.tap.apis import CAPTURED_REQUESTS, FETCH, MAX_FRAME, PRODUCE, SASL_HANDSHAKE, known
from pixy.tap.in_flight import SASL_TOKEN, PendingRequest
from pixy.tap.primitives import Decoder, skip, tags, within
from pixy.tap.stream_tap import Reader, StreamTap
from pixy.wire import messages

if TYPE_CHECKING:
    from pixy.tap.conversation import Conversation


class RequestReader:
    """The reader of a connection's requests.

    Args:
        conversation: has the connection's state.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self._dumped: events.FrameSeen | None = None

    def read(self, stream: StreamTap) -> Reader:
        talk = self._talk
        first = True
        while not talk.opaque:
            stream.boundary = not first and not talk.sasl_tokens
            head = yield 4
            if first and head[:2] == b"\x16\x03":
                talk.stop_observing("TLS", "tls")
                return
            first = False
            size = int.from_bytes(head, "big", signed=True)
            if not 0 <= size <= MAX_FRAME:
                talk.stop_observing(f"a request's length of {size} bytes", "lost_sync")
                return
            talk.dump_from(stream)
            _, left = yield from within(self._read_request(stream, size), size)
            yield from skip(left)
            talk.dump_to(stream, self._dumped)

    def _read_request(self, stream: StreamTap, size: int) -> Decoder[None]:
        talk = self._talk
        talk.number += 1
        self._dumped = None
        if size < 8:
            if talk.sasl_tokens:
                self._add_token()
            else:
                talk.counts["undecodable"] += 1
            return
        head = yield 8
        key, version, correlation_id = struct.unpack(">hhi", head)
        is_known = known(key, version)
        if talk.sasl_tokens:
            if not is_known or talk.token_due:
                talk.dump_rest(stream, SASL_TOKEN, 0, size)
                self._add_token()
                return
            talk.sasl_tokens = False
        talk.counts["requests"] += 1
        if len(talk.requests) < 1_000 or (key, version) in talk.requests:
            talk.requests[key, version] += 1
        request = PendingRequest(
            key, version, correlation_id, talk.number, talk.asked_at(), talk.queueing.waited
        )
        if talk.dump_rest(stream, key, version, size):
            self._dumped = events.FrameSeen(
                talk.connection, request.at, request.number, key, version, size=size
            )
        if key == PRODUCE and is_known:
            yield from self._read_produce(request, size - 8)
            return
        talk.add(request)
        if not is_known:
            talk.counts["unknown"] += 1
        elif key == FETCH:
            yield from self._read_fetch(request, size - 8)
        elif key == SASL_HANDSHAKE:
            talk.sasl_tokens = talk.token_due = version == 0
        elif key in CAPTURED_REQUESTS and talk.reserve(size):
            frame = head + (yield size - 8)
            talk.put_captured(
                events.RequestCaptured(talk.connection, request.at, request.number, key, version, frame)
            )

    def _add_token(self) -> None:
        talk = self._talk
        talk.token_due = False
        talk.add(PendingRequest(SASL_TOKEN, 0, 0, talk.number, talk.clock()))

    def _read_header(self, key: int, version: int) -> Decoder[None]:
        talk = self._talk
        count = int.from_bytes((yield 2), "big", signed=True)
        if count >= 0:
            talk.client_id = (yield count).decode("utf-8", "replace")
        yield from tags(messages.request_header_version(key, version) == 2)

    def _read_produce(self, request: PendingRequest, size: int) -> Decoder[None]:
        talk = self._talk
        talk.fast.read_produce()
        acks: list[int] = []
        summary, left = yield from within(self._read_produce_body(request, acks), size)
        if not acks:  # the body ends before the acks: the broker answers such a request with an error
            talk.add(request)
        if summary is None:
            talk.counts["undecodable"] += 1
        else:
            talk.put(events.ProduceSeen(talk.connection, request.at, talk.client_id, summary, request.number))
        yield from skip(left)

    def _read_produce_body(
        self, request: PendingRequest, acks: list[int]
    ) -> Decoder[partial_decoders.ProduceSummary]:
        talk = self._talk
        yield from self._read_header(PRODUCE, request.version)
        body = partial_decoders.produce_request(request.version, talk.bounds.heads, acks)
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
                    talk.add(request)

    def _read_fetch(self, request: PendingRequest, size: int) -> Decoder[None]:
        talk = self._talk

        def body() -> Decoder[partial_decoders.FetchRequestSummary]:
            yield from self._read_header(FETCH, request.version)
            return (yield from partial_decoders.fetch_request(request.version, talk.bounds.heads))

        summary, left = yield from within(body(), size)
        if summary is None:
            talk.counts["undecodable"] += 1
        else:
            talk.max_wait = summary.max_wait / 1000
            talk.put(events.FetchRequestSeen(talk.connection, request.at, talk.client_id, summary))
        yield from skip(left)


__all__ = ["RequestReader"]
