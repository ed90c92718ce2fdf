"""gzip (RFC 1952), with the standard library."""

from __future__ import annotations

import zlib

from pixy.wire.compression import Codec
from pixy.wire.compression.streams import decompress_frames
from pixy.wire.exceptions import EncodeError

_GZIP = 16 + zlib.MAX_WBITS


class _Member:
    """zlib's decompressor with the interface of the newer ones: it keeps unconsumed input itself."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(_GZIP)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._zlib.decompress(data or self._zlib.unconsumed_tail, max_length)


class Gzip:
    """Writes one member without a timestamp; reads any number of members."""

    codec = Codec.GZIP

    def __init__(self, level: int | None = None) -> None:
        if level is not None and not -1 <= level <= 9:
            raise EncodeError(f"gzip has levels 0 to 9, not {level}")
        self._level = -1 if level is None else level

    def compress(self, data: bytes, /) -> bytes:
        """Compress to one gzip member."""
        stream = zlib.compressobj(self._level, zlib.DEFLATED, _GZIP)
        return stream.compress(data) + stream.flush()

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """Decompress all members. Raises DecodeError."""
        return decompress_frames(_Member, (zlib.error,), data, max_size)


make = Gzip
