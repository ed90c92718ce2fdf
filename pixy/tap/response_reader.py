"""Read the responses of one connection: match them with requests, have addresses changed, report events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pixy.tap import events, partial_decoders
from pixy.tap.apis import (
    API_VERSIONS,
    CAPTURED_RESPONSES,
    FETCH,
    FETCH_ENDPOINTS,
    MAX_FRAME,
    PRODUCE,
    PRODUCE_ENDPOINTS,
    REWRITTEN_RESPONSES,
    SASL_HANDSHAKE,
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    known,
)
from pixy.tap.in_flight import Passed, PendingRequest
from pixy.tap.primitives import Decoder, skip, tags, varint, within
from pixy.tap.share_decoders import ShareSummary, share_response
from pixy.tap.stream_tap import Reader, StreamTap
from pixy.wire import messages
from pixy.wire.varint import encode_unsigned

if TYPE_CHECKING:
    from pixy.tap.conversation import Conversation, Rewrite

_NO_LIMIT: Final = 1 << 31
_LEAST_ENDPOINT: Final = 12  # bytes of an array with one address, and of the tags behind it


class ResponseReader:
    """The reader of a connection's responses.

    Args:
        conversation: has the connection's state.
    """

    def __init__(self, conversation: Conversation) -> None:
        self._talk = conversation
        self._dumped: events.FrameSeen | None = None

    def read(self, stream: StreamTap) -> Reader:
        talk = self._talk
        while not talk.opaque:
            if talk.rewrite is not None:
                stream.hold()
            stream.boundary = True
            size = int.from_bytes((yield 4), "big", signed=True)
            if talk.is_opaque:  # since the previous response
                return
            if not 0 <= size <= MAX_FRAME:
                talk.stop_observing(f"a response's length of {size} bytes", "lost_sync")
                return
            talk.dump_from(stream)
            _, left = yield from within(self._read_response(stream, size), size)
            if talk.rewrite is not None:
                stream.release()
            yield from skip(left)
            talk.dump_to(stream, self._dumped)

    def _read_response(self, stream: StreamTap, size: int) -> Decoder[None]:
        talk = self._talk
        self._dumped = None
        if size < 4:
            if not talk.waiting.take_token():
                talk.counts["undecodable"] += 1
            return
        head = yield 4
        request = talk.waiting.match(int.from_bytes(head, "big", signed=True), talk.counts)
        if talk.waiting.lost:
            talk.stop_observing("no response matches a request", "lost_sync")
        if request is None or request.is_token:
            return
        key, version = request.key, request.version
        talk.counts["responses"] += 1
        now = talk.clock()
        talk.time_response(request, now)
        if talk.dump_rest(stream, key, version, size, header=4):
            self._dumped = events.FrameSeen(
                talk.connection, now, request.number, key, version, request.at, size
            )
        if not known(key, version) or (isinstance(request, Passed) and talk.fast.passes(request)):
            return
        if key in (PRODUCE, FETCH):
            yield from self._read_bulk(stream, request, now)
        elif key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            yield from self._read_share(stream, request, now, size - 4)
        elif key == SASL_HANDSHAKE:
            if version == 0 and (yield 2) != b"\0\0":
                talk.sasl_tokens = talk.token_due = False  # refused: there will be no tokens
        else:
            yield from self._read_captured(stream, request, head, size, now)

    def _read_bulk(self, stream: StreamTap, request: PendingRequest, now: float) -> Decoder[None]:
        talk = self._talk
        key, version = request.key, request.version
        limit = talk.bounds.heads if talk.rewrite is None else _NO_LIMIT
        if talk.rewrite is not None:
            stream.release()
        if messages.response_header_version(key, version):
            yield from tags()
        if key == FETCH:
            fetched = yield from partial_decoders.fetch_response(version, limit)
            talk.put(events.FetchResponseSeen(talk.connection, now, fetched, request.at))
            complete = fetched.complete and version >= FETCH_ENDPOINTS
        else:
            written = yield from partial_decoders.produce_response(version, limit)
            talk.put(events.ProduceAnswered(talk.connection, now, request.number, request.at, written))
            complete = written.complete and version >= PRODUCE_ENDPOINTS
        if complete and talk.rewrite is not None and (yield from varint()) and (yield 1) == b"\0":
            # The response names the new leaders of partitions. Hiding the addresses instead of rewriting
            # them keeps the length, so nothing is withheld; clients then ask for Metadata.
            stream.patch(partial_decoders.ENDPOINTS_HIDDEN)
            talk.counts["hidden"] += 1

    def _read_share(self, stream: StreamTap, request: PendingRequest, now: float, size: int) -> Decoder[None]:
        talk = self._talk
        if talk.rewrite is not None:
            stream.release()

        def body() -> Decoder[ShareSummary]:
            yield from tags()
            limit = talk.bounds.heads if talk.rewrite is None else _NO_LIMIT
            return (yield from share_response(request.version, limit, fetch=request.key == SHARE_FETCH))

        summary, left = yield from within(body(), size)
        if summary is None:
            talk.counts["undecodable"] += 1
        else:
            talk.put(events.ShareAnswered(talk.connection, now, request.number, request.key, summary))
            if talk.rewrite is not None and summary.complete and left > _LEAST_ENDPOINT:
                left -= yield from self._hide_endpoints(stream, left)
        yield from skip(left)

    def _hide_endpoints(self, stream: StreamTap, left: int) -> Decoder[int]:
        """Make the array of addresses at the end of a share response empty, and keep the response's length.

        The addresses become the value of an unknown tagged field, which clients skip; they then ask for Metadata.

        Args:
            stream: the response, before the array.
            left: bytes until the end of the response.

        Returns:
            The number of bytes read.
        """
        talk = self._talk
        if (yield 1) == b"\1":
            return 1
        stream.patch(1)
        # one field, its tag, and the size of all that follows
        size = left - 4 if left - 4 < 0x80 else left - 5 if left - 5 < 0x4000 else left - 6
        written = bytes([1, partial_decoders.ENDPOINTS_HIDDEN]) + encode_unsigned(size)
        for byte in written:
            yield 1
            stream.patch(byte)
        talk.counts["hidden"] += 1
        return 1 + len(written)

    def _read_captured(
        self, stream: StreamTap, request: PendingRequest, head: bytes, size: int, now: float
    ) -> Decoder[None]:
        talk = self._talk
        key, version = request.key, request.version
        rewrite = talk.rewrite if key in REWRITTEN_RESPONSES else None
        if rewrite is not None and size > talk.bounds.rewrite:
            talk.counts["rewrite_failed"] += 1
            rewrite = None
        wanted = key in CAPTURED_RESPONSES and talk.reserve(size)
        if rewrite is None and talk.rewrite is not None:
            stream.release()
        if rewrite is None and not wanted:
            return
        frame = head + (yield size - 4)
        if rewrite is not None:
            self._replace(stream, rewrite, frame, key, version)
        if wanted:
            talk.put_captured(
                events.ResponseCaptured(talk.connection, now, request.number, key, version, frame)
            )

    def _replace(self, stream: StreamTap, rewrite: Rewrite, frame: bytes, key: int, version: int) -> None:
        talk = self._talk
        changed = rewrite(frame, key, version)
        if changed is None:
            talk.counts["rewrite_failed"] += 1
            stream.release()
        else:
            talk.counts["rewritten"] += key != API_VERSIONS or changed[4:] != frame
            stream.replace(changed)


__all__ = ["ResponseReader"]
