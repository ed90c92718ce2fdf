"""Zstandard (RFC 8878), with the standard library's module or its backport."""

from __future__ import annotations

import sys

from pixy.wire.compression import Codec
from pixy.wire.compression.streams import decompress_frames
from pixy.wire.exceptions import EncodeError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class Zstd:
    """Writes one frame; reads any number of frames, with or without content size."""

    codec = Codec.ZSTD

    def __init__(self, level: int | None = None) -> None:
        least, most = zstd.CompressionParameter.compression_level.bounds()
        if level is not None and not least <= level <= most:
            raise EncodeError(f"zstd has levels {least} to {most}, not {level}")
        self._level = zstd.COMPRESSION_LEVEL_DEFAULT if level is None else level

    def compress(self, data: bytes, /) -> bytes:
        """Compress to one frame."""
        return zstd.compress(data, self._level)

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """Decompress all frames. Raises DecodeError, also for a window above 128 MiB, zstd's default limit."""
        return decompress_frames(zstd.ZstdDecompressor, (zstd.ZstdError, EOFError), data, max_size)


make = Zstd
