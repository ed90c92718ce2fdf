"""Frames of HTTP/2, for gRPC clients that do not behave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.integration.edge.raw import Raw
from tests.support import Daemon

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, GOAWAY = 0, 1, 4, 6, 7
END_STREAM, ACK, END_HEADERS = 1, 1, 4


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Make a frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def begin(stream: int, method: str, metadata: Sequence[tuple[str, str]] = (), *, end: bool = False) -> bytes:
    """The frame that begins a call, such as of ``/KafkaPixy/Produce``."""
    sent = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "localhost")]
    sent += [("te", "trailers"), ("content-type", "application/grpc"), *metadata]
    # Literals without indexing (RFC 7541, section 6.2.2), all shorter than 127 bytes.
    block = b"".join(b"\0%c%b%c%b" % (len(n), n.encode(), len(v), v.encode()) for n, v in sent)
    return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)


def message(raw: bytes, size: int | None = None) -> bytes:
    """A message of a call, or its beginning if ``size`` is larger."""
    return b"\0" + (len(raw) if size is None else size).to_bytes(4, "big") + raw


class Http2:
    """A connection to the gRPC listener."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    @classmethod
    async def to(cls, daemon: Daemon, settings: bytes = b"") -> Http2:
        """Connect, and wait until the daemon's SETTINGS have come."""
        made = cls(await Raw.to(daemon, "grpc"))
        await made.send(PREFACE + frame(SETTINGS, payload=settings))
        await made.next(SETTINGS)
        await made.send(frame(SETTINGS, ACK))
        return made

    async def send(self, data: bytes) -> None:
        """Send frames."""
        await self._raw.send(data)

    async def next(self, kind: int, stream: int = 0) -> bytes:
        """The payload of the next frame of a kind; others are skipped. Fails after 20 s."""
        async with asyncio.timeout(20):
            while True:
                head = await self._raw._reader.readexactly(9)
                payload = await self._raw._reader.readexactly(int.from_bytes(head[:3], "big"))
                if head[3] == kind and int.from_bytes(head[5:], "big") == stream:
                    return payload

    def close(self) -> None:
        """End it."""
        self._raw.close()


__all__ = [
    "ACK",
    "DATA",
    "GOAWAY",
    "HEADERS",
    "PING",
    "PREFACE",
    "SETTINGS",
    "Http2",
    "begin",
    "frame",
    "message",
]
