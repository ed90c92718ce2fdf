"""A task's side: one range of offsets of one partition, batch by batch, through one connection.

What may pass (a broker gone, another leader) is tried again until the partition has yielded nothing for
``poll_timeout``; what will not is told with topic, partition and offset. Nothing is ever left out silently:
offsets that are gone, a checksum that does not match and a topic made anew end the task.
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
class Found:
    """A batch (or a message of the formats before Kafka 0.11) in what was fetched.

    Attributes:
        buffer: the record set; the batch is ``buffer[start:end]``.
        first: where reading began; what the batch has before is not wanted.
        header: None for magic 0 and 1.
        crc_valid: whether the checksum matches; always true where it was asked to be checked.
    """

    buffer: bytes
    start: int
    end: int
    first: int
    header: Header | None
    crc_valid: bool = True


class _Gone(Exception):
    """The topic is not there any more, and that is no reason to fail."""


def batch_error(place: object, offset: int, error: object) -> SourceError:
    """What is told of a batch that can not be read."""
    return SourceError(f"{place}: the batch at offset {offset} can not be read: {error}")


class RangeFetcher:
    """Fetches one range.

    Args:
        check_crc: a wrong checksum is an error; without, it is told in ``Found.crc_valid``.
        connect: makes the client of the partition; for tests.
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
        self._fresh = clock()
        self._attempts = 0

    def __iter__(self) -> Iterator[Found]:
        """The batches with offsets of the range, control batches too; none of aborted transactions."""
        try:
            with self._connect(self._source, self._range) as fetcher:
                self._check_id()
                while self._position < self._range.end:
                    result = self._fetch(fetcher)
                    if result is not None:
                        yield from self._batches(result)
                self._check_id()
        except _Gone:
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
            # Also an answer that can not be parsed: the connection is closed, another may do better.
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
        """Before another attempt, at another broker perhaps; raises SourceError when time is up."""
        limits = self._source.limits
        waited = self._clock() - self._fresh
        if final or waited >= limits.poll_timeout:
            after = "" if final else f" (for {waited:.0f} s, kafkaConsumer.pollTimeoutMs)"
            raise SourceError(f"{self._range} at offset {self._position}: {why}{after}")
        fetcher.forget()
        delay = min(limits.backoff * 2 ** min(self._attempts, 16), limits.backoff_max)
        self._attempts += 1
        self._sleep(min(delay, max(0.0, limits.poll_timeout - waited)))
        self._check_id()

    def _starved(self, result: FetchResult) -> None:
        waited = self._clock() - self._fresh
        if waited >= self._source.limits.poll_timeout:
            end = result.last_stable_offset if self._source.read_committed else result.high_watermark
            raise SourceError(
                f"{self._range}: offsets {self._position} to {self._range.end - 1} did not come in {waited:.0f} s "
                f"(kafkaConsumer.pollTimeoutMs); the log ends at {end}"
            )
        self._sleep(self._source.limits.backoff)

    def _out_of_range(self, fetcher: PartitionFetcher) -> None:
        try:
            found = fetcher.list_offsets(OLDEST)
        except (WireError, OSError) as error:
            self._pause(fetcher, str(error), final=False)
            return
        if found.error_code:
            self._pause(fetcher, describe(found.error_code), final=not lookup(found.error_code).retriable)
            return
        until = self._range.end - 1
        if found.offset > self._position:
            until = min(found.offset, self._range.end) - 1
            why = f"they were deleted (retention, DeleteRecords), the log starts at {found.offset}"
        else:
            why = "the log ends before them: the topic was deleted and created again, or lost its end"
        told = f"{self._range}: offsets {self._position} to {until} are out of range: {why}"
        if self._source.fail_on_data_loss:
            raise SourceError(f"{told}; failOnDataLoss=false goes on without them")
        logger.warning("%s", told)
        self._position = until + 1
        self._fresh = self._clock()

    def _check_id(self) -> None:
        """The topic is the one that the range was planned for; a name alone does not tell."""
        planned = self._range.topic_id
        if not planned:
            return
        try:
            body = metadata(self._source.access, [self._range.topic])
        except (WireError, OSError):
            return  # what can not be reached is told by the fetches
        here = next((each for each in body["Topics"] if each["Name"] == self._range.topic), None)
        now = topic_id(here) if here is not None and not here["ErrorCode"] else ""
        gone = here is not None and here["ErrorCode"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if gone or (now and now != planned):
            became = "was deleted" if gone else f"was deleted and created again (it has id {now} now)"
            told = (
                f"{self._range}: the topic with id {planned}, of which offsets {self._range.start} to "
                f"{self._range.end - 1} were to be read, {became}"
            )
            if self._source.fail_on_data_loss:
                raise SourceError(f"{told}; failOnDataLoss=false goes on without them")
            logger.warning("%s", told)
            raise _Gone

    # -- batches ---------------------------------------------------------------------------------

    def _batches(self, result: FetchResult) -> Iterator[Found]:
        listed = result.aborted if self._source.read_committed else ()
        begun = sorted(listed, key=lambda each: each[1], reverse=True)
        aborting: set[int] = set()
        before = self._position
        for found in self._slices(result.record_set):
            self._fresh, self._attempts = self._clock(), 0
            header = found.header
            if header is None:
                yield found
                continue
            self._position = max(self._position, header.next_offset)
            while begun and begun[-1][1] <= header.last_offset:
                aborting.add(begun.pop()[0])
            if header.is_control and self._aborts(found):
                aborting.discard(header.producer_id)
            aborted = header.is_transactional and not header.is_control and header.producer_id in aborting
            if not aborted:
                yield found
        if self._position == before:
            self._starved(result)

    def _slices(self, buffer: bytes) -> Iterator[Found]:
        offset = first = self._position
        try:
            for start, end, magic in slices(buffer):
                offset = _OFFSET.unpack_from(buffer, start)[0]
                if offset >= self._range.end and magic == 2:
                    self._position = self._range.end
                    return
                if magic < 2:
                    # Of a compressed one this is the last offset in it.
                    self._position = max(self._position, offset + 1)
                    yield Found(buffer, start, end, first, None)
                    continue
                header = batch_header.read(buffer, start, check_crc=self._check_crc)
                valid = self._check_crc or _crc(buffer, start, end) == header.crc
                yield Found(buffer, start, end, first, header, valid)
        except DecodeError as error:
            raise batch_error(self._range, offset, error) from error

    def _aborts(self, found: Found) -> bool:
        if not self._source.read_committed:
            return False
        # Compaction may have left the batch and taken the marker.
        records = unmarshal(found.buffer, found.start, check_crc=False).records()
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


__all__ = ["Found", "RangeFetcher", "batch_error"]
