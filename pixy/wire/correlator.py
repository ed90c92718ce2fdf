"""Which request a response answers: responses say neither their API nor their version.

A broker answers the requests of a connection in their order, so the requests that wait form a queue.
Three things disturb it: Produce with acks=0 is never answered; after SaslHandshake v0 come tokens
without any header; and a reader may have come late.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final

from pixy.wire import messages
from pixy.wire.exceptions import DecodeError, TruncatedError, UnsupportedVersionError, WireError
from pixy.wire.frames import RequestHeader, decode_request_header
from pixy.wire.varint import decode_unsigned

MAX_IN_FLIGHT: Final = 10_000
"""Requests of one connection that may wait for an answer."""

PRODUCE: Final = 0
SASL_HANDSHAKE: Final = 17


@dataclass(frozen=True, slots=True)
class Token:
    """A frame that is a SASL token and nothing else, as after SaslHandshake v0. Not to be logged."""

    size: int


class Correlator:
    """The queue of one connection. See both directions' frames through it, in the order they come."""

    def __init__(self, limit: int = MAX_IN_FLIGHT) -> None:
        self.limit = limit
        self._waiting: deque[RequestHeader | Token] = deque()
        self._tokens = False  # between SaslHandshake v0 and the first request after it

    def __len__(self) -> int:
        """Requests that wait for an answer."""
        return len(self._waiting)

    def request(self, frame: messages.Buffer) -> RequestHeader | Token:
        """A frame to the broker: its header, or that it is a SASL token.

        Raises DecodeError for what is no request, WireError if too many wait.
        """
        if len(self._waiting) >= self.limit:
            raise WireError(f"more than {self.limit} requests wait for an answer")
        if self._tokens:
            if not _known(frame):
                token = Token(len(frame))
                self._waiting.append(token)
                return token
            self._tokens = False
        header = decode_request_header(frame)
        if header.key == PRODUCE and produce_acks(frame, header) == 0:
            return header
        if header.key == SASL_HANDSHAKE and header.version == 0:
            self._tokens = True
        self._waiting.append(header)
        return header

    def response(self, frame: messages.Buffer) -> RequestHeader | Token:
        """A frame from the broker: the header of the request that it answers.

        Raises DecodeError if nothing waits, or something else does.
        """
        waiting = self._waiting
        if not waiting:
            raise DecodeError("a response that nothing waits for", 0)
        if isinstance(waiting[0], Token):
            # A mechanism may leave its last token without an answer.
            if len(frame) < 4 or not any(_answers(frame, each) for each in waiting):
                return waiting.popleft()
            while not _answers(frame, waiting[0]):
                waiting.popleft()
        head = waiting[0]
        if len(frame) < 4:
            raise TruncatedError("ResponseHeader: the message ends", len(frame))
        if isinstance(head, Token) or not _answers(frame, head):
            found = int.from_bytes(frame[:4], "big", signed=True)
            due = head.correlation_id if isinstance(head, RequestHeader) else None
            raise DecodeError(f"response with correlation id {found} where {due} is due", 0)
        waiting.popleft()
        if head.key == SASL_HANDSHAKE and head.version == 0 and bytes(frame[4:6]) != b"\0\0":
            self._tokens = False  # refused: there will be no tokens
        return head

    def clear(self) -> None:
        """Forget everything, as when the connection is closed."""
        self._waiting.clear()
        self._tokens = False


def produce_acks(frame: messages.Buffer, header: RequestHeader) -> int | None:
    """The ``Acks`` of a ProduceRequest, without decoding the rest; None if it is cut."""
    pos = header.end
    try:
        if header.version >= 9:
            length, pos = decode_unsigned(frame, pos)
            pos += max(length - 1, 0)
        elif header.version >= 3:
            (length,) = struct.unpack_from(">h", frame, pos)
            pos += 2 + max(length, 0)
        (acks,) = struct.unpack_from(">h", frame, pos)
    except (DecodeError, struct.error):
        return None
    return int(acks)


def _answers(frame: messages.Buffer, waiting: RequestHeader | Token) -> bool:
    return isinstance(waiting, RequestHeader) and (
        int.from_bytes(frame[:4], "big", signed=True) == waiting.correlation_id
    )


def _known(frame: messages.Buffer) -> bool:
    """Whether a frame begins like a request: no token of any mechanism in use does.

    PLAIN begins with a null and text, SCRAM with text, GSSAPI with 0x60 or 0x05 0x04.
    """
    if len(frame) < 8:
        return False
    key, version = struct.unpack_from(">hh", frame)
    try:
        return version in messages.versions(messages.request_name(key))
    except UnsupportedVersionError:
        return False
