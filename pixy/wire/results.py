"""Results of the calls about one partition: produced, fetched, offsets found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from pixy.wire import batch, control, record_set
from pixy.wire.batch import Batch
from pixy.wire.connection import Broker
from pixy.wire.record import Record

NEWEST: Final = -1
"""The timestamp that asks for the offset after the last record."""
OLDEST: Final = -2
"""The timestamp that asks for the offset of the first record."""


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """A broker's answer to Produce; -1 marks fields that it did not tell. With acks=0 there is no answer."""

    broker: Broker
    topic: str
    partition: int
    throttle_time_ms: int = 0
    error_code: int = 0
    base_offset: int = -1
    log_append_time: int = -1
    """Milliseconds since the epoch, for topics with ``message.timestamp.type=LogAppendTime``."""
    log_start_offset: int = -1
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetResult:
    """The offset and timestamp (ms) of the record that ListOffsets found; -1 if there is none."""

    broker: Broker
    topic: str
    partition: int
    error_code: int
    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchResult:
    """Fetched batches, with the offsets that the broker reports.

    ``record_set`` has the bytes as received; :meth:`batches` leaves out a batch cut off at its end. A broker sends
    whole batches, so the first may begin before ``fetch_offset``. ``aborted`` has (producer id, first offset) of the
    aborted transactions, for ``read_committed``.
    """

    broker: Broker
    topic: str
    partition: int
    fetch_offset: int
    throttle_time_ms: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    record_set: bytes = field(repr=False)
    read_committed: bool = False

    def batches(self) -> Iterator[Batch]:
        """Yield the whole batches, still compressed, each checked just before it is yielded. Raises DecodeError."""
        return batch.iter_batches(self.record_set)

    def records(self) -> Iterator[Record]:
        """Yield the records from ``fetch_offset`` on, decompressed, without control records.

        With ``read_committed``, records of aborted transactions are left out.

        Raises:
            CodecUnavailableError: the library of a batch's codec is not installed.
            DecodeError: a batch or record is malformed.
        """
        if self.record_set[16:17] in (b"\0", b"\1"):  # before Kafka 0.11; no transactions then
            found = record_set.iter_records(self.record_set)
            yield from (each for each in found if each.offset >= self.fetch_offset)
            return
        begun = sorted(self.aborted, key=lambda each: each[1], reverse=True)
        aborting: set[int] = set()
        for each in self.batches():
            while begun and begun[-1][1] <= each.last_offset:
                aborting.add(begun.pop()[0])
            if each.is_control:
                # A control batch has no marker if compaction removed it and kept the batch.
                if any(control.parse(record).type == control.ControlType.ABORT for record in each.records()):
                    aborting.discard(each.producer_id)
            elif not (self.read_committed and each.is_transactional and each.producer_id in aborting):
                yield from (record for record in each.records() if record.offset >= self.fetch_offset)

    @property
    def next_offset(self) -> int:
        """The offset after the last whole batch, or ``fetch_offset`` if there is none.

        Counts control records, aborted records and offsets removed by compaction.
        """
        return max([self.fetch_offset, *(each.next_offset for each in batch.scan(self.record_set))])
