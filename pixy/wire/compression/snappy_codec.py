"""Snappy, raw and in the framing of xerial's snappy-java."""

from __future__ import annotations

import struct

import cramjam

from pixy.wire.compression import Codec, too_large
from pixy.wire.exceptions import DecodeError, EncodeError, TruncatedError
from pixy.wire.varint import decode_unsigned

_MAGIC = b"\x82SNAPPY\x00"
_HEADER = _MAGIC + struct.pack(">ii", 1, 1)
_BLOCK = 32 * 1024
_LENGTH = struct.Struct(">i")
_EXPANSION = 22
"""Upper bound of the expansion: three compressed bytes can copy 64."""


class Snappy:
    """Writes xerial blocks of 32 KiB, as Java does; reads xerial streams and raw blocks (librdkafka, Go)."""

    codec = Codec.SNAPPY

    def __init__(self, level: int | None = None) -> None:
        if level is not None:
            raise EncodeError("snappy has no levels")

    def compress(self, data: bytes, /) -> bytes:
        """Compress to one xerial stream."""
        view = memoryview(data)
        parts = [_HEADER]
        for start in range(0, len(data), _BLOCK):
            block = bytes(cramjam.snappy.compress_raw(view[start : start + _BLOCK]))
            parts += (_LENGTH.pack(len(block)), block)
        return b"".join(parts)

    def decompress(self, data: bytes, max_size: int, /) -> bytes:
        """Decompress xerial streams, or one raw block. Raises DecodeError."""
        if not data:
            raise TruncatedError("compressed data is empty", 0)
        if not data.startswith(_MAGIC):
            return _block(data, 0, max_size, max_size)
        parts = []
        position, left = len(_HEADER), max_size
        while position < len(data):
            if data.startswith(_MAGIC, position):  # streams one after the other
                position += len(_HEADER)
                continue
            if position + 4 > len(data):
                raise TruncatedError("length of a snappy block is cut off", position)
            (length,) = _LENGTH.unpack_from(data, position)
            end = position + 4 + length
            if length < 0:
                raise DecodeError(f"length of a snappy block is {length}", position)
            if end > len(data):
                raise TruncatedError(f"snappy block of {length} bytes is cut off", position)
            part = _block(data[position + 4 : end], position + 4, left, max_size)
            parts.append(part)
            left -= len(part)
            position = end
        if position > len(data):
            raise TruncatedError("header of a snappy stream is cut off", len(data))
        return b"".join(parts)


def _block(data: bytes, offset: int, left: int, max_size: int) -> bytes:
    # The library allocates the claimed length at once, so check first that these bytes can expand to it.
    try:
        claimed, _ = decode_unsigned(data)
    except DecodeError as error:
        raise type(error)(f"snappy block: {error.reason}", offset + error.offset) from None
    if claimed > left:
        raise too_large(max_size)
    if claimed > _EXPANSION * len(data):
        raise DecodeError(f"a snappy block of {len(data)} bytes cannot become {claimed}", offset)
    try:
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise DecodeError(f"snappy block is not readable: {error}", offset) from None


make = Snappy
