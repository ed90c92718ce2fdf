"""Match responses to requests, because a response names neither its API nor its version.

A broker answers the requests of a connection in order, so the unanswered requests form a queue. Three cases break the
order: Produce with acks=0 is never answered; tokens without a header follow SaslHandshake v0; and a reader may have
started in the middle of a connection.
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
"""Default limit for the unanswered requests of one connection."""

PRODUCE: Final = 0
SASL_HANDSHAKE: Final = 17


@dataclass(frozen=True, slots=True)
class Token:
    """A frame that is a bare SASL token, as after SaslHandshake v0. Never log its bytes."""

    size: int


class Correlator:
    """The unanswered requests of one connection. Pass it the frames of both directions in order of arrival.

    Args:
        limit: largest number of unanswered requests.
    """

    def __init__(self, limit: int = MAX_IN_FLIGHT) -> None:
        self.limit = limit
        self._waiting: deque[RequestHeader | Token] = deque()
        self._tokens = False  # True between SaslHandshake v0 and the next request

    def __len__(self) -> int:
        """Return the number of unanswered requests."""
        return len(self._waiting)

    def request(self, frame: messages.Buffer) -> RequestHeader | Token:
        """Take a frame sent to the broker; return its header, or that it is a SASL token.

        Raises:
            DecodeError: the frame is no request.
            WireError: too many requests are unanswered.
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
        """Take a frame sent by the broker; return the header of the request that it answers.

        Raises:
            DecodeError: no request is unanswered, or the oldest has another correlation id.
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
            self._tokens = False  # refused: no tokens follow
        return head

    def clear(self) -> None:
        """Forget all requests, as when the connection is closed."""
        self._waiting.clear()
        self._tokens = False


def produce_acks(frame: messages.Buffer, header: RequestHeader) -> int | None:
    """Return the ``Acks`` of a ProduceRequest without decoding the rest.

    Args:
        frame: the request, without its length.
        header: the request's decoded header.

    Returns:
        -1, 0 or 1, or None if the frame is cut off.
    """
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
    """Tell whether a frame begins like a request, which no token of a mechanism in use does.

    PLAIN tokens begin with a null and text, SCRAM's with text, GSSAPI's with 0x60 or 0x05 0x04.
    """
    if len(frame) < 8:
        return False
    key, version = struct.unpack_from(">hh", frame)
    try:
        return version in messages.versions(messages.request_name(key))
    except UnsupportedVersionError:
        return False
