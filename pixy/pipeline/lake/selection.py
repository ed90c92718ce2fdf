"""Conditions that choose records of a topic in the lake."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.state import State


class Offsets(Protocol):
    """Sorted offsets of a partition."""

    def between(self, start: int, end: int) -> array[int]:
        """Return the offsets ``[start, end)``."""


Matches = Mapping[int, Offsets]
"""Offsets of the records that match ``Selection.where``, by partition."""

Piece = tuple[int, Sequence[int]]
"""A partition, and sorted offsets of it."""

_KEPT: Final = 4
"""Pieces of a partition that are kept in memory: files that overlap are read in turn."""
_MATCHES = pa.schema([("partition", pa.int32()), ("offset", pa.int64())])


@dataclass(frozen=True, slots=True)
class Selection:
    """Conditions that must all hold; an empty one always holds.

    Attributes:
        since, until: timestamps in milliseconds of the epoch, ``until`` excluded.
        offsets: ``[start, end)`` by partition; other partitions are left out.
        partitions: only these; empty for all.
        keys: only records with one of these keys; empty for all.
        where: SQL over the lake's columns; Spark evaluates it once, to ``Matches``.
        ends: end offset of each partition in the lake when the selection was made; records archived
            later are left out.
    """

    since: int | None = None
    until: int | None = None
    offsets: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    partitions: frozenset[int] = frozenset()
    keys: tuple[bytes, ...] = ()
    where: str = ""
    ends: Mapping[int, int] = field(default_factory=dict)

    def bounds(self, partition: int) -> tuple[int, int] | None:
        """Return the offsets ``[start, end)`` that may be selected; None if the partition is left out."""
        if self.partitions and partition not in self.partitions:
            return None
        if self.offsets and partition not in self.offsets:
            return None
        start, end = self.offsets.get(partition, (0, 1 << 62))
        return start, min(end, self.ends.get(partition, 0))

    def may_hold(self, file: DataFile | Stats, start: int, end: int) -> bool:
        """Tell whether a file may hold selected records.

        Args:
            file: the file, or other records, with the bounds of its offsets and timestamps.
            start, end: offsets ``[start, end)`` that may be selected, see :meth:`bounds`.
        """
        return (
            file.last >= start
            and file.first < end
            and (self.since is None or file.max_timestamp >= self.since)
            and (self.until is None or file.min_timestamp < self.until)
        )


def partitions_of(state: State, topic: str) -> dict[int, int]:
    """Return the end of each archived partition of a topic: the offset after its last record."""
    return {
        partition: max(each.range.end for each in ranges)
        for (name, partition), ranges in sorted(state.ranges.items())
        if name == topic
    }


def save_matches(pieces: Iterable[Piece], path: str) -> None:
    """Write the matches of a predicate to a Parquet file, a row group for each piece.

    Args:
        pieces: sorted.
        path: the file.
    """
    with pq.ParquetWriter(path, _MATCHES) as writer:
        for partition, offsets in pieces:
            columns = [
                pa.repeat(pa.scalar(partition, pa.int32()), len(offsets)),
                pa.array(offsets, pa.int64()),
            ]
            writer.write_table(pa.table(columns, schema=_MATCHES))


class SavedMatches(Mapping[int, Offsets]):
    """Reads the file of :func:`save_matches`, a few pieces at a time; threads may share it.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        file = pq.ParquetFile(path)
        pieces: dict[int, list[tuple[int, int, int]]] = {}
        for number in range(file.num_row_groups):
            partition, offset = (file.metadata.row_group(number).column(at).statistics for at in (0, 1))
            pieces.setdefault(partition.min, []).append((offset.min, offset.max, number))
        lock = threading.Lock()
        self._found = {
            partition: SavedOffsets(file, lock, sorted(found)) for partition, found in pieces.items()
        }

    def __getitem__(self, partition: int) -> SavedOffsets:
        return self._found[partition]

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class SavedOffsets:
    """The matches of one partition.

    Args:
        file: of all matches.
        lock: held while the file is read.
        pieces: first and last offset, and row group, of each piece; sorted.
    """

    def __init__(
        self, file: pq.ParquetFile, lock: threading.Lock, pieces: Sequence[tuple[int, int, int]]
    ) -> None:
        self._file = file
        self._lock = lock
        self._pieces = pieces
        self._kept: dict[int, array[int]] = {}

    def between(self, start: int, end: int) -> array[int]:
        """Return the offsets ``[start, end)``."""
        found = array("q")
        first = bisect_left(self._pieces, start, key=lambda piece: piece[1])
        with self._lock:
            for low, _, number in self._pieces[first:]:
                if low >= end:
                    break
                piece = self._read(number)
                found.extend(piece[bisect_left(piece, start) : bisect_left(piece, end)])
        return found

    def _read(self, number: int) -> array[int]:
        found = self._kept.pop(number, None)
        if found is None:
            found = array("q")
            found.frombytes(self._file.read_row_group(number, ["offset"]).column(0).to_numpy().tobytes())
        self._kept[number] = found
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return found


class FoundOffsets:
    """Offsets in memory.

    Args:
        offsets: sorted.
    """

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._offsets = array("q", offsets)

    def between(self, start: int, end: int) -> array[int]:
        """Return the offsets ``[start, end)``."""
        return self._offsets[bisect_left(self._offsets, start) : bisect_left(self._offsets, end)]
