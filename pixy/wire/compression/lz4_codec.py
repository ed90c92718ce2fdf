"""LZ4 frames that Java's client can read."""

from __future__ import annotations

import lz4.frame

from pixy.wire.compression import Codec
from pixy.wire.compression.streams import decompress_frames
from pixy.wire.exceptions import EncodeError


class Lz4:
    """Writes one frame of independent 64 KiB blocks; reads any number of frames, with linked blocks too.

    Java's reader refuses linked blocks and stops after the first frame.
    """

    codec = Codec.LZ4

    def __init__(self, level: int | None = None) -> None:
        if (
            level is not None
            and not lz4.frame.COMPRESSIONLEVEL_MIN <= level <= lz4.frame.COMPRESSIONLEVEL_MAX
        ):
            raise EncodeError(f"lz4 has levels 0 to {lz4.frame.COMPRESSIONLEVEL_MAX}, not {level}")
        self._level = 0 if level is None else level

    def compress(self, data: bytes, /) -> bytes:
        """Compress to one frame without checksum and content size, as Java does."""
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
        """Decompress all frames. Raises DecodeError."""
        return decompress_frames(lz4.frame.LZ4FrameDecompressor, (RuntimeError, EOFError), data, max_size)


make = Lz4
