"""LZ4 frames, as Java's reader takes them."""

from __future__ import annotations

import lz4.frame

from pixy.wire.compression import Codec
from pixy.wire.compression.streams import decompress_frames
from pixy.wire.exceptions import EncodeError


class Lz4:
    """One frame out, with independent blocks of 64 KiB: Java's reader refuses linked ones, and stops after a frame."""

    codec = Codec.LZ4

    def __init__(self, level: int | None = None) -> None:
        if (
            level is not None
            and not lz4.frame.COMPRESSIONLEVEL_MIN <= level <= lz4.frame.COMPRESSIONLEVEL_MAX
        ):
            raise EncodeError(f"lz4 has levels 0 to {lz4.frame.COMPRESSIONLEVEL_MAX}, not {level}")
        self._level = 0 if level is None else level

    def compress(self, data: bytes, /) -> bytes:
        """One frame, without checksum and content size, as Java writes it."""
        return bytes(
            lz4.frame.compress(
                data,
                compression_level=self._level,
                block_linked=False,
                store_size=False,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
            )
        )

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """All frames, linked blocks too."""
        return decompress_frames(lz4.frame.LZ4FrameDecompressor, (RuntimeError, EOFError), data, max_size)


make = Lz4
