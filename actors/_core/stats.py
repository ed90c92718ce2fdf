"""Statistics: fixed-bucket histograms, and the snapshots of actors and mailboxes that users read.

Bucket n of a histogram counts durations below ``2**n`` units of 1.024 microseconds. A shift and a
``bit_length`` find the bucket in 65 ns; a search in a list of bounds took 190.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHIFT = 10
BUCKETS = 30
"""The last bucket also counts durations above its bound (about 9 minutes)."""

FEW_BUCKETS = 8
"""Those that an actor counts in from the first; the list grows with the first longer duration (0.13 ms)."""

BOUNDS_NS = tuple(1 << (SHIFT + bucket) for bucket in range(BUCKETS))
"""Upper bounds of the buckets, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Durations counted per bucket of :data:`BOUNDS_NS`."""

    counts: tuple[int, ...]

    @classmethod
    def of(cls, counts: Sequence[int]) -> Histogram:
        """Make the histogram of an actor's counts, which may lack the last buckets."""
        return cls((*counts, *(0,) * (BUCKETS - len(counts))))

    @property
    def total(self) -> int:
        """The number of durations counted."""
        return sum(self.counts)

    def quantile(self, share: float) -> float:
        """Seconds below which a share (0 to 1) of the durations lie: the upper bound of a bucket.

        0.0 if no duration was counted.
        """
        wanted = share * self.total
        seen = 0
        for count, bound in zip(self.counts, BOUNDS_NS, strict=True):
            seen += count
            if seen and seen >= wanted:
                return bound / 1e9
        return 0.0

    def since(self, earlier: Histogram) -> Histogram:
        """The durations counted after ``earlier`` was taken."""
        return Histogram(tuple(a - b for a, b in zip(self.counts, earlier.counts, strict=True)))


@dataclass(frozen=True, slots=True)
class MailboxStatistics:
    """A mailbox at one moment.

    ``depth`` is the number of messages in all lanes, ``waiting`` that of senders that wait for room.
    ``dropped`` messages were accepted and then dropped, ``rejected`` ones were refused. ``oldest_age`` is
    in seconds.
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

    ``processed`` counts handled messages, failures included; ``failed`` those whose handler raised;
    ``abandoned`` asks that were given up before their turn. ``wait`` is the time from sending to handling,
    ``run`` the time of handling (in a coroutine with its waiting). ``current`` is the type of the message
    that is being handled, if any, ``current_age`` the seconds since its handling began.
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
