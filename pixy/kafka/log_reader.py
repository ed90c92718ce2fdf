"""Reads records from partitions' logs with what their batches say, for people who look for one message. Blocking.

librdkafka hides the batch (producer, epoch, sequence, codec), so this goes through our own wire library, outside any group.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pixy.kafka.brokers import bootstrap, translated, wire_options
from pixy.kafka.errors import error_of
from pixy.kafka.settings import Settings
from pixy.wire import message_set
from pixy.wire.batch import unmarshal
from pixy.wire.batch_header import Header, read, slices
from pixy.wire.client import PartitionFetcher
from pixy.wire.compression import Codec
from pixy.wire.record import Record

LIMIT: Final = 5.0
"""Seconds for a connection, and for each request."""
_FETCH_BYTES: Final = 1 << 20
"""Of one fetch of a scan; a batch that is larger comes whole."""
_ONE: Final = 1
"""Bytes of a fetch for a single message: the broker sends the batch with it all the same, and no more."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The batch in which Kafka stores a record: what its producer sent with one request.

    Attributes:
        base_offset: of its first record; ``last_offset`` likewise.
        records: how many it has.
        size: its bytes in the log.
        codec: the name of its compression.
        producer_id: of an idempotent producer, else -1; likewise ``producer_epoch`` and ``base_sequence``.
        leader_epoch: of the leader that wrote it.
        transactional: whether it is part of a transaction.
        append_time: whether the broker set its records' timestamps, not the producer.
    """

    base_offset: int
    last_offset: int
    records: int
    size: int
    codec: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int
    transactional: bool
    append_time: bool


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record; its batch is None in a log of a format before Kafka 0.11."""

    record: Record
    batch: StoredBatch | None


class Budget:
    """What a scan may cost. It ends when one of the bounds is reached.

    Args:
        records: how many it may read.
        size: bytes that it may fetch.
        seconds: how long it may take.
    """

    __slots__ = ("_until", "records", "size")

    def __init__(self, records: int, size: int, seconds: float) -> None:
        self.records = records
        self.size = size
        self._until = time.monotonic() + seconds

    @property
    def left(self) -> bool:
        """True if nothing is used up."""
        return self.records > 0 and self.size > 0 and time.monotonic() < self._until

    def share(self, parts: int) -> Budget:
        """Return an equal part of what is left for one of ``parts`` scans."""
        seconds = max(0.0, self._until - time.monotonic()) / parts
        return Budget(-(-self.records // parts), -(-self.size // parts), seconds)

    def spend(self, share: Budget, given: tuple[int, int]) -> None:
        """Take off what a share has used.

        Args:
            share: after its scan.
            given: records and bytes that it had before.
        """
        self.records -= given[0] - share.records
        self.size -= given[1] - share.size


class LogReader:
    """Reads logs of a cluster. Any thread may call; each call opens a connection.

    Args:
        settings: a client's settings in librdkafka's terms; see :mod:`pixy.kafka.settings`.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def read(self, topic: str, partition: int, offset: int) -> StoredRecord | None:
        """Return the record at an offset; None: retention, compaction or a marker of a transaction has its place, or it is not written yet.

        Raises:
            KafkaError: the partition cannot be read, or the offset lies outside of its log.
        """
        with self._open(topic, partition, _ONE) as fetcher:
            result = fetcher.fetch(offset)
            if result.error_code:
                raise error_of(result.error_code)
            for batch, records in _stored(result.record_set):
                for record in records:
                    if record.offset == offset:
                        return StoredRecord(record, batch)
        return None

    def scan(self, topic: str, partition: int, start: int, stop: int, budget: Budget) -> Iterator[Record]:
        """Yield the records of a range in order, without markers of transactions. It may end early: see ``budget``.

        Args:
            topic: of the records.
            partition: of the records.
            start: the first offset.
            stop: the offset after the last.
            budget: is used up.

        Raises:
            KafkaError: the partition cannot be read.
        """
        with self._open(topic, partition, _FETCH_BYTES) as fetcher:
            while start < stop and budget.left:
                result = fetcher.fetch(start)
                if result.error_code:
                    raise error_of(result.error_code)
                if result.next_offset == start:
                    return  # the log ends before `stop`
                budget.size -= len(result.record_set)
                for record in result.records():
                    if record.offset >= stop or not budget.left:
                        return
                    budget.records -= 1
                    yield record
                start = result.next_offset

    @contextmanager
    def _open(self, topic: str, partition: int, size: int) -> Iterator[PartitionFetcher]:
        options = wire_options(self._settings, LIMIT)
        with (
            translated(),
            PartitionFetcher(
                bootstrap(self._settings), topic, partition, max_bytes=size, max_wait_ms=0, **options
            ) as fetcher,
        ):
            yield fetcher


def _stored(record_set: bytes) -> Iterator[tuple[StoredBatch | None, list[Record]]]:
    for start, end, magic in slices(record_set):
        if magic in (0, 1):
            yield None, list(message_set.decode_entry(record_set, start, end))
            continue
        header = read(record_set, start)
        if not header.is_control:
            yield _described(header), unmarshal(record_set, start).records()


def _described(header: Header) -> StoredBatch:
    codec = header.codec
    return StoredBatch(
        header.base_offset,
        header.last_offset,
        header.records_count,
        header.size,
        codec.name.lower() if isinstance(codec, Codec) else str(codec),
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.partition_leader_epoch,
        header.is_transactional,
        header.is_log_append_time,
    )


__all__ = ["Budget", "LogReader", "StoredBatch", "StoredRecord"]
