"""What the engine has done so far, as plain numbers: for metrics, findings and the console.

An actor adds one to an attribute of an object that only actors of its own loop write: no lock, no message, 55 ns. The
objects belong to the service and outlive the actors that write to them, so that a restart or a new assignment never makes
a counter fall. Names come from clients, so there are :data:`MOST` of a kind; what comes later is counted together, under
:data:`OTHERS`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from pixy.engine.pauses import Pauses
from pixy.kafka.statistics import Statistics

T = TypeVar("T")

MOST: Final = 1000
"""Groups, and topics of producers, that are counted apart in a cluster; likewise topics in a group."""
OTHERS: Final = "(others)"
"""The name under which the rest is counted. No name of Kafka's has parentheses."""
ONE: Final = 1.0
"""Seconds within which assignments are those of one rebalance: partitions may come one after another."""
KEPT: Final = 64
"""The latest rebalances of a group whose times are kept."""


class Bounded(dict[str, T], Generic[T]):
    """Objects by name, made when they are first asked for.

    Args:
        make: makes one.
        most: names beyond which all share one object.
    """

    def __init__(self, make: type[T], most: int = MOST) -> None:
        super().__init__()
        self._make = make
        self._most = most

    def of(self, name: str) -> T:
        """Return the object of a name, or that of all others."""
        found = self.get(name)
        if found is None:
            name = name if len(self) < self._most else OTHERS
            found = self.get(name)
            if found is None:
                found = self[name] = self._make()
        return found


class ProduceCounters:
    """Messages of one topic that clients have produced."""

    __slots__ = ("delivered", "failed")

    def __init__(self) -> None:
        self.delivered = 0
        self.failed = 0


class ConsumeCounters:
    """Messages of one topic that one group has consumed here."""

    __slots__ = ("acked", "given_up", "offered", "refused", "repeated", "returned")

    def __init__(self) -> None:
        self.offered = 0
        """Offers to clients, those that were repeated included."""
        self.acked = 0
        self.repeated = 0
        """Offers of a message that had been offered before: no ack came within ``ack_timeout``."""
        self.returned = 0
        """Offers whose client had gone before the answer was written."""
        self.given_up = 0
        """Messages that were dropped after ``max_retries``."""
        self.refused = 0
        """Acks that were refused: of a message that was never offered, or of a partition that is not owned here."""


class GroupCounters:
    """One group."""

    __slots__ = (
        "assigned", "closed_unsafely", "commit_error", "commits", "expired_topics", "failed_commits", "failing_since",
        "lost", "rebalances", "revoked", "session_failures", "topics",
    )  # fmt: skip

    def __init__(self) -> None:
        self.topics: Bounded[ConsumeCounters] = Bounded(ConsumeCounters)
        self.assigned = 0
        """Partitions that came, each time counted; likewise ``revoked`` and ``lost``."""
        self.revoked = 0
        self.lost = 0
        self.session_failures = 0
        self.rebalances: deque[float] = deque(maxlen=KEPT)
        """The loop's times of rebalances (:meth:`rebalanced`)."""
        self.commits = 0
        """Offsets of partitions that Kafka has taken."""
        self.failed_commits = 0
        self.failing_since: float | None = None
        """The loop's time since which no commit has succeeded though some were tried."""
        self.commit_error = ""
        self.expired_topics: dict[str, float] = {}
        """Topics whose subscription has expired, with the loop's time: nobody asked for them any more."""
        self.closed_unsafely: dict[str, tuple[float, int]] = {}
        """Those of them with messages that were not acknowledged: when, and how many."""

    def rebalanced(self, now: float) -> None:
        """Count a rebalance, of which an assignment has come. What it has revoked before is part of it."""
        if not self.rebalances or now - self.rebalances[-1] >= ONE:
            self.rebalances.append(now)

    def committed(self, offsets: int, *, whole: bool) -> None:
        """Count what Kafka has taken of a commit.

        Args:
            offsets: of so many partitions.
            whole: whether it has taken all.
        """
        self.commits += offsets
        if offsets and whole:
            self.failing_since = None
            self.commit_error = ""

    def commit_failed(self, error: Exception, now: float) -> None:
        """Count the offset of one partition that Kafka has not taken."""
        self.failed_commits += 1
        self.commit_error = str(error)
        if self.failing_since is None:
            self.failing_since = now

    def subscription_expired(self, topic: str, pending: int, now: float) -> None:
        """Note that nobody asks for a topic any more.

        Args:
            topic: whose subscription ends.
            pending: its messages that are not acknowledged.
            now: the loop's time.
        """
        _note(self.expired_topics, topic, now)
        if pending:
            _note(self.closed_unsafely, topic, (now, pending))


class ClusterCounters:
    """One cluster, its identities included.

    Args:
        statistics: gets those of the producer's client; None: they are not made.
    """

    def __init__(self, statistics: Statistics | None = None) -> None:
        self.statistics = statistics
        self.produced: Bounded[ProduceCounters] = Bounded(ProduceCounters)
        self.groups: Bounded[GroupCounters] = Bounded(GroupCounters)
        self.pauses = Pauses()
        """What operators have paused."""

    def without_statistics(self) -> ClusterCounters:
        """Return the same counters for an identity, whose client's statistics would replace those of the daemon's own."""
        same = ClusterCounters()
        same.produced, same.groups, same.pauses = self.produced, self.groups, self.pauses
        return same


def _note(notes: dict[str, T], name: str, value: T) -> None:
    notes.pop(name, None)
    notes[name] = value
    if len(notes) > KEPT:
        del notes[next(iter(notes))]


__all__ = ["OTHERS", "Bounded", "ClusterCounters", "ConsumeCounters", "GroupCounters", "ProduceCounters"]
