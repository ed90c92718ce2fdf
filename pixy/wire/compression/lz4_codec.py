"""LZ4 frames that Java's client can read."""

from __future__ import annotations

import struct
from typing import Final

import lz4.frame

from pixy.wire.compression import Codec
from pixy.wire.compression.streams import decompress_frames
from pixy.wire.exceptions import EncodeError

_MAGIC: Final = b"\x04\x22\x4d\x18"
_SHORTEST: Final = 7
_CONTENT_SIZE, _DICTIONARY = 0x08, 0x01  # bits of the frame's flags
_MASK: Final = 0xFFFFFFFF
_PRIMES: Final = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


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


def with_right_checksum(data: bytes) -> bytes:
    """Return a frame with the checksum of its header set right.

    Messages of magic 0 have a wrong one: Kafka up to 0.9 computed it over the frame's magic number as well (KAFKA-3160),
    and brokers keep writing it for them. So their checksum is not looked at, as in Java's client.
    """
    if len(data) < _SHORTEST or not data.startswith(_MAGIC):
        return data
    flags = data[4]
    at = 6 + (8 if flags & _CONTENT_SIZE else 0) + (4 if flags & _DICTIONARY else 0)
    if len(data) <= at:
        return data
    return b"".join((data[:at], bytes((_xxh32_short(data[4:at]) >> 8 & 0xFF,)), data[at + 1 :]))


def _xxh32_short(data: bytes) -> int:
    """Return xxHash32, seed 0, of fewer than 16 bytes: a frame's header has at most 14."""
    found = (_PRIMES[4] + len(data)) & _MASK
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        found = (found + word * _PRIMES[2]) & _MASK
        found = (found << 17 | found >> 15) * _PRIMES[3] & _MASK
    for byte in data[whole:]:
        found = (found + byte * _PRIMES[4]) & _MASK
        found = (found << 11 | found >> 21) * _PRIMES[0] & _MASK
    found = (found ^ found >> 15) * _PRIMES[1] & _MASK
    found = (found ^ found >> 13) * _PRIMES[2] & _MASK
    return found ^ found >> 16


make = Lz4
