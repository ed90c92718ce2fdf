"""Conditions that choose records of a topic in the lake."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.state import State

Matches = Mapping[int, "array[int]"]
"""Sorted offsets of the records that match ``Selection.where``, by partition."""


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
        """Offsets ``[start, end)`` that may be selected; None if the partition is left out."""
        if self.partitions and partition not in self.partitions:
            return None
        if self.offsets and partition not in self.offsets:
            return None
        start, end = self.offsets.get(partition, (0, 1 << 62))
        return start, min(end, self.ends.get(partition, 0))

    def may_hold(self, stats: Stats, start: int, end: int) -> bool:
        """Tell whether a set of records may hold selected ones.

        Args:
            stats: stats of the records.
            start, end: offsets ``[start, end)`` that may be selected, see :meth:`bounds`.
        """
        return (
            stats.count > 0
            and stats.last >= start
            and stats.first < end
            and (self.since is None or stats.max_timestamp >= self.since)
            and (self.until is None or stats.min_timestamp < self.until)
        )


def partitions_of(state: State, topic: str) -> dict[int, int]:
    """End offset of each archived partition of a topic."""
    return {
        partition: max(each.range.end for each in ranges)
        for (name, partition), ranges in sorted(state.ranges.items())
        if name == topic
    }


def save_matches(table: pa.Table, path: str) -> None:
    """Write the matches of a predicate to a Parquet file.

    Args:
        table: columns ``partition`` and ``offset``, in any order.
        path: the file.
    """
    pq.write_table(table.sort_by([("partition", "ascending"), ("offset", "ascending")]), path)


def load_matches(path: str) -> dict[int, array[int]]:
    """Read the file of :func:`save_matches`."""
    table = pq.read_table(path)
    found: dict[int, array[int]] = {}
    for partition in pc.unique(table.column("partition")).to_pylist():
        offsets = table.filter(pc.equal(table.column("partition"), partition)).column("offset")
        found[partition] = array("q", offsets.to_pylist())
    return found
