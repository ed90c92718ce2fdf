"""Read message sets (magic 0 and 1), the format before Kafka 0.11 that old clients and logs still hold.

An entry: offset int64, size int32, CRC-32 (IEEE) uint32 over the rest, magic int8, attributes int8, timestamp int64
(magic 1), key and value as int32 length (-1 is null) and bytes. The value of a compressed entry is a message set, and
its offset that of the last inner message; inner offsets are absolute with magic 0, relative with magic 1 (KIP-31).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from pixy.wire import compression
from pixy.wire.batch_header import CODEC_MASK, LOG_APPEND_TIME, slices
from pixy.wire.exceptions import CorruptedBatchError, DecodeError, UnsupportedMagicError
from pixy.wire.record import Record
from pixy.wire.varint import Buffer

_HEAD = struct.Struct(">qiIbb")
_CHECKED_FROM = 16
_MAX_MAGIC = 1


def decode_entry(
    data: Buffer,
    start: int,
    end: int,
    *,
    check_crc: bool = True,
    max_size: int = compression.MAX_SIZE,
) -> list[Record]:
    """Decode the entry in ``data[start:end]``: one record, or those inside a compressed entry.

    Args:
        data: buffer with the whole entry.
        start: first byte of the entry.
        end: byte after the entry.
        check_crc: verify the checksums.
        max_size: largest size of the decompressed messages, in bytes.

    Returns:
        Records; their timestamps are -1 with magic 0.

    Raises:
        UnsupportedMagicError: magic is neither 0 nor 1.
        CorruptedBatchError: a checksum is wrong.
        CodecUnavailableError: the codec's library is not installed.
        DecodeError: the entry is malformed. For errors inside a compressed entry, the offset is the entry's.
    """
    data = bytes(data[start:end]) if start or type(data) is not bytes else data
    try:
        record, attributes, magic = _decode_one(data, 0, end - start, check_crc=check_crc)
        if not attributes & CODEC_MASK:
            return [record]
        return _unwrap(record, attributes, magic, check_crc, max_size)
    except UnsupportedMagicError as error:
        raise UnsupportedMagicError(error.magic, start + error.offset) from None
    except DecodeError as error:
        raise type(error)(error.reason, start + error.offset) from None


def _unwrap(wrapper: Record, attributes: int, magic: int, check_crc: bool, max_size: int) -> list[Record]:
    if wrapper.value is None:
        raise DecodeError("a compressed message has no value", 0)
    try:
        codec = compression.get(attributes & CODEC_MASK)
        inner = codec.decompress(_readable(wrapper.value, codec.codec, magic), max_size)
        found, end = [], 0
        for start, end, _ in slices(inner):
            record, nested, _ = _decode_one(inner, start, end, check_crc=check_crc)
            if nested & CODEC_MASK:
                raise DecodeError("compressed inside a compressed one", start)
            found.append(record)
    except DecodeError as error:
        raise DecodeError(f"in a compressed message, byte {error.offset}: {error.reason}", 0) from None
    if not found or end != len(inner):
        raise DecodeError(f"a compressed message has {len(inner) - end} bytes left over", 0)
    # A producer's wrapper has offset 0, because the broker has not assigned offsets yet.
    shift = max(wrapper.offset - found[-1].offset, 0) if magic else 0
    stamp = wrapper.timestamp if attributes & LOG_APPEND_TIME else None
    return [
        each._replace(offset=each.offset + shift, timestamp=each.timestamp if stamp is None else stamp)
        for each in found
    ]


def _readable(value: bytes, codec: int, magic: int) -> bytes:
    if magic or codec != compression.Codec.LZ4:
        return value
    from pixy.wire.compression.lz4_codec import with_right_checksum

    return with_right_checksum(value)


def _decode_one(data: bytes, start: int, end: int, *, check_crc: bool) -> tuple[Record, int, int]:
    offset, _, crc, magic, attributes = _HEAD.unpack_from(data, start)
    if not 0 <= magic <= _MAX_MAGIC:
        raise UnsupportedMagicError(magic, start + _CHECKED_FROM)
    if check_crc:
        found = zlib.crc32(memoryview(data)[start + _CHECKED_FROM : end])
        if found != crc:
            raise CorruptedBatchError(
                f"checksum of a message is 0x{found:08x}, its header says 0x{crc:08x}", start
            )
    position, timestamp = start + _HEAD.size, -1
    if magic:
        if end - position < 8:
            raise DecodeError("a message is too short for its timestamp", position)
        timestamp = int.from_bytes(data[position : position + 8], "big", signed=True)
        position += 8
    key, position = _read_bytes(data, position, end, "key")
    value, position = _read_bytes(data, position, end, "value")
    if position != end:
        raise DecodeError(f"{end - position} bytes are left over in a message", position)
    return Record(offset, timestamp, key, value, (), attributes), attributes, magic


def _read_bytes(data: bytes, start: int, end: int, field: str) -> tuple[bytes | None, int]:
    position = start + 4
    if position > end:
        raise DecodeError(f"a message is too short for its {field}", start)
    length = int.from_bytes(data[start:position], "big", signed=True)
    if length == -1:
        return None, position
    if length < 0 or position + length > end:
        raise DecodeError(f"length of the {field} is {length}, {end - position} bytes are left", start)
    return data[position : position + length], position + length


def iter_records(
    buffer: Buffer, offset: int = 0, *, check_crc: bool = True, max_size: int = compression.MAX_SIZE
) -> Iterator[Record]:
    """Yield the records of a message set; an entry that is cut off at the end is left out.

    Args:
        buffer: message set, magic 0 or 1.
        offset: first byte of the first entry.
        check_crc: verify the checksums.
        max_size: largest size of one entry's decompressed messages, in bytes.

    Errors are those of :func:`decode_entry`.
    """
    for start, end, _ in slices(buffer, offset):
        yield from decode_entry(buffer, start, end, check_crc=check_crc, max_size=max_size)
