"""Counters and fixed-bucket histograms, always on, and what is read from them.

Bucket n of a histogram counts durations below ``2**n`` units of 1.024 microseconds: a shift and a
``bit_length`` find it (65 ns), where a search in a list of bounds took 190.
"""

from __future__ import annotations

from dataclasses import dataclass

SHIFT = 10
BUCKETS = 30
"""The last bucket also takes what is longer than its bound (about 9 minutes)."""

BOUNDS_NS = tuple(1 << (SHIFT + bucket) for bucket in range(BUCKETS))
"""Upper bounds of the buckets in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts per bucket of :data:`BOUNDS_NS`."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """How many durations were counted."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """Seconds below which ``share`` of the durations lie: the upper bound of their bucket.

        0.0 if nothing was counted.
        """
        wanted = share * self.total
        seen = 0
        for count, bound in zip(self.counts, BOUNDS_NS, strict=True):
            seen += count
            if seen and seen >= wanted:
                return bound / 1e9
        return 0.0

    def since(self, earlier: Histogram) -> Histogram:
        """What was counted after ``earlier`` was taken."""
        return Histogram(tuple(a - b for a, b in zip(self.counts, earlier.counts, strict=True)))


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """A mailbox at one moment.

    ``depth`` is the sum of the lanes; ``waiting`` are senders that wait for room; ``dropped`` were
    taken and thrown away again, ``rejected`` never taken; ``oldest_age`` is in seconds.
    """

    depth: int
    capacity: int
    normal: int
    priority: int
    system: int
    stashed: int
    waiting: int
    dropped: int
    rejected: int
    oldest_age: float


@dataclass(frozen=True, slots=True)
class ActorStatistics:
    """An actor at one moment.

    ``processed`` counts handled messages (failures too), ``failed`` those whose handler raised,
    ``abandoned`` asks that nobody waited for any more when their turn came. ``wait`` is the time
    from sending to handling, ``run`` that of handling (a coroutine's waiting included).
    ``current`` is the type of the message that is being handled, if any.
    """

    path: str
    actor_class: str
    state: str
    processed: int
    failed: int
    abandoned: int
    restarts: int
    children: int
    tasks: int
    mailbox: MailboxStatistics
    wait: Histogram
    run: Histogram
    current: str | None
    current_age: float
