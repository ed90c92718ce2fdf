"""Which offsets of a partition are done: a position, and ranges acknowledged beyond it.

Pure: no clock, no Kafka. The position is what is committed; the ranges travel in the metadata.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from pixy.engine.consume.sparse_acks import Range


@dataclass(frozen=True, slots=True)
class Position:
    """What to commit for a partition: every offset below ``offset`` and in ``ranges`` is done."""

    offset: int
    ranges: tuple[Range, ...] = ()


class OffsetTracker:
    """Acknowledged offsets as a position and disjoint, sorted ranges above it."""

    __slots__ = ("_starts", "_stops", "position")

    def __init__(self, position: int, ranges: Iterable[Range] = ()) -> None:
        self.position = position
        self._starts: list[int] = []
        self._stops: list[int] = []
        for start, stop in ranges:
            self.ack(start, stop)

    def is_acked(self, offset: int) -> bool:
        """Whether the offset is done."""
        if offset < self.position:
            return True
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._stops[at]

    def ack(self, start: int, stop: int | None = None) -> None:
        """Mark ``[start, stop)`` as done (one offset without ``stop``); idempotent."""
        stop = start + 1 if stop is None else stop
        starts, stops = self._starts, self._stops
        if start <= self.position:
            # The common case: acks in order, nothing sparse.
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

    def snapshot(self) -> Position:
        """The present state as an immutable value."""
        if not self._starts:
            return Position(self.position)
        return Position(self.position, tuple(zip(self._starts, self._stops, strict=True)))
