"""The header of a record batch, magic 2, and finding batches in a record set without decoding them.

Offsets in the 61 bytes (all numbers big-endian): 0 base offset int64, 8 length int32 of what follows it, 12 leader
epoch int32, 16 magic int8, 17 CRC-32C uint32 over all from 21 on, 21 attributes int16, 23 last offset delta int32,
27 base timestamp int64, 35 max timestamp int64, 43 producer id int64, 51 producer epoch int16, 53 base sequence
int32, 57 count of records int32. Base offset and leader epoch are the broker's to write, hence outside the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from pixy.wire.compression import Codec
from pixy.wire.crc import crc32c
from pixy.wire.exceptions import (
    CorruptedBatchError,
    DecodeError,
    TruncatedError,
    UnsupportedMagicError,
)
from pixy.wire.varint import Buffer

SIZE = 61
"""Bytes of the header."""

LAYOUT = struct.Struct(">qiibIhiqqqhii")
CHECKED = struct.Struct(">hiqqqhii")
"""The part of the header under the checksum, which begins at CHECKED_FROM."""

CHECKED_FROM = 21
LENGTH_END = 12
_MAGIC_AT = 16
_MIN_LENGTH = SIZE - LENGTH_END
_OLD_MIN_LENGTH = 14  # a message of magic 0: crc, magic, attributes, two null lengths

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class Attributes:
    """What the bits of a batch's attributes mean, for whatever has ``attributes``."""

    __slots__ = ()
    attributes: int

    @property
    def codec(self) -> int:
        """Number of the codec of the records; a member of :class:`Codec` where it is a known one."""
        number = self.attributes & CODEC_MASK
        return Codec(number) if number <= Codec.ZSTD else number

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock made the timestamps: every record then has the batch's max timestamp."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a control record, such as a transaction's marker, and nothing for applications."""
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which on tombstones and markers may go (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)


class _Fields(NamedTuple):
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int
    position: int


class Header(_Fields, Attributes):
    """A batch's header as it stands in a buffer, and where: ``position`` and ``size`` in bytes.

    ``length`` counts the bytes after itself; timestamps are milliseconds since the epoch; producer id, epoch and
    sequence are -1 where the producer is not idempotent.
    """

    __slots__ = ()

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LENGTH_END + self.length

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch ever had; compaction may have removed it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where to go on after this batch."""
        return self.base_offset + self.last_offset_delta + 1


def read(buffer: Buffer, position: int = 0, *, check_crc: bool = True) -> Header:
    """The header of the batch at ``position``, which must be there whole.

    Raises TruncatedError if it is not, UnsupportedMagicError, CorruptedBatchError for a wrong checksum, DecodeError.
    """
    size = len(buffer) - position
    if position < 0:
        raise DecodeError("position is negative", position)
    if size <= _MAGIC_AT:
        raise TruncatedError(f"header of a batch is cut off, {max(size, 0)} bytes are left", position)
    # Magic before all else: other formats have it at the same place, and nothing else.
    magic = buffer[_MAGIC_AT + position]
    if magic != 2:
        raise UnsupportedMagicError(_signed(magic), position + _MAGIC_AT)
    length = int.from_bytes(buffer[position + 8 : position + LENGTH_END], "big", signed=True)
    if length < _MIN_LENGTH:
        raise DecodeError(f"length of a batch is {length}, less than {_MIN_LENGTH}", position + 8)
    end = position + LENGTH_END + length
    if end > len(buffer):
        raise TruncatedError(
            f"batch of {LENGTH_END + length} bytes is cut off, {size} bytes are left", position
        )
    header = tuple.__new__(Header, (*LAYOUT.unpack_from(buffer, position), position))
    if check_crc:
        # A view, so that 25 GB/s of checksum are not waited for by a copy.
        found = crc32c(memoryview(buffer)[position + CHECKED_FROM : end])
        if found != header.crc:
            raise CorruptedBatchError(
                f"checksum of a batch is 0x{found:08x}, its header says 0x{header.crc:08x}", position
            )
    if header.records_count < 0:
        raise DecodeError(f"count of records is {header.records_count}", position + 57)
    return header


def _signed(byte: int) -> int:
    return byte - (byte & 0x80) * 2


def slices(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, int, int]]:
    """Where the batches (or messages of old formats) of a record set are: (start, end, magic) of each.

    A broker cuts a record set off at the size that was asked for, so what is incomplete at the end is left out.
    Nothing but magic and length is looked at. Raises UnsupportedMagicError, DecodeError for a length that can not be.
    """
    size = len(buffer)
    while position + _MAGIC_AT < size:
        length = int.from_bytes(buffer[position + 8 : position + LENGTH_END], "big", signed=True)
        magic = buffer[position + _MAGIC_AT]
        if magic > 2:
            raise UnsupportedMagicError(_signed(magic), position + _MAGIC_AT)
        least = _MIN_LENGTH if magic == 2 else _OLD_MIN_LENGTH
        if length < least:
            raise DecodeError(f"length of a batch is {length}, less than {least}", position + 8)
        end = position + LENGTH_END + length
        if end > size:
            return
        yield position, end, magic
        position = end


def scan(buffer: Buffer, position: int = 0, *, check_crc: bool = True) -> Iterator[Header]:
    """Headers of all whole batches of a record set, without touching their records: for counts and audits.

    With the checksum this runs at gigabytes a second (extra ``wire``). Raises as :func:`read`, but for a cut-off tail,
    which is left out.
    """
    for start, _, _ in slices(buffer, position):
        yield read(buffer, start, check_crc=check_crc)
