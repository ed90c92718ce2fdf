"""What the rules look at: the state of a daemon at one moment, as plain data.

All times are ages, in seconds before the moment of the snapshot, so that rules need no clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Unacked:
    """A message that was offered and is not acknowledged.

    Attributes:
        offset: its offset.
        age: since it was offered first.
        held: since it was offered last.
        attempts: how often it was offered.
        out: whether a client has it now.
        due: seconds until the offer ends; negative if it has ended.
        client: who got it last.
    """

    offset: int
    age: float
    held: float
    attempts: int
    out: bool
    due: float
    client: str


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that this daemon owns for a group.

    Attributes:
        age: since it was assigned.
        position: the lowest offset that is not done.
        pending: messages that are not acknowledged.
        buffered: fetched messages that were not offered yet.
        done_above: messages above the position that are done.
        full: whether the limit of pending messages holds others back.
        oldest: the un-acked message that was offered first.
        most_tried: the un-acked message that was offered most often.
        lives: how often its owner was started.
        draining: whether it is about to be released.
        stuck: since when the position has not moved although messages above it were acknowledged; None if it has.
        lag: messages behind the end of the log by the committed offset; None: not known.
        lag_rate: messages a second by which the lag grows; None: not known.
    """

    topic: str
    partition: int
    age: float = 0.0
    position: int = 0
    pending: int = 0
    buffered: int = 0
    done_above: int = 0
    full: bool = False
    oldest: Unacked | None = None
    most_tried: Unacked | None = None
    lives: int = 1
    draining: bool = False
    stuck: float | None = None
    lag: int | None = None
    lag_rate: float | None = None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic for which clients of a group ask here.

    Attributes:
        polls: requests that wait.
        oldest_poll: how long the first of them has waited; None if none waits.
        idle: since somebody last asked for it.
        joined: whether the group has an assignment that counts for it.
        missing: whether it does not exist.
        unowned: partitions that no member of the group owns, by number; None: not known.
        leaderless: partitions without a leader; None: not known.
        unowned_age: since when partitions have had no owner.
    """

    topic: str
    polls: int = 0
    oldest_poll: float | None = None
    idle: float = 0.0
    joined: bool = True
    missing: bool = False
    unowned: tuple[int, ...] | None = None
    unowned_age: float = 0.0
    leaderless: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Paused:
    """Something that an operator has paused.

    Attributes:
        topic: empty: the whole group.
        partition: -1 for the whole group.
        by: who has paused it.
        age: since when.
    """

    topic: str
    partition: int
    by: str
    age: float


WHOLE: Final = ("", -1)
"""Topic and partition of a whole group that is paused."""


@dataclass(frozen=True, slots=True)
class Group:
    """A group for which this daemon consumes.

    Attributes:
        failure: why it cannot consume now; empty if it can.
        failing: since when it cannot.
        rebalances: ages of its latest rebalances.
        commit_error: why commits fail; empty if they do not.
        commits_failing: since when no commit has succeeded.
        expired: topics whose subscription has expired: age and messages that were un-acked then.
        acks: acks in the last minute.
        paused: what operators have paused of it.
    """

    cluster: str
    group: str
    topics: tuple[Topic, ...] = ()
    partitions: tuple[Partition, ...] = ()
    failure: str = ""
    failing: float = 0.0
    leaving: bool = False
    rebalances: tuple[float, ...] = ()
    commit_error: str = ""
    commits_failing: float = 0.0
    expired: Mapping[str, tuple[float, int]] = field(default_factory=dict)
    acks: int = 0
    paused: tuple[Paused, ...] = ()


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, as the producer's client sees it.

    Attributes:
        rtt: the 99th percentile of the time of its answers, in seconds; None if nothing was asked.
        up: whether it is connected.
        queued: requests that wait to be sent.
    """

    name: str
    rtt: float | None = None
    up: bool = True
    queued: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster.

    Attributes:
        down: why no broker answers; empty if one does.
        down_for: since when.
        journal: events that are held, how many may be, how many were lost in the last minutes, and how many so far; None without
            a journal.
        groups: how many there are, and may be; likewise producers.
        ack_timeout: seconds until an offer ends.
        max_retries: -1 for no limit.
    """

    name: str
    down: str = ""
    down_for: float = 0.0
    brokers: tuple[Broker, ...] = ()
    journal: tuple[int, int, int, int] | None = None
    groups: tuple[int, int] = (0, 1)
    producers: tuple[int, int] = (0, 1)
    ack_timeout: float = 300.0
    max_retries: int = -1


@dataclass(frozen=True, slots=True)
class Mailbox:
    """An actor with a crowded mailbox.

    Attributes:
        depth: messages that wait, and ``capacity`` of them may.
        oldest: how long the first has waited.
        refused: messages that were refused in the last minutes.
    """

    path: str
    depth: int
    capacity: int
    oldest: float
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A time for which the event loop did not turn.

    Attributes:
        age: how long ago.
        seconds: how long.
        path: the actor whose code ran; None: no actor's.
        starved: for how many of the seconds the loop waited for a processor.
    """

    age: float
    seconds: float
    path: str | None = None
    starved: float = 0.0

    @property
    def own(self) -> float:
        """Seconds for which the code is to blame."""
        return self.seconds - self.starved


@dataclass(frozen=True, slots=True)
class Refused:
    """Requests that were refused in the last minutes because a bound was reached.

    Attributes:
        status: 429 or 503, or gRPC's name of the status.
    """

    api: str
    method: str
    status: str
    count: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A daemon at one moment. ``at`` is in seconds since 1970."""

    at: float
    clusters: tuple[Cluster, ...] = ()
    groups: tuple[Group, ...] = ()
    mailboxes: tuple[Mailbox, ...] = ()
    blocks: tuple[Block, ...] = ()
    refused: tuple[Refused, ...] = ()

    def cluster(self, name: str) -> Cluster:
        """Return a cluster by its name."""
        return next((each for each in self.clusters if each.name == name), Cluster(name))


__all__ = [
    "WHOLE", "Block", "Broker", "Cluster", "Group", "Mailbox", "Partition", "Paused", "Refused", "Snapshot", "Topic", "Unacked",
]  # fmt: skip
