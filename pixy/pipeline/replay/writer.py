"""Records of a lake into a topic: bytes, timestamps and order kept, once each, also after a kill.

Written by librdkafka, because Spark's Kafka sink has no timestamps and writes twice after a failure.
Every acknowledged record goes to the map of offsets. On a restart the map tells what is done; what was
under way when the process was killed is found in the topic itself: its tail after the last record of
the map is compared, by content, with the records that come next.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from operator import itemgetter

from pixy.kafka.bulk import ANY, MAX_IN_FLIGHT, BulkProducer, read_range
from pixy.kafka.settings import Settings
from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.checksum import content_hash
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.record_reader import Record, read_records
from pixy.pipeline.lake.selection import Matches, Selection
from pixy.pipeline.lake.state import State
from pixy.pipeline.replay.state import ReplayState, last_by

FLUSH_RECORDS = 200_000
FLUSH_SECONDS = 5.0
OPEN_PARTITIONS = 8
"""Partitions that are read at a time; one more waits."""
_PARTITIONS = 1 << 20
"""More than a topic can have."""
_timestamp = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """What goes where.

    Attributes:
        partitions: of the source, those that are selected.
        keep: to the same partition; otherwise librdkafka's partitioner chooses by key.
        starts: by partition of the target, its end when the replay began.
        now_if_missing: a record without a timestamp gets the time of the replay.
        max_rate: records a second; 0 is unlimited.
    """

    topic: str
    to: str
    selection: Selection
    partitions: tuple[int, ...]
    starts: dict[int, int]
    keep: bool = True
    now_if_missing: bool = False
    max_rate: int = 0


@dataclass
class Done:
    """What a run has done."""

    records: int = 0
    found: int = 0
    """Records that a killed run had written without coming to know it."""
    skipped: int = 0
    """Records that an earlier run had written."""


class Replay:
    """One run of a replay.

    Args:
        producer: settings for writing, see :func:`pixy.kafka.bulk.bulk_settings`.
        reader: settings for reading the target's tail.
        told: called with the progress now and then.
    """

    def __init__(
        self,
        lake: Lake,
        log: State,
        plan: Plan,
        kept: ReplayState,
        producer: Settings,
        reader: Settings,
        matches: Matches | None = None,
        told: Callable[[Done], None] = lambda _: None,
    ) -> None:
        self._lake = lake
        self._log = log
        self._plan = plan
        self._kept = kept
        self._producer = BulkProducer(producer, self._landed)
        self._reader = reader
        self._matches = matches
        self._told = told
        self._written: dict[int, set[int]] = {}
        self._tail: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self._in_tail = 0
        self._flushed = time.monotonic()
        self.done = Done()
        self.stopping = threading.Event()

    def run(self, ends: dict[int, int]) -> str:
        """Write all that is not there yet, or until asked to stop; say which of the two.

        Args:
            ends: of the target's partitions, now.

        Raises:
            PixyError: the same run again goes on where this one ended.
        """
        began = time.monotonic()
        resume = self._resume(ends)
        try:
            for partition, chunk in self._chunks(resume):
                if self.stopping.is_set():
                    break
                self._write(partition, chunk)
                self._flush_map()
                self._pace(began)
            self._producer.flush()
        finally:
            self._kept.flush()  # also after an error: what has landed is known
        return "asked to stop" if self.stopping.is_set() else "done"

    # -- what is done already ---------------------------------------------------------------------

    def _resume(self, ends: dict[int, int]) -> dict[int, int]:
        """By source partition, the first offset that is not written."""
        resume = self._known()
        table = self._kept.map()
        newest = last_by(table, "new_partition", "new_offset")
        for partition, start in self._plan.starts.items():
            self._read_tail(partition, max(start, newest.get(partition, -1) + 1), ends[partition])
        if self._in_tail:
            # Before anything is sent: a kill in between must find the same tail again.
            self._settle(resume)
            resume = self._known()
        self.done.skipped = len(table)
        return resume

    def _known(self) -> dict[int, int]:
        table = self._kept.map()
        if self._plan.keep:
            # A partition's records are acknowledged in order: what is before the last is done.
            return {
                partition: offset + 1 for partition, offset in last_by(table, "partition", "offset").items()
            }
        self._written.clear()
        for partition, offset in zip(
            table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True
        ):
            self._written.setdefault(partition, set()).add(offset)
        return {}

    def _read_tail(self, partition: int, start: int, end: int) -> None:
        group = partition if self._plan.keep else ANY
        for record in read_range(self._reader, self._plan.to, partition, start, end):
            found = content_hash(record.timestamp, record.key, record.value, record.headers)
            self._tail.setdefault((group, found), deque()).append((partition, record.offset))
            self._in_tail += 1

    def _settle(self, resume: dict[int, int]) -> None:
        """Note what a killed run has written without coming to know it."""
        budget = OPEN_PARTITIONS * (MAX_IN_FLIGHT + 2 * FLUSH_RECORDS)
        over: set[int] = set()
        for partition, chunk in self._chunks(resume, over):
            written = self._written.get(partition, set())
            for record in chunk:
                if record[0] in written:
                    continue
                budget -= 1
                place = self._take_from_tail(partition, record)
                if place is not None:
                    self._kept.add(partition, [record[0]], place[0], [place[1]])
                    self.done.found += 1
                elif self._plan.keep:
                    over.add(partition)  # they were sent in order: none after it is there
                    break
            if not self._in_tail or budget <= 0:
                break
        self._kept.flush()

    def _take_from_tail(self, partition: int, record: Record) -> tuple[int, int] | None:
        group = partition if self._plan.keep else ANY
        # A record without a timestamp got the time of the replay: it is not to be recognised.
        _, timestamp, key, value, headers = record
        places = self._tail.get((group, content_hash(timestamp, key, value, headers)))
        if not places:
            return None
        self._in_tail -= 1
        return places.popleft()

    # -- the work ---------------------------------------------------------------------------------

    def _chunks(
        self, resume: dict[int, int], over: Container[int] = ()
    ) -> Iterator[tuple[int, list[Record]]]:
        """Chunks of a few partitions in turn, so that all their leaders have something to do."""
        waiting = deque(self._plan.partitions)
        open_: deque[tuple[int, Iterator[list[Record]]]] = deque()
        while waiting or open_:
            while waiting and len(open_) < OPEN_PARTITIONS:
                partition = waiting.popleft()
                open_.append(
                    (
                        partition,
                        read_records(
                            self._lake,
                            self._log,
                            self._plan.topic,
                            partition,
                            self._plan.selection,
                            resume.get(partition, 0),
                            self._matches,
                        ),
                    )
                )
            partition, chunks = open_.popleft()
            chunk = next(chunks, None) if partition not in over else None
            if chunk is not None:
                yield partition, chunk
                open_.append((partition, chunks))

    def _write(self, partition: int, chunk: list[Record]) -> None:
        written = self._written.get(partition)
        if written:
            chunk = [record for record in chunk if record[0] not in written]
        if chunk and min(chunk, key=_timestamp)[1] <= 0:
            chunk = self._with_timestamps(partition, chunk)
        if self._plan.keep:
            self._producer.send(self._plan.to, partition, chunk)
        else:
            # The token is all that comes back: it says the partition too.
            self._producer.send(
                self._plan.to,
                ANY,
                [
                    (offset * _PARTITIONS + partition, timestamp, key, value, headers)
                    for offset, timestamp, key, value, headers in chunk
                ],
            )

    def _with_timestamps(self, partition: int, chunk: list[Record]) -> list[Record]:
        """librdkafka takes 0 for "now" and has no way to write a record without a timestamp."""
        bad = next(record for record in chunk if record[1] <= 0)
        if not self._plan.now_if_missing:
            raise PipelineError(
                f"offset {bad[0]} of {self._plan.topic}/{partition} has timestamp {bad[1]}, which the "
                "client library can not write; --missing-timestamps now gives such records the time of "
                "the replay"
            )
        return [
            (offset, max(timestamp, 0), key, value, headers)
            for offset, timestamp, key, value, headers in chunk
        ]

    def _landed(self, partition: int, tokens: list[int], offsets: list[int]) -> None:
        if self._plan.keep:
            self._kept.add(partition, tokens, partition, offsets)
        else:
            for token, offset in zip(tokens, offsets, strict=True):
                self._kept.add(token % _PARTITIONS, [token // _PARTITIONS], partition, [offset])
        self.done.records += len(offsets)

    def _flush_map(self) -> None:
        now = time.monotonic()
        if self._kept.unsaved >= FLUSH_RECORDS or now - self._flushed >= FLUSH_SECONDS:
            self._kept.flush()
            self._flushed = now
            self._told(self.done)

    def _pace(self, began: float) -> None:
        if self._plan.max_rate:
            due = began + self.done.records / self._plan.max_rate
            while not self.stopping.is_set() and time.monotonic() < due:
                self._producer.poll()
                self.stopping.wait(min(0.2, max(0.0, due - time.monotonic())))


def count(
    lake: Lake,
    log: State,
    topic: str,
    partitions: tuple[int, ...],
    selection: Selection,
    matches: Matches | None = None,
) -> dict[int, int]:
    """How many records a replay would write, by partition; nothing is written."""
    columns = ["partition", "offset", "timestamp", *(["key"] if selection.keys else [])]
    return {
        partition: sum(
            len(chunk) for chunk in read_records(lake, log, topic, partition, selection, 0, matches, columns)
        )
        for partition in partitions
    }
