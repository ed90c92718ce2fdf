"""The offsets of a partition that are done: all below a position, and ranges beyond it.

Pure: no clock, no Kafka. The position is committed as the offset, the ranges in its metadata.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from pixy.engine.consume.sparse_acks import Range


@dataclass(frozen=True, slots=True)
class Position:
    """A position to commit: every offset below ``offset`` and every one in ``ranges`` is done."""

    offset: int
    ranges: tuple[Range, ...] = ()


class OffsetTracker:
    """Acknowledged offsets as a position and disjoint, sorted ranges above it.

    Args:
        position: every offset below is done.
        ranges: ``[start, stop)`` pairs above it that are done as well.
    """

    __slots__ = ("_starts", "_stops", "position")

    def __init__(self, position: int, ranges: Iterable[Range] = ()) -> None:
        self.position = position
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.ack(start, stop)

    def is_acked(self, offset: int) -> bool:
        """Return whether the offset is done."""
        if offset < self.position:
            return True
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._stops[at]

    def ack(self, start: int, stop: int | None = None) -> None:
        """Mark ``[start, stop)`` as done (one offset without ``stop``); idempotent."""
        stop = start + 1 if stop is None else stop
        starts, stops = self._starts, self._stops
        if start <= self.position:
            # The common case: acks come in order.
            self.position = max(self.position, stop)
        else:
            first = bisect_right(starts, start) - 1
            if first < 0 or stops[first] < start:
                first += 1
            last = bisect_right(starts, stop) - 1
            if first <= last:
                start, stop = min(start, starts[first]), max(stop, stops[last])
            starts[first : last + 1] = [start]
            stops[first : last + 1] = [stop]
        while starts and starts[0] <= self.position:
            self.position = max(self.position, stops[0])
            del starts[0], stops[0]

    @property
    def done_above(self) -> int:
        """The number of offsets above the position that are done."""
        return sum(self._stops) - sum(self._starts)

    def snapshot(self) -> Position:
        """Return the present state as an immutable value."""
        if not self._starts:
            return Position(self.position)
        return Position(self.position, tuple(zip(self._starts, self._stops, strict=True)))


def resume_at(start: int, base: int, ranges: Iterable[Range]) -> Position:
    """Return the position of a partition that begins at ``start``.

    Args:
        start: every offset below is done: consumed, or removed from the log since the commit.
        base: the committed offset, at or below ``start``.
        ranges: the ranges that were committed with it.
    """
    tracker = OffsetTracker(base, ranges)
    tracker.ack(base, start)
    return tracker.snapshot()
