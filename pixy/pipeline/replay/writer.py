"""Write records of a lake to a topic, each once, also after a kill; keep bytes, timestamps and order.

librdkafka writes them, because Spark's Kafka sink has no timestamps and writes twice after a failure. Every
acknowledged record goes to the map of offsets, so a restart knows the records that are done. It finds those
that were in flight at the kill in the topic itself: it compares the topic's tail, after the last record of
the map, by content with the records that come next.
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
from pixy.pipeline.lake.record_reader import HasFiles, HasLocation, Record, read_records
from pixy.pipeline.lake.selection import Matches, Selection
from pixy.pipeline.replay.group_offsets import last_by
from pixy.pipeline.replay.state import ReplayState

FLUSH_RECORDS = 200_000
FLUSH_SECONDS = 5.0
"""The map is written to disk after this many records or seconds."""
OPEN_PARTITIONS = 8
"""Partitions that are read at a time; the others wait."""
Change = Callable[[int, list[Record]], list[Record]]
"""Returns records of a partition as they are to be written."""
_PARTITIONS = 1 << 20
"""More than a topic can have."""
_timestamp = itemgetter(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Source and target of the records.

    Attributes:
        topic: the topic in the lake.
        to: the topic to write to.
        selection: conditions on the records.
        partitions: selected partitions of the source.
        starts: end offset of each partition of the target when the replay began.
        keep: write to the same partition; otherwise librdkafka's partitioner chooses by key.
        now_if_missing: give a record without a timestamp the time of the replay.
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
class Progress:
    """Counts of a run."""

    records: int = 0
    """Records that this run has written."""
    found: int = 0
    """Records that a killed run had written, and not yet in its map."""
    skipped: int = 0
    """Records that an earlier run had written."""


class ReplayWriter:
    """One run of a replay.

    Args:
        lake: the lake.
        lake_state: its files.
        plan: source and target.
        state: plan and map of earlier runs; this run adds to the map.
        producer: settings for writing, see :func:`pixy.kafka.bulk.bulk_settings`.
        reader: settings for reading the target's tail.
        matches: offsets that match ``selection.where``; None without such a condition.
        on_progress: called whenever the map was written to disk.
        change: returns records of a partition as they are to be written; None for as they are.

    Attributes:
        progress: counts of the run.
        stopping: set it to end the run.
    """

    def __init__(
        self,
        lake: HasLocation,
        lake_state: HasFiles,
        plan: Plan,
        state: ReplayState,
        producer: Settings,
        reader: Settings,
        matches: Matches | None = None,
        on_progress: Callable[[Progress], None] = lambda _: None,
        change: Change | None = None,
    ) -> None:
        self._lake = lake
        self._lake_state = lake_state
        self._plan = plan
        self._state = state
        self._producer = BulkProducer(producer, self._acknowledged)
        self._reader = reader
        self._matches = matches
        self._on_progress = on_progress
        self._change = change
        self._written: dict[int, set[int]] = {}
        self._tail: dict[tuple[int, int], deque[tuple[int, int]]] = {}
        self._in_tail = 0
        self._flushed = time.monotonic()
        self.progress = Progress()
        self.stopping = threading.Event()

    def run(self, ends: dict[int, int]) -> str:
        """Write the records that are not written yet, until done or asked to stop.

        Args:
            ends: current end offset of each partition of the target.

        Returns:
            ``done`` or ``asked to stop``.

        Raises:
            PixyError: a later run resumes where this one ended.
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
            self._state.flush()  # also after an error: the map has every acknowledged record
        return "asked to stop" if self.stopping.is_set() else "done"

    # -- records written before -------------------------------------------------------------------

    def _resume(self, ends: dict[int, int]) -> dict[int, int]:
        """Find the first unwritten offset of each source partition."""
        resume = self._known()
        table = self._state.map()
        newest = last_by(table, "new_partition", "new_offset")
        for partition, start in self._plan.starts.items():
            self._read_tail(partition, max(start, newest.get(partition, -1) + 1), ends[partition])
        if self._in_tail:
            # Before anything is sent: after a kill the next run must find the same tail.
            self._settle(resume)
            resume = self._known()
        self.progress.skipped = len(table)
        return resume

    def _known(self) -> dict[int, int]:
        table = self._state.map()
        if self._plan.keep:
            # A partition's records are acknowledged in order: all before the last one are written.
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
        """Add the records to the map that a killed run had in flight and Kafka has written."""
        budget = OPEN_PARTITIONS * (MAX_IN_FLIGHT + 2 * FLUSH_RECORDS)
        finished: set[int] = set()
        for partition, chunk in self._chunks(resume, finished):
            written = self._written.get(partition, set())
            for record in chunk:
                if record[0] in written:
                    continue
                budget -= 1
                written_at = self._take_from_tail(partition, record)
                if written_at is not None:
                    self._state.add(partition, [record[0]], written_at[0], [written_at[1]])
                    self.progress.found += 1
                elif self._plan.keep:
                    finished.add(partition)  # records are sent in order: none after it was written
                    break
            if not self._in_tail or budget <= 0:
                break
        self._state.flush()

    def _take_from_tail(self, partition: int, record: Record) -> tuple[int, int] | None:
        group = partition if self._plan.keep else ANY
        # A record without a timestamp was given the time of the replay and is not recognized here.
        _, timestamp, key, value, headers = record
        same = self._tail.get((group, content_hash(timestamp, key, value, headers)))
        if not same:
            return None
        self._in_tail -= 1
        return same.popleft()

    # -- the work ---------------------------------------------------------------------------------

    def _chunks(
        self, resume: dict[int, int], finished: Container[int] = ()
    ) -> Iterator[tuple[int, list[Record]]]:
        """Read chunks of a few partitions in turn, so that all their leaders are busy."""
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
                            self._lake_state,
                            self._plan.topic,
                            partition,
                            self._plan.selection,
                            resume.get(partition, 0),
                            self._matches,
                        ),
                    )
                )
            partition, chunks = open_.popleft()
            chunk = next(chunks, None) if partition not in finished else None
            if chunk is not None:
                yield partition, chunk if self._change is None else self._change(partition, chunk)
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
            # Only the token comes back with the acknowledgement, so it carries the partition too.
            self._producer.send(
                self._plan.to,
                ANY,
                [
                    (offset * _PARTITIONS + partition, timestamp, key, value, headers)
                    for offset, timestamp, key, value, headers in chunk
                ],
            )

    def _with_timestamps(self, partition: int, chunk: list[Record]) -> list[Record]:
        """Replace missing timestamps: librdkafka takes 0 for "now" and cannot write a record without one."""
        bad = next(record for record in chunk if record[1] <= 0)
        if not self._plan.now_if_missing:
            raise PipelineError(
                f"offset {bad[0]} of {self._plan.topic}/{partition} has timestamp {bad[1]}, which the "
                "client library cannot write; --missing-timestamps now gives such records the time of "
                "the replay"
            )
        return [
            (offset, max(timestamp, 0), key, value, headers)
            for offset, timestamp, key, value, headers in chunk
        ]

    def _acknowledged(self, partition: int, tokens: list[int], offsets: list[int]) -> None:
        if self._plan.keep:
            self._state.add(partition, tokens, partition, offsets)
        else:
            for token, offset in zip(tokens, offsets, strict=True):
                self._state.add(token % _PARTITIONS, [token // _PARTITIONS], partition, [offset])
        self.progress.records += len(offsets)

    def _flush_map(self) -> None:
        now = time.monotonic()
        if self._state.unsaved >= FLUSH_RECORDS or now - self._flushed >= FLUSH_SECONDS:
            self._state.flush()
            self._flushed = now
            self._on_progress(self.progress)

    def _pace(self, began: float) -> None:
        if self._plan.max_rate:
            due = began + self.progress.records / self._plan.max_rate
            while not self.stopping.is_set() and time.monotonic() < due:
                self._producer.poll()
                self.stopping.wait(min(0.2, max(0.0, due - time.monotonic())))


def count(
    lake: HasLocation,
    state: HasFiles,
    topic: str,
    partitions: tuple[int, ...],
    selection: Selection,
    matches: Matches | None = None,
) -> dict[int, int]:
    """Count the records that a replay would write, by partition; write nothing.

    Args:
        lake: the lake.
        state: its folded log.
        topic: the topic in the lake.
        partitions: the partitions to count.
        selection: conditions on the records.
        matches: offsets that match ``selection.where``; None without such a condition.
    """
    columns = ["partition", "offset", "timestamp", *(["key"] if selection.keys else [])]
    return {
        partition: sum(
            len(chunk)
            for chunk in read_records(lake, state, topic, partition, selection, 0, matches, columns)
        )
        for partition in partitions
    }
