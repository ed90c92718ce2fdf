"""Counts requests by API, method and status, with their durations: for ``/metrics``.

Only with an admin listener; without one there is no meter, and a request pays nothing. With one it pays two dictionary look-ups and
a bisection, a microsecond. Used by one event loop.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from typing import Final

from pixy.auth.principal import traceparent
from pixy.engine.counters import OTHERS

BOUNDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the buckets, in seconds. Long polls end at 3 s by default."""
MOST: Final = 1000
"""Series; methods and statuses come from fixed tables, which have fewer."""
REFUSED: Final = frozenset({"429", "503", "RESOURCE_EXHAUSTED"})
"""Statuses that say that a bound is reached."""
RECENT: Final = 300.0
"""Seconds for which refusals count as recent."""
_KEPT: Final = 1000

Key = tuple[str, str, str]
"""API, method and status."""


class Series:
    """The requests of one key.

    Attributes:
        counts: for each bucket, not cumulated; the last one is above all bounds.
        total: of all durations, in seconds.
        exemplars: by bucket, the latest traced request: trace id, seconds, and when it ended (seconds since 1970).
    """

    __slots__ = ("counts", "exemplars", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0
        self.exemplars: dict[int, tuple[str, float, float]] = {}


class Meter:
    """Counts requests.

    Args:
        clock: seconds; for durations.
        wall: seconds since 1970; for exemplars.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self.clock = clock
        self._wall = wall
        self.series: dict[Key, Series] = {}
        self._refused: deque[tuple[float, Key]] = deque(maxlen=_KEPT)

    def note(self, api: str, method: str, status: str, began: float, trace: str = "") -> None:
        """Count a request that is over.

        Args:
            api: the listener's name.
            method: the operation's name; one of a fixed set.
            status: of HTTP, or gRPC's name of it.
            began: when it began, by :attr:`clock`.
            trace: the caller's W3C ``traceparent``.
        """
        now = self.clock()
        key = (api, method, status)
        series = self.series.get(key)
        if series is None:
            series = self._new(key)
        seconds = now - began
        bucket = bisect_left(BOUNDS, seconds)
        series.counts[bucket] += 1
        series.total += seconds
        if trace and traceparent(trace):
            series.exemplars[bucket] = trace[3:35], seconds, self._wall()
        if status in REFUSED:
            self._refused.append((now, key))

    def _new(self, key: Key) -> Series:
        if len(self.series) >= MOST:
            key = (key[0], OTHERS, OTHERS)
        return self.series.setdefault(key, Series())

    def refused(self) -> dict[Key, int]:
        """Count the requests that were refused lately because a bound was reached."""
        since = self.clock() - RECENT
        found: dict[Key, int] = {}
        for at, key in self._refused:
            if at >= since:
                found[key] = found.get(key, 0) + 1
        return found


__all__ = ["BOUNDS", "Key", "Meter", "Series"]
