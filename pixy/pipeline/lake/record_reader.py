"""Read the selected records of a partition in the order of their offsets."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pixy.pipeline.lake.data_files import header_lists, millis, open_file, read_batches
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.locations import Location
from pixy.pipeline.lake.selection import FoundOffsets, Matches, Offsets, Selection
from pixy.wire.types import RecordHeaders

_COLUMNS = ["partition", "offset", "timestamp", "key", "value", "headers"]

Record = tuple[int, int, bytes | None, bytes | None, RecordHeaders | None]
"""Offset, timestamp in milliseconds, key, value, headers."""


class HasLocation(Protocol):
    """A lake, or what stands for it on an executor."""

    @property
    def location(self) -> Location:
        """Its folder."""


class HasFiles(Protocol):
    """A lake's state, or what stands for it on an executor."""

    def select(self, topic: str) -> list[DataFile]:
        """Return the live files of a topic."""


def read_records(
    lake: HasLocation,
    state: HasFiles,
    topic: str,
    partition: int,
    selection: Selection,
    start: int = 0,
    matches: Matches | None = None,
    columns: Sequence[str] = _COLUMNS,
) -> Iterator[list[Record]]:
    """Read the selected records of a partition, in order, in chunks.

    Args:
        lake: the lake.
        state: its files.
        topic: name of the topic.
        partition: number of the partition.
        selection: conditions; ``ends`` must be filled in.
        start: skip records below this offset.
        matches: offsets that match ``selection.where``; None without such a condition.
        columns: columns to read; a record lacks (None) what is not read.

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
        if file.may_hold(partition) and selection.may_hold(file, low, high)
    ]
    files.sort(key=lambda file: file.first)
    wanted = None if matches is None else matches.get(partition, FoundOffsets())

    def chunks(file: DataFile) -> Iterator[list[Record]]:
        return _chunks(lake, file, partition, selection, (low, high), wanted, columns)

    return _merge((file.first, chunks(file)) for file in files)


def _chunks(
    lake: HasLocation,
    file: DataFile,
    partition: int,
    selection: Selection,
    bounds: tuple[int, int],
    wanted: Offsets | None,
    columns: Sequence[str],
) -> Iterator[list[Record]]:
    path = lake.location.for_arrow(file.path)
    opened = open_file(path, lake.location.filesystem)
    with opened:
        groups = [
            number
            for number in range(opened.num_row_groups)
            if _may_hold(opened.metadata.row_group(number), partition, bounds)
        ]
        chosen = (
            _filter(batch, partition, selection, bounds, wanted)
            for batch in read_batches(opened, path, list(columns), groups)
        )
        for batch in _ahead(chosen):
            if len(batch):
                yield _records(batch)


def _ahead(source: Generator[pa.RecordBatch, None, None]) -> Iterator[pa.RecordBatch]:
    """Decode the next batch in a thread while the caller uses this one.

    Decoding is a third of a replay's time, and pyarrow releases the GIL for it. At most one batch waits.
    """
    try:
        with ThreadPoolExecutor(1, "read-ahead") as reader:
            following = reader.submit(next, source, None)
            while (batch := following.result()) is not None:
                following = reader.submit(next, source, None)
                yield batch
    finally:
        source.close()


def _may_hold(group: Any, partition: int, bounds: tuple[int, int]) -> bool:
    """Tell from the footer's statistics whether a row group may hold records of a partition."""
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
    wanted: Offsets | None,
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
        found = wanted.between(pc.min(offset).as_py(), pc.max(offset).as_py() + 1)
        masks.append(pc.is_in(offset, value_set=pa.array(found, pa.int64())))
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
"""Next offset, rank of the source, position in the chunk, the chunk, the chunks after it."""


def _merge(sources: Iterable[tuple[int, _Chunks]]) -> _Chunks:
    """Merge the chunks of several sources into chunks in offset order.

    A day's file overlaps with the next day's where records are late. So a source is opened when its
    first offset is reached, and while only one source is open its chunks pass unchanged.

    Args:
        sources: (lower bound of its first offset, its chunks), sorted.
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
            # Pass at least one record, even if two files have the same offset.
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
