"""Records that are gone on purpose: what their entry says, and how it fits to the ranges that had them.

An entry of an expiry or an erasure lists, by partition, ranges with the stats of the removed records. What a lake should
still hold is the difference. A range is exact if every offset of it was removed; scattered offsets make many exact
ranges, and if there are more than ``MAX_RANGES`` those with the smallest gaps between them are told as one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.entry import Range
from pixy.pipeline.lake.state import Archived

MAX_RANGES: Final = 2_000
"""Ranges of one entry, which is one line of JSON in Delta's log."""

COMPARED: Final = ("count", "bytes", "checksum", "content_checksum")
"""The stats that are known after a removal; positions and times are in the checksums, too."""

Run = tuple[int, Stats]
"""A partition, and the stats of removed records of it."""


class RemovedRanges:
    """Collects the stats of removed records; holds at most twice ``most`` of them.

    Args:
        most: ranges to keep; a partition has one at least.
    """

    def __init__(self, most: int = MAX_RANGES) -> None:
        self._most = most
        self._runs: list[Run] = []

    def add(self, partition: int, stats: Stats) -> None:
        """Add records of a partition, whose offsets need not be contiguous."""
        self._runs.append((partition, stats))
        if len(self._runs) > 2 * self._most:
            self._runs = self._merged()

    def ranges(self, topic: str, topic_id: str, why: str) -> tuple[Range, ...]:
        """Return the ranges, sorted.

        Args:
            topic, topic_id: the epoch.
            why: goes to :attr:`Range.skipped`.
        """
        return tuple(
            Range(topic, topic_id, partition, stats.first, stats.last + 1, stats, why)
            for partition, stats in self._merged()
        )

    def _merged(self) -> list[Run]:
        runs = _join(sorted(self._runs, key=lambda run: (run[0], run[1].first)), 0)
        if len(runs) > self._most:
            gaps = sorted(
                after[1].first - before[1].last - 1
                for before, after in pairwise(runs)
                if before[0] == after[0]
            )
            if gaps:
                runs = _join(runs, gaps[min(len(runs) - self._most, len(gaps)) - 1])
        return runs


def _join(runs: Iterable[Run], gap: int) -> list[Run]:
    """Make one of runs of a partition, given sorted, that are at most ``gap`` offsets apart."""
    joined: list[Run] = []
    for partition, stats in runs:
        if joined and joined[-1][0] == partition and stats.first - joined[-1][1].last - 1 <= gap:
            joined[-1] = (partition, joined[-1][1] + stats)
        else:
            joined.append((partition, stats))
    return joined


@dataclass(slots=True)
class Segment:
    """Ranges of a partition that cannot be looked at apart, because a removal overlaps all of them; mostly a single one."""

    start: int
    end: int
    archived: list[Archived] = field(default_factory=list)
    removed: list[Archived] = field(default_factory=list)

    @property
    def expected(self) -> Stats:
        """Stats of the records that should still be there; with removals the bounds are no more than bounds."""
        return total(each.range.stats for each in self.archived) - total(
            each.range.stats for each in self.removed
        )

    def fits(self, found: Stats) -> bool:
        """Tell whether the records found are those that should be there."""
        expected = self.expected
        if not self.removed:
            return found == expected
        return all(getattr(found, name) == getattr(expected, name) for name in COMPARED)


def segments(archived: Iterable[Archived], removed: Iterable[Archived]) -> list[Segment]:
    """Divide the ranges of a partition into the smallest parts whose stats are known.

    Args:
        archived: all ranges of an epoch's partition, skipped ones too.
        removed: those of expiries and erasures.
    """
    waiting = sorted(removed, key=lambda each: each.range.start, reverse=True)
    found: list[Segment] = []
    for each in sorted(archived, key=lambda one: one.range.start):
        if not found or found[-1].end <= each.range.start:
            found.append(Segment(each.range.start, each.range.end))
        last = found[-1]
        last.archived.append(each)
        last.end = max(last.end, each.range.end)
        while waiting and waiting[-1].range.start < last.end:
            last.removed.append(waiting.pop())
            last.end = max(last.end, last.removed[-1].range.end)
    return found


def counts(removed: Iterable[Iterable[Archived]]) -> dict[str, int]:
    """Sum the removed records by reason: ``expired``, ``erased``."""
    found: dict[str, int] = {}
    for ranges in removed:
        for each in ranges:
            found[each.range.reason] = found.get(each.range.reason, 0) + each.range.stats.count
    return found
