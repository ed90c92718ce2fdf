"""Conditions that choose records of a topic in the lake."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.state import State

Matches = Mapping[int, "array[int]"]
"""Sorted offsets of the records that match ``Selection.where``, by partition."""

Piece = tuple[int, Sequence[int]]
"""A partition, and sorted offsets of it."""

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


class SavedMatches(Mapping[int, "array[int]"]):
    """Reads the file of :func:`save_matches`, the matches of one partition at a time.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._file = pq.ParquetFile(path)
        self._groups: dict[int, list[int]] = {}
        for number in range(self._file.num_row_groups):
            partition = self._file.metadata.row_group(number).column(0).statistics.min
            self._groups.setdefault(partition, []).append(number)

    def __getitem__(self, partition: int) -> array[int]:
        found = array("q")
        for number in self._groups[partition]:
            found.frombytes(self._file.read_row_group(number, ["offset"]).column(0).to_numpy().tobytes())
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)
