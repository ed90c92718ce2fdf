"""Which records of a topic in the lake, and those records in the order of their offsets."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pixy.pipeline.lake.arrow_store import filesystem_of
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_files import batches, header_lists, millis, open_file
from pixy.pipeline.lake.lake import DataFile, Lake, State
from pixy.wire.types import RecordHeaders

_COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]


Record = tuple[int, int, bytes | None, bytes | None, RecordHeaders | None]
"""Offset, timestamp in milliseconds, key, value, headers."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that all must hold; an empty one always does.

    Attributes:
        since, until: milliseconds; ``until`` itself is not in.
        offsets: by partition, ``[start, end)``; other partitions are left out.
        partitions: these only.
        keys: one of these.
        where: SQL over the lake's columns; its matches are in ``Matches``.
        ends: by partition, the offset where the lake ended when the selection was made: what is
            archived later is not in it.
    """

    since: int | None = None
    until: int | None = None
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    partitions: frozenset[int] = frozenset()
    keys: tuple[bytes, ...] = ()
    where: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """The offsets that may be selected; None if the partition is not."""
        if self.partitions and partition not in self.partitions:
            return None
        if self.offsets and partition not in self.offsets:
            return None
        start, end = self.offsets.get(partition, (0, 1 << 62))
        return start, min(end, self.ends.get(partition, 0))

    def may_hold(self, stats: Stats, start: int, end: int) -> bool:
        """Whether records with these figures can be selected at all."""
        return (
            stats.count > 0
            and stats.last >= start
            and stats.first < end
            and (self.since is None or stats.max_timestamp >= self.since)
            and (self.until is None or stats.min_timestamp < self.until)
        )


Matches = Mapping[int, "array[int]"]
"""Sorted offsets by partition: what ``where`` found."""


def partitions_of(state: State, topic: str) -> dict[int, int]:
    """The partitions of a topic in the lake and the offset after their last archived one."""
    return {
        partition: max(each.range.end for each in ranges)
        for (name, partition), ranges in sorted(state.ranges.items())
        if name == topic
    }


def read(
    lake: Lake,
    state: State,
    topic: str,
    partition: int,
    selection: Selection,
    start: int = 0,
    matches: Matches | None = None,
    columns: Sequence[str] = _COLUMNS,
) -> Iterator[list[Record]]:
    """The selected records of a partition from offset ``start`` on, in order, some at a time.

    Raises:
        LakeError: a file is missing, damaged or of an unknown version.
    """
    bounds = selection.bounds(partition)
    if bounds is None:
        return iter(())
    low, high = max(bounds[0], start), bounds[1]
    files = [
        file
        for file in state.select(topic)
        if selection.may_hold(file.partitions.get(partition, Stats()), low, high)
    ]
    files.sort(key=lambda file: file.partitions[partition].first)
    wanted = None if matches is None else matches.get(partition, array("q"))

    def chunks(file: DataFile) -> Iterator[list[Record]]:
        return _chunks(lake, file, partition, selection, (low, high), wanted, columns)

    return _merge((file.partitions[partition].first, chunks(file)) for file in files)


def _chunks(
    lake: Lake,
    file: DataFile,
    partition: int,
    selection: Selection,
    bounds: tuple[int, int],
    wanted: array[int] | None,
    columns: Sequence[str],
) -> Iterator[list[Record]]:
    path = lake.path(file.path)
    opened = open_file(path, filesystem_of(lake.store))
    with opened:
        groups = [
            number
            for number in range(opened.num_row_groups)
            if _may_hold(opened.metadata.row_group(number), partition, bounds)
        ]
        chosen = (
            _filter(batch, partition, selection, bounds, wanted)
            for batch in batches(opened, path, list(columns), groups)
        )
        for batch in _ahead(chosen):
            if len(batch):
                yield _records(batch)


def _ahead(source: Generator[pa.RecordBatch, None, None]) -> Iterator[pa.RecordBatch]:
    """The same, the next one being read while this one is used: decoding is a third of a replay's time,
    and takes no lock of Python's. One batch is the bound."""
    try:
        with ThreadPoolExecutor(1, "read-ahead") as reader:
            following = reader.submit(next, source, None)
            while (batch := following.result()) is not None:
                following = reader.submit(next, source, None)
                yield batch
    finally:
        source.close()


def _may_hold(group: Any, partition: int, bounds: tuple[int, int]) -> bool:
    """Whether a row group can hold records of a partition, by the statistics in the footer."""
    for number in range(group.num_columns):
        column = group.column(number)
        known = column.statistics if column.path_in_schema in ("partition", "offset") else None
        if known is None or not known.has_min_max:
            continue
        if column.path_in_schema == "partition" and not known.min <= partition <= known.max:
            return False
        if column.path_in_schema == "offset" and (known.max < bounds[0] or known.min >= bounds[1]):
            return False
    return True


def _filter(
    batch: pa.RecordBatch,
    partition: int,
    selection: Selection,
    bounds: tuple[int, int],
    wanted: array[int] | None,
) -> pa.RecordBatch:
    offset = batch.column("offset")
    masks = [
        pc.equal(batch.column("partition"), partition),
        pc.greater_equal(offset, bounds[0]),
        pc.less(offset, bounds[1]),
    ]
    timestamp = batch.column("timestamp").cast(pa.int64())
    if selection.since is not None:
        masks.append(pc.greater_equal(timestamp, selection.since))
    if selection.until is not None:
        masks.append(pc.less(timestamp, selection.until))
    if selection.keys:
        masks.append(
            pc.fill_null(
                pc.is_in(batch.column("key"), value_set=pa.array(selection.keys, pa.binary())), False
            )
        )
    if wanted is not None:
        at = bisect_left(wanted, pc.min(offset).as_py())
        to = bisect_left(wanted, pc.max(offset).as_py() + 1)
        masks.append(pc.is_in(offset, value_set=pa.array(wanted[at:to], pa.int64())))
    mask = masks[0]
    for each in masks[1:]:
        mask = pc.and_(mask, each)
    return batch if pc.all(mask).as_py() else batch.filter(mask)


def _records(batch: pa.RecordBatch) -> list[Record]:
    nothing: list[Any] = [None] * len(batch)
    names = batch.schema.names
    return list(
        zip(
            batch.column("offset").to_numpy().tolist(),
            millis(batch.column("timestamp")),
            batch.column("key").to_pylist() if "key" in names else nothing,
            batch.column("value").to_pylist() if "value" in names else nothing,
            header_lists(batch.column("headers")) if "headers" in names else nothing,
            strict=True,
        )
    )


# -- order ----------------------------------------------------------------------------------------

_Chunks = Iterator[list[Record]]
_offset = itemgetter(0)
_Heap = list[tuple[int, int, int, list[Record], _Chunks]]
"""Next offset, the source's rank, position in the chunk, the chunk, the chunks after it."""


def _merge(sources: Iterable[tuple[int, _Chunks]]) -> _Chunks:
    """Chunks of several sources as one ordered run of chunks.

    Args:
        sources: (at most its first offset, its chunks), ordered. A day's file overlaps with the next
            one's where records are late, so a source is opened when its first offset is reached, and
            where only one is open its chunks pass as they are.
    """
    waiting = list(sources)
    waiting.reverse()
    heap: _Heap = []
    while waiting or heap:
        while waiting and (not heap or waiting[-1][0] <= heap[0][3][-1][0]):
            _push(heap, waiting.pop()[1], len(waiting))
        if not heap:
            continue
        _, rank, at, chunk, rest = heapq.heappop(heap)
        cut = len(chunk)
        if heap and chunk[-1][0] >= heap[0][0]:
            # At least one passes, should two files have the same offset.
            cut = max(at + 1, bisect_left(chunk, heap[0][0], at, key=_offset))
        yield chunk[at:cut] if at or cut < len(chunk) else chunk
        if cut < len(chunk):
            heapq.heappush(heap, (chunk[cut][0], rank, cut, chunk, rest))
        else:
            _push(heap, rest, rank)


def _push(heap: _Heap, chunks: _Chunks, rank: int) -> None:
    chunk = next(chunks, None)
    if chunk:
        heapq.heappush(heap, (chunk[0][0], rank, 0, chunk, chunks))


def save_matches(table: pa.Table, path: str) -> None:
    """Keep what a predicate found: columns ``partition``, ``offset``."""
    pq.write_table(table.sort_by([("partition", "ascending"), ("offset", "ascending")]), path)


def load_matches(path: str) -> dict[int, array[int]]:
    """What :func:`save_matches` kept."""
    table = pq.read_table(path)
    found: dict[int, array[int]] = {}
    for partition in pc.unique(table.column("partition")).to_pylist():
        offsets = table.filter(pc.equal(table.column("partition"), partition)).column("offset")
        found[partition] = array("q", offsets.to_pylist())
    return found
