"""What only time shows: positions that stand still, lag that grows, counters that move. Bounded; the time is an argument."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MOST: Final = 20_000
"""Keys of one kind; those that were not touched for longest are forgotten first."""
_POINTS: Final = 32


class Since(Generic[K]):
    """Since when something has had its present value."""

    def __init__(self) -> None:
        self._known: OrderedDict[K, tuple[object, float]] = OrderedDict()

    def same(self, key: K, value: object, now: float) -> float:
        """Note a value; return for how many seconds it has been the same."""
        known = self._known.get(key)
        if known is None or known[0] != value:
            known = self._known[key] = (value, now)
        self._known.move_to_end(key)
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return now - known[1]


class Rates(Generic[K]):
    """How much numbers have changed within a window.

    Args:
        window: seconds.
    """

    def __init__(self, window: float) -> None:
        self._window = window
        self._known: OrderedDict[K, deque[tuple[float, float]]] = OrderedDict()

    def note(self, key: K, value: float, now: float) -> None:
        """Note a number. At most :data:`_POINTS` are kept for the window, evenly spread."""
        points = self._known.get(key)
        if points is None:
            points = self._known[key] = deque()
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        # One point before the window's beginning stays, to measure from.
        while len(points) > 1 and points[1][0] <= now - self._window:
            points.popleft()
        if len(points) < 2 or now - points[-2][0] >= self._window / _POINTS:
            points.append((now, value))
        else:
            points[-1] = (now, value)

    def gained(self, key: K) -> float:
        """Return the increase over the window, or since the first note; 0 if it fell."""
        points = self._known.get(key)
        return max(0.0, points[-1][1] - points[0][1]) if points else 0.0

    def rate(self, key: K) -> float | None:
        """Return the change a second; None if it is not known yet."""
        points = self._known.get(key)
        if not points or points[-1][0] <= points[0][0]:
            return None
        return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


__all__ = ["MOST", "Rates", "Since"]
