"""gRPC's framing of messages: five bytes in front of each (PROTOCOL-HTTP2 of gRPC, Length-Prefixed-Message). Pure."""

from __future__ import annotations

import zlib
from typing import Final

PREFIX: Final = 5
_GZIP: Final = 31
"""zlib's window bits for a gzip member."""
_ENCODINGS: Final = {"gzip": _GZIP, "deflate": zlib.MAX_WBITS}


class BadFrame(Exception):
    """A frame that cannot be read; ``too_large`` says why."""

    def __init__(self, text: str, *, too_large: bool = False, unknown: bool = False) -> None:
        super().__init__(text)
        self.too_large = too_large
        self.unknown = unknown
        """True if the message has an encoding that is not known here."""


class Frames:
    """Splits the body of a call into messages.

    Args:
        most: bytes of the largest message, also when it is decompressed.
        encoding: the value of ``grpc-encoding``.
    """

    __slots__ = ("_arrived", "_encoding", "_most")

    def __init__(self, most: int, encoding: str = "identity") -> None:
        self._most = most
        self._encoding = encoding
        self._arrived = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._arrived += data

    def next(self) -> bytes | None:
        """Return the next message; None: it has not arrived yet. Raises BadFrame."""
        arrived = self._arrived
        if len(arrived) < PREFIX:
            return None
        size = int.from_bytes(arrived[1:PREFIX], "big")
        if size > self._most:
            raise BadFrame(
                f"Received message larger than max ({size} vs. {self._most})",
                too_large=True,
            )
        end = PREFIX + size
        if len(arrived) < end:
            return None
        compressed, message = arrived[0], bytes(memoryview(arrived)[PREFIX:end])
        del arrived[:end]
        return self._plain(message) if compressed else message

    @property
    def unfinished(self) -> bool:
        """True if a part of a message has arrived."""
        return bool(self._arrived)

    def _plain(self, message: bytes) -> bytes:
        bits = _ENCODINGS.get(self._encoding)
        if bits is None:
            raise BadFrame(f"the encoding {self._encoding} is not known: use gzip or deflate", unknown=True)
        unpacker = zlib.decompressobj(bits)
        try:
            plain = unpacker.decompress(message, self._most + 1)
        except zlib.error:
            raise BadFrame(f"malformed request: not {self._encoding}") from None
        if len(plain) > self._most:
            raise BadFrame(f"Received message larger than max ({self._most})", too_large=True)
        if not unpacker.eof:
            raise BadFrame(f"malformed request: not {self._encoding}")
        return plain


def framed(message: bytes) -> bytes:
    """Return a message as it is sent, not compressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


__all__ = ["PREFIX", "BadFrame", "Frames", "framed"]
