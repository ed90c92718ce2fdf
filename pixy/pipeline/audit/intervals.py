"""Sets of offsets as half-open ranges, with union, intersection, difference and overlaps. Pure.

A partition of a billion offsets with a hundred holes has a hundred and one ranges here, and each operation
walks over them once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

Range = tuple[int, int]
"""Offsets ``[start, end)``."""


@dataclass(frozen=True, slots=True)
class Intervals:
    """A set of offsets; create it with :meth:`of`, :meth:`span` or :meth:`offsets`.

    Attributes:
        ranges: sorted, not empty, neither touching nor overlapping: equal sets have equal ranges.
    """

    ranges: tuple[Range, ...] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Intervals:
        """Return the union of ranges in any order; an empty or reversed range has no offsets."""
        merged: list[Range] = []
        for start, end in sorted(each for each in ranges if each[0] < each[1]):
            if merged and start <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(merged[-1][1], end))
            else:
                merged.append((start, end))
        return cls(tuple(merged))

    @classmethod
    def span(cls, start: int, end: int) -> Intervals:
        """Return the set of the offsets ``[start, end)``."""
        return cls(((start, end),)) if start < end else cls()

    @classmethod
    def offsets(cls, offsets: Iterable[int]) -> Intervals:
        """Return the set of single offsets, in any order."""
        return cls.of((offset, offset + 1) for offset in offsets)

    @property
    def count(self) -> int:
        """Number of offsets."""
        return sum(end - start for start, end in self.ranges)

    @property
    def start(self) -> int:
        """The lowest offset; raises IndexError if the set is empty."""
        return self.ranges[0][0]

    @property
    def end(self) -> int:
        """The offset after the highest one; raises IndexError if the set is empty."""
        return self.ranges[-1][1]

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __contains__(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self.ranges)

    def __iter__(self) -> Iterator[Range]:
        return iter(self.ranges)

    def __or__(self, other: Intervals) -> Intervals:
        return Intervals.of(chain(self.ranges, other.ranges))

    def __and__(self, other: Intervals) -> Intervals:
        found: list[Range] = []
        mine, theirs = iter(self.ranges), iter(other.ranges)
        a, b = next(mine, None), next(theirs, None)
        while a is not None and b is not None:
            start, end = max(a[0], b[0]), min(a[1], b[1])
            if start < end:
                found.append((start, end))
            if a[1] <= b[1]:
                a = next(mine, None)
            else:
                b = next(theirs, None)
        return Intervals(tuple(found))

    def __sub__(self, other: Intervals) -> Intervals:
        if not self.ranges or not other.ranges:
            return self
        return self & other.complement(self.start, self.end)

    def complement(self, start: int, end: int) -> Intervals:
        """Return the offsets of ``[start, end)`` that are not in the set."""
        found: list[Range] = []
        at = start
        for low, high in self.ranges:
            if high <= at:
                continue
            if low >= end:
                break
            if low > at:
                found.append((at, low))
            at = high
        if at < end:
            found.append((at, end))
        return Intervals(tuple(found))


def overlaps(ranges: Iterable[Range]) -> list[tuple[int, int, int]]:
    """Return the parts that two or more ranges cover, as (start, end, number of ranges)."""
    events: list[tuple[int, int]] = []
    for start, end in ranges:
        if start < end:
            events += ((start, 1), (end, -1))
    found: list[tuple[int, int, int]] = []
    depth = last = 0
    for at, change in sorted(events):
        if depth > 1 and at > last:
            if found and found[-1][1] == last and found[-1][2] == depth:
                found[-1] = (found[-1][0], at, depth)
            else:
                found.append((last, at, depth))
        depth += change
        last = at
    return found


__all__ = ["Intervals", "Range", "overlaps"]
