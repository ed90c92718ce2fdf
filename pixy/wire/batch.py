"""Record batches, magic 2: the unit in which Kafka stores, compresses and transfers records.

Building, compressing and parsing are separate from producing and fetching::

    data = Builder().add(b"key", b"value").build().compress(compression.get("zstd")).marshal()
    for batch in iter_batches(data):
        for record in batch.records(): ...
"""

from __future__ import annotations

import dataclasses
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from pixy.wire import batch_header, compression, record
from pixy.wire.batch_header import (
    CHECKED,
    CHECKED_FROM,
    CODEC_MASK,
    CONTROL,
    LENGTH_END,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Attributes,
    Header,
    scan,
    slices,
)
from pixy.wire.compression import MAX_SIZE, Compressor, Decompressor
from pixy.wire.crc import crc32c
from pixy.wire.exceptions import DecodeError, EncodeError
from pixy.wire.record import Record, RecordHeader
from pixy.wire.varint import Buffer

NO_TIMESTAMP = -1
_PREFIX = struct.Struct(">qiibI")


@dataclass(slots=True)
class Batch(Attributes):
    """A batch: the fields of its header, and ``payload``, the encoded records, compressed as ``attributes`` say.

    Timestamps are milliseconds since the epoch. ``producer_id``, ``producer_epoch`` and ``base_sequence`` are -1
    unless the producer is idempotent. Compaction removes records and keeps ``last_offset_delta``, so
    ``records_count`` may be smaller, even 0. ``position`` is the batch's byte in the buffer that it was read from.
    """

    base_offset: int = 0
    partition_leader_epoch: int = -1
    attributes: int = 0
    last_offset_delta: int = 0
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    records_count: int = 0
    payload: bytes = b""
    position: int = dataclasses.field(default=0, compare=False)

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    def marshal(self) -> bytes:
        """Encode the batch. Raises EncodeError naming the field that is out of range."""
        try:
            checked = (
                CHECKED.pack(
                    self.attributes,
                    self.last_offset_delta,
                    self.base_timestamp,
                    self.max_timestamp,
                    self.producer_id,
                    self.producer_epoch,
                    self.base_sequence,
                    self.records_count,
                )
                + self.payload
            )
            length = len(checked) + CHECKED_FROM - LENGTH_END
            return (
                _PREFIX.pack(self.base_offset, length, self.partition_leader_epoch, 2, crc32c(checked))
                + checked
            )
        except (struct.error, TypeError):
            raise EncodeError(self._misfit()) from None

    def _misfit(self) -> str:
        for name, bits in _BITS.items():
            value = getattr(self, name)
            if type(value) is not int or not -(1 << bits - 1) <= value < 1 << bits - 1:
                return f"{name} of a batch is {value!r}, which is not an int{bits}"
        payload: object = self.payload
        if not isinstance(payload, bytes | bytearray | memoryview):
            return f"payload of a batch is {type(payload).__name__}, not bytes"
        return f"payload of {len(payload)} bytes is too large for a batch"

    def compress(self, compressor: Compressor) -> Batch:
        """Return the batch with its records compressed, or recompressed; the other attributes stay.

        Raises EncodeError for a codec number that does not fit the attributes.
        """
        codec = int(compressor.codec)
        if not 0 <= codec <= CODEC_MASK:
            raise EncodeError(f"codec {codec} does not fit the attributes")
        plain = self.decompress()
        payload = compressor.compress(plain.payload)
        return replace(plain, attributes=plain.attributes & ~CODEC_MASK | codec, payload=payload)

    def decompress(self, decompressor: Decompressor | None = None, *, max_size: int = MAX_SIZE) -> Batch:
        """Return the batch with its records decompressed, or itself if they are not compressed.

        Args:
            decompressor: for the batch's codec; None for this library's own.
            max_size: largest size of the decompressed records, in bytes.

        Raises:
            CodecUnavailableError: the codec's library is not installed.
            DecodeError: the codec is unknown, the compressed bytes are malformed, or they exceed ``max_size``.
        """
        if not self.attributes & CODEC_MASK:
            return self
        at = self.position + batch_header.SIZE
        if decompressor is None:
            if self.codec not in compression.Codec.__members__.values():
                raise DecodeError(f"unknown compression codec {self.codec}", self.position + CHECKED_FROM)
            decompressor = compression.get(self.codec)
        elif decompressor.codec != self.codec:
            raise DecodeError(
                f"batch has codec {self.codec}, the decompressor is for {int(decompressor.codec)}",
                self.position + CHECKED_FROM,
            )
        try:
            payload = decompressor.decompress(self.payload, max_size)
        except DecodeError as error:
            # Not a TruncatedError: the batch is complete, so more bytes would not help.
            name = compression.Codec(self.codec).name.lower()
            raise DecodeError(f"{name}: {error.reason}", at + error.offset) from None
        return replace(self, attributes=self.attributes & ~CODEC_MASK, payload=payload)

    def records(self, *, max_size: int = MAX_SIZE) -> list[Record]:
        """Decode the records, decompressing them first if necessary.

        Args:
            max_size: largest size of the decompressed records, in bytes.

        Raises:
            CodecUnavailableError: the codec's library is not installed.
            DecodeError: the batch cannot be decompressed, or a record is malformed. The offset is one in the buffer
                that the batch was read from; for compressed records, their first byte, and the text has the
                offset among the decompressed bytes.
        """
        plain = self.decompress(max_size=max_size)
        start = self.position + batch_header.SIZE
        try:
            found = record.decode(plain.payload, self.records_count, self.base_offset, self.base_timestamp)
        except DecodeError as error:
            if plain is self:
                raise DecodeError(error.reason, start + error.offset) from None
            where = f"decompressed byte {error.offset}: {error.reason}"
            raise DecodeError(where, start) from None
        if self.attributes & LOG_APPEND_TIME:
            stamp = self.max_timestamp
            return [each._replace(timestamp=stamp) for each in found]
        return found


_BITS = {
    "base_offset": 64,
    "partition_leader_epoch": 32,
    "attributes": 16,
    "last_offset_delta": 32,
    "base_timestamp": 64,
    "max_timestamp": 64,
    "producer_id": 64,
    "producer_epoch": 16,
    "base_sequence": 32,
    "records_count": 32,
}


def unmarshal(buffer: Buffer, offset: int = 0, *, check_crc: bool = True) -> Batch:
    """Decode the batch at ``offset`` and ignore the bytes after it.

    Args:
        buffer: record set; must contain the whole batch.
        offset: first byte of the batch.
        check_crc: verify the checksum.

    Raises:
        UnsupportedMagicError: the bytes are in another format.
        TruncatedError: the buffer ends before the batch does.
        CorruptedBatchError: the checksum is wrong.
        DecodeError: a field of the header is invalid.
    """
    return _from_header(buffer, batch_header.read(buffer, offset, check_crc=check_crc))


def _from_header(buffer: Buffer, header: Header) -> Batch:
    start = header.position
    payload = buffer[start + batch_header.SIZE : start + header.size]
    return Batch(
        header.base_offset,
        header.partition_leader_epoch,
        header.attributes,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.records_count,
        payload if type(payload) is bytes else bytes(payload),
        start,
    )


def iter_batches(buffer: Buffer, offset: int = 0, *, check_crc: bool = True) -> Iterator[Batch]:
    """Yield the whole batches of a record set, as found in a fetch response or a log segment.

    A batch that is cut off at the end is left out. Errors and arguments are those of :func:`unmarshal`; an error is
    raised after the batches before the invalid one have been yielded.
    """
    for header in scan(buffer, offset, check_crc=check_crc):
        yield _from_header(buffer, header)


def wall_clock() -> int:
    """Return the current time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


class Builder:
    """Builds one batch from records.

    Args:
        base_offset: offset of the first record; the broker overwrites it.
        partition_leader_epoch: overwritten by the broker.
        producer_id: of an idempotent producer (KIP-98), otherwise -1.
        producer_epoch: of an idempotent producer, otherwise -1.
        base_sequence: sequence number of the first record, for an idempotent producer.
        transactional: the batch is part of a transaction.
        control: the batch holds a control record.
        log_append_time: timestamps are set by the broker.
        now: clock in milliseconds since the epoch, for records added without a timestamp.
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        partition_leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        log_append_time: bool = False,
        now: Callable[[], int] = wall_clock,
    ) -> None:
        self._batch = Batch(
            base_offset,
            partition_leader_epoch,
            LOG_APPEND_TIME * log_append_time | TRANSACTIONAL * transactional | CONTROL * control,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
        )
        self._now = now
        self._records: list[tuple[int, int, bytes | None, bytes | None, tuple[RecordHeader, ...], int]] = []
        self._next = base_offset

    def __len__(self) -> int:
        return len(self._records)

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[RecordHeader] = (),
        timestamp: int | None = None,
        *,
        offset: int | None = None,
        attributes: int = 0,
    ) -> Builder:
        """Add a record and return the builder.

        Args:
            key: None for null.
            value: None for null, a tombstone.
            headers: (key, value) pairs; values may be null.
            timestamp: milliseconds since the epoch; None for now.
            offset: absolute; None for the one after the last record's.
            attributes: int8, unused by Kafka today.

        Raises:
            EncodeError: a field has the wrong type, or ``offset`` is not greater than the last record's.
        """
        if key is not None and type(key) is not bytes:
            key = _to_bytes(key, "key")
        if value is not None and type(value) is not bytes:
            value = _to_bytes(value, "value")
        if offset is None:
            offset = self._next
        elif type(offset) is int and offset < self._next:
            raise EncodeError(f"offset {offset} is not after those before, {self._next} would be the least")
        stamp = self._now() if timestamp is None else timestamp
        if type(stamp) is not int or type(offset) is not int:
            raise EncodeError(f"timestamp {stamp!r} and offset {offset!r} of a record must be integers")
        self._next = offset + 1
        self._records.append((offset, stamp, key, value, tuple(headers), attributes))
        return self

    def extend(self, records: Iterable[Record]) -> Builder:
        """Add decoded records as they are, faster than :meth:`add`. Raises EncodeError if offsets do not ascend."""
        for each in records:
            if each[0] < self._next:
                raise EncodeError(
                    f"offset {each[0]} is not after those before, {self._next} would be the least"
                )
            self._next = each[0] + 1
            self._records.append(each)
        return self

    def build(self) -> Batch:
        """Return the batch, uncompressed. Raises EncodeError if it is empty or a record cannot be encoded."""
        records = self._records
        if not records:
            raise EncodeError("a batch needs a record")
        base_timestamp = records[0][1]
        base_offset = self._batch.base_offset
        payload = record.encode(records, base_offset, base_timestamp)
        return replace(
            self._batch,
            last_offset_delta=self._next - 1 - base_offset,
            base_timestamp=base_timestamp,
            max_timestamp=max(each[1] for each in records),
            records_count=len(records),
            payload=payload,
        )


def _to_bytes(value: object, field: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise EncodeError(f"{field} of a record is {type(value).__name__}, neither bytes nor None")


__all__ = [
    "Batch",
    "Builder",
    "Header",
    "Record",
    "iter_batches",
    "scan",
    "slices",
    "unmarshal",
]
