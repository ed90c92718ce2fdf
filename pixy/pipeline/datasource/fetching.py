"""Fetch one range of offsets of one partition, batch by batch, through one connection. Runs in a task.

Transient errors (a broker is down, the leader moved) are retried until the partition has returned nothing for
``poll_timeout``. Other errors are raised with topic, partition and offset. Nothing is left out silently:
deleted offsets, a wrong checksum or a recreated topic end the task.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pixy.pipeline.datasource.cluster import metadata, topic_id
from pixy.pipeline.datasource.options import Source
from pixy.pipeline.datasource.plan import Range
from pixy.pipeline.errors import SourceError
from pixy.wire import batch_header, control
from pixy.wire.batch import unmarshal
from pixy.wire.batch_header import Header, slices
from pixy.wire.client import OLDEST, PartitionFetcher
from pixy.wire.crc import crc32c
from pixy.wire.errors import ErrorCode, KafkaError, describe, lookup
from pixy.wire.exceptions import DecodeError, UnsupportedVersionError, WireError
from pixy.wire.partition import FetchResult
from pixy.wire.sasl import AuthenticationError

logger = logging.getLogger(__name__)

_OFFSET = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A batch, or a message of the formats before Kafka 0.11, in a fetched record set.

    Attributes:
        buffer: the record set; the batch is ``buffer[start:end]``.
        first: offset at which reading started; earlier records of the batch are not wanted.
        header: None for magic 0 and 1.
        crc_valid: whether the checksum matches; always true if the fetcher checks it.
    """

    buffer: bytes
    start: int
    end: int
    first: int
    header: Header | None
    crc_valid: bool = True


class _TopicGone(Exception):
    """The topic was deleted, and ``failOnDataLoss`` is false."""


def batch_error(range_: Range, offset: int, error: object) -> SourceError:
    """Return the error for a batch that cannot be read.

    Args:
        range_: the range that is read.
        offset: the batch's first offset.
        error: the cause.
    """
    return SourceError(f"{range_}: the batch at offset {offset} cannot be read: {error}")


class RangeFetcher:
    """Fetches one range.

    Args:
        source: the checked options.
        range_: the offsets to fetch.
        check_crc: whether a wrong checksum is an error; otherwise :attr:`FetchedBatch.crc_valid` reports it.
        connect: creates the partition's client; for tests.
        clock: returns seconds; for tests.
        sleep: waits between attempts; for tests.
    """

    def __init__(
        self,
        source: Source,
        range_: Range,
        *,
        check_crc: bool = True,
        connect: Callable[[Source, Range], PartitionFetcher] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._source = source
        self._range = range_
        self._check_crc = check_crc
        self._connect = connect or _connect
        self._clock = clock
        self._sleep = sleep
        self._position = range_.start
        self._last_progress = clock()
        self._attempts = 0

    def __iter__(self) -> Iterator[FetchedBatch]:
        """Iterate over the batches with offsets of the range.

        Control batches are included; with ``read_committed``, batches of aborted transactions are not.

        Raises:
            SourceError: the range cannot be read; the text names topic, partition and offset.
        """
        try:
            with self._connect(self._source, self._range) as fetcher:
                self._check_id()
                while self._position < self._range.end:
                    result = self._fetch(fetcher)
                    if result is not None:
                        yield from self._batches(result)
                self._check_id()
        except _TopicGone:
            return
        except AuthenticationError as error:
            raise SourceError(f"{self._range}: {error}") from error

    # -- fetching --------------------------------------------------------------------------------

    def _fetch(self, fetcher: PartitionFetcher) -> FetchResult | None:
        try:
            result = fetcher.fetch(self._position)
        except AuthenticationError:
            raise
        except (WireError, OSError) as error:
            # Also a response that cannot be parsed: the connection is closed, and another may do better.
            self._pause(fetcher, str(error), final=_is_final(error))
            return None
        code = result.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(fetcher)
            return None
        if code:
            error_code = lookup(code)
            self._pause(fetcher, describe(code), final=not (error_code.retriable or error_code.refresh))
            return None
        if not result.record_set:
            self._starved(result)
            return None
        return result

    def _pause(self, fetcher: PartitionFetcher, why: str, *, final: bool) -> None:
        """Wait before the next attempt, perhaps at another broker; raises SourceError once time is up."""
        limits = self._source.limits
        waited = self._clock() - self._last_progress
        if final or waited >= limits.poll_timeout:
            after = "" if final else f" (retried for {waited:.0f} s, kafkaConsumer.pollTimeoutMs)"
            raise SourceError(f"{self._range} at offset {self._position}: {why}{after}")
        fetcher.forget()
        delay = min(limits.backoff * 2 ** min(self._attempts, 16), limits.backoff_max)
        self._attempts += 1
        self._sleep(min(delay, max(0.0, limits.poll_timeout - waited)))
        self._check_id()

    def _starved(self, result: FetchResult) -> None:
        waited = self._clock() - self._last_progress
        if waited >= self._source.limits.poll_timeout:
            end = result.last_stable_offset if self._source.read_committed else result.high_watermark
            raise SourceError(
                f"{self._range}: offsets {self._position} to {self._range.end - 1} did not come in "
                f"{waited:.0f} s "
                f"(kafkaConsumer.pollTimeoutMs); the log ends at {end}"
            )
        self._sleep(self._source.limits.backoff)

    def _out_of_range(self, fetcher: PartitionFetcher) -> None:
        try:
            oldest = fetcher.list_offsets(OLDEST)
        except (WireError, OSError) as error:
            self._pause(fetcher, str(error), final=False)
            return
        if oldest.error_code:
            self._pause(fetcher, describe(oldest.error_code), final=not lookup(oldest.error_code).retriable)
            return
        until = self._range.end - 1
        if oldest.offset > self._position:
            until = min(oldest.offset, self._range.end) - 1
            why = f"they were deleted (retention, DeleteRecords), the log starts at {oldest.offset}"
        else:
            why = "the log ends before them: the topic was deleted and created again, or lost its end"
        problem = f"{self._range}: offsets {self._position} to {until} are out of range: {why}"
        if self._source.fail_on_data_loss:
            raise SourceError(f"{problem}; failOnDataLoss=false continues without them")
        logger.warning("%s", problem)
        self._position = until + 1
        self._last_progress = self._clock()

    def _check_id(self) -> None:
        """Check the topic's id: a recreated topic is not the one that the range was planned for."""
        planned = self._range.topic_id
        if not planned:
            return
        try:
            body = metadata(self._source.access, [self._range.topic])
        except (WireError, OSError):
            return  # the next fetch reports an unreachable cluster
        entry = next((each for each in body["Topics"] if each["Name"] == self._range.topic), None)
        current = topic_id(entry) if entry is not None and not entry["ErrorCode"] else ""
        gone = entry is not None and entry["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if gone or (current and current != planned):
            change = "was deleted" if gone else f"was deleted and created again (it now has id {current})"
            problem = (
                f"{self._range}: offsets {self._range.start} to {self._range.end - 1} cannot be read: "
                f"the topic with id {planned} {change}"
            )
            if self._source.fail_on_data_loss:
                raise SourceError(f"{problem}; failOnDataLoss=false continues without them")
            logger.warning("%s", problem)
            raise _TopicGone

    # -- batches ---------------------------------------------------------------------------------

    def _batches(self, result: FetchResult) -> Iterator[FetchedBatch]:
        listed = result.aborted if self._source.read_committed else ()
        begun = sorted(listed, key=lambda each: each[1], reverse=True)
        aborting: set[int] = set()
        before = self._position
        for batch in self._slices(result.record_set):
            self._last_progress, self._attempts = self._clock(), 0
            header = batch.header
            if header is None:
                yield batch
                continue
            self._position = max(self._position, header.next_offset)
            while begun and begun[-1][1] <= header.last_offset:
                aborting.add(begun.pop()[0])
            if header.is_control and self._aborts(batch):
                aborting.discard(header.producer_id)
            aborted = header.is_transactional and not header.is_control and header.producer_id in aborting
            if not aborted:
                yield batch
        if self._position == before:
            self._starved(result)

    def _slices(self, buffer: bytes) -> Iterator[FetchedBatch]:
        offset = first = self._position
        try:
            for start, end, magic in slices(buffer):
                offset = _OFFSET.unpack_from(buffer, start)[0]
                if offset >= self._range.end and magic == 2:
                    self._position = self._range.end
                    return
                if magic < 2:
                    # A compressed message has the offset of the last one inside.
                    self._position = max(self._position, offset + 1)
                    yield FetchedBatch(buffer, start, end, first, None)
                    continue
                header = batch_header.read(buffer, start, check_crc=self._check_crc)
                valid = self._check_crc or _crc(buffer, start, end) == header.crc
                yield FetchedBatch(buffer, start, end, first, header, valid)
        except DecodeError as error:
            raise batch_error(self._range, offset, error) from error

    def _aborts(self, batch: FetchedBatch) -> bool:
        if not self._source.read_committed:
            return False
        # Compaction may have removed the marker and kept the batch.
        records = unmarshal(batch.buffer, batch.start, check_crc=False).records()
        return any(control.parse(record).type == control.ControlType.ABORT for record in records)


def _is_final(error: Exception) -> bool:
    return isinstance(error, UnsupportedVersionError) or (
        isinstance(error, KafkaError) and not error.error.retriable
    )


def _crc(buffer: bytes, start: int, end: int) -> int:
    return crc32c(memoryview(buffer)[start + batch_header.CHECKED_FROM : end])


def _connect(source: Source, range_: Range) -> PartitionFetcher:
    limits = source.limits
    return PartitionFetcher(
        list(source.access.bootstrap),
        range_.topic,
        range_.partition,
        min_bytes=limits.fetch_min_bytes,
        max_bytes=limits.fetch_bytes,
        max_wait_ms=limits.fetch_wait_ms,
        read_committed=source.read_committed,
        **source.access.options(),
    )


__all__ = ["FetchedBatch", "RangeFetcher", "batch_error"]
