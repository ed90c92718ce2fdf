"""Codecs of record batches, pluggable.

gzip is built in; snappy, lz4 and zstd need the extra ``wire``. What is written is what Java reads (independent
LZ4 blocks, xerial snappy, one frame); what is read is what anybody writes: linked LZ4 blocks, raw and xerial snappy,
zstd frames without their size, several gzip members or frames one after the other.

A decompressor takes the most bytes that it may make, and stops there while decompressing: a few bytes can stand for
gigabytes.
"""

from __future__ import annotations

import enum
import importlib
from functools import lru_cache
from typing import Protocol

from pixy.wire.exceptions import CodecUnavailableError, DecodeError

MAX_SIZE = 128 * 1024 * 1024
"""Bytes that the records of one batch may have when decompressed, unless told otherwise."""


class Codec(enum.IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Compressor(Protocol):
    """Compresses the records of a batch."""

    @property
    def codec(self) -> int:
        """The number that goes into the attributes."""

    def compress(self, data: bytes, /) -> bytes:
        """All records in, one blob out."""


class Decompressor(Protocol):
    """Decompresses the records of a batch."""

    @property
    def codec(self) -> int:
        """The number in the attributes of what it reads."""

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """The reverse. Raises DecodeError, with the offset in ``data``; also for more than ``max_size`` bytes."""


class CompressorDecompressor(Compressor, Decompressor, Protocol):
    """Both."""


class Nop:
    """The codec ``none``: bytes as they are."""

    codec = Codec.NONE

    def compress(self, data: bytes, /) -> bytes:
        """The same bytes."""
        return data

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """The same bytes, if they are not too many."""
        if len(data) > max_size:
            raise too_large(max_size)
        return data


def too_large(max_size: int) -> DecodeError:
    """What a decompressor raises for more bytes than allowed."""
    return DecodeError(f"decompressed, it is larger than {max_size} bytes", 0)


def get(codec: int | str, level: int | None = None) -> CompressorDecompressor:
    """The codec of a number or a name (``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``).

    ``level`` is the codec's own; None is its default, and snappy has none. Raises DecodeError for an unknown codec,
    CodecUnavailableError if its library is not installed.
    """
    try:
        known = Codec[codec.upper()] if isinstance(codec, str) else Codec(codec)
    except (KeyError, ValueError):
        raise DecodeError(f"unknown compression codec {codec!r}", 0) from None
    return _make(known, level)


@lru_cache(maxsize=64)
def _make(codec: Codec, level: int | None) -> CompressorDecompressor:
    if codec is Codec.NONE:
        return Nop()
    name = codec.name.lower()
    try:
        module = importlib.import_module(f"pixy.wire.compression.{name}_codec")
    except ImportError as error:
        raise CodecUnavailableError(f"codec {name} needs {error.name}: install kafka-pixy[wire]") from None
    made: CompressorDecompressor = module.make(level)
    return made


__all__ = [
    "MAX_SIZE",
    "Codec",
    "Compressor",
    "CompressorDecompressor",
    "Decompressor",
    "Nop",
    "get",
    "too_large",
]
