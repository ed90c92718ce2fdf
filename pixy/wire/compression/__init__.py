"""Compression codecs of record batches, pluggable.

gzip is built in; snappy, lz4 and zstd need a library each (cramjam, lz4, backports.zstd). The compressors write what Java's client reads
(independent LZ4 blocks, xerial snappy, one frame). The decompressors read what any client writes: linked LZ4 blocks,
raw and xerial snappy, zstd frames without content size, several gzip members or frames in a row.

A few compressed bytes can expand to gigabytes, so a decompressor takes a limit and stops there.
"""

from __future__ import annotations

import enum
import importlib
from functools import lru_cache
from typing import Protocol

from pixy.wire.exceptions import CodecUnavailableError, DecodeError

MAX_SIZE = 128 * 1024 * 1024
"""Default limit for the decompressed records of one batch, in bytes."""


class Codec(enum.IntEnum):
    """Codec numbers, stored in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Compressor(Protocol):
    """Compresses the records of a batch."""

    @property
    def codec(self) -> int:
        """The codec's number, for the attributes."""

    def compress(self, data: bytes, /) -> bytes:
        """Compress the encoded records of a batch."""


class Decompressor(Protocol):
    """Decompresses the records of a batch."""

    @property
    def codec(self) -> int:
        """The number of the codec that it reads."""

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """Decompress.

        Args:
            data: all of it.
            max_size: the most bytes of the result.

        Raises:
            DecodeError: the data is malformed, or expands to more.
        """


class CompressorDecompressor(Compressor, Decompressor, Protocol):
    """Compresses and decompresses."""


class Nop:
    """The codec ``none``: leaves bytes as they are."""

    codec = Codec.NONE

    def compress(self, data: bytes, /) -> bytes:
        """Return ``data``."""
        return data

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """Return ``data``. Raises DecodeError if it has more than ``max_size`` bytes."""
        if len(data) > max_size:
            raise too_large(max_size)
        return data


def too_large(max_size: int) -> DecodeError:
    """Return the error for data that expands to more than ``max_size`` bytes."""
    return DecodeError(f"decompressed, it is larger than {max_size} bytes", 0)


def get(codec: int | str, level: int | None = None) -> CompressorDecompressor:
    """Return a codec.

    Args:
        codec: number, or name: ``none``, ``gzip``, ``snappy``, ``lz4``, ``zstd``.
        level: compression level, on the codec's own scale; None for its default. Snappy has no levels.

    Raises:
        DecodeError: the codec is unknown.
        EncodeError: the codec has no such level.
        CodecUnavailableError: the codec's library is not installed.
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
        missing = (error.name or "").partition(".")[0]
        package = "backports.zstd" if missing == "backports" else missing
        raise CodecUnavailableError(f"codec {name} needs {error.name}: pip install {package}") from None
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
