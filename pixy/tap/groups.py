"""Groups and their members, as the traffic shows them."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pixy.tap.config import Bounds
from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import Topic
from pixy.tap.rebalances import Rebalance

_GONE_KEPT = 20
"""Members that a group remembers after they have gone."""

Partition = tuple[Topic, int]
"""A partition whose topic may be known by id only; a :data:`pixy.wire.types.TopicPartition` once the name is known."""


class Path(enum.StrEnum):
    """The evidence from which the tap knows a group's protocol type."""

    STATELESS = "stateless"
    """The message names it: JoinGroup response v7+, SyncGroup v5+ (KIP-559)."""
    LEARNT = "learnt"
    """The member's JoinGroup request named it: older versions, or null in the message."""
    HEARTBEAT = "heartbeat"
    """ConsumerGroupHeartbeat (KIP-848): the state is accumulated from the changes in each heartbeat."""
    DESCRIBED = "described"
    """A response to somebody's DescribeGroups, ConsumerGroupDescribe, ShareGroupDescribe or StreamsGroupDescribe."""
    UNKNOWN = "unknown"
    """The member joined before the tap started."""


class State(enum.StrEnum):
    """A group's state, named as in Kafka's tools."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    UNKNOWN = "Unknown"


@dataclass(slots=True)
class Member:
    """A member of a group.

    ``generation`` is the member's epoch in a KIP-848 group; ``partitions`` is None until a message shows them.
    Timeouts are in seconds, times in seconds since the epoch.
    """

    id: str
    client_id: str = ""
    instance_id: str | None = None
    connection: int | None = None
    """Number of the connection of its last request; None if that is closed, or does not go through the tap."""
    seen_here: bool = False
    """True if one of its requests passed through the tap; other members are known from the leader's list."""
    host: str = ""
    software: str = ""
    generation: int = -1
    joining: bool = False
    subscription: tuple[str, ...] = ()
    pattern: str | None = None
    """Regular expression of topics (KIP-848)."""
    assignors: tuple[str, ...] = ()
    partitions: frozenset[Partition] | None = None
    owned: frozenset[Partition] | None = None
    """The partitions that a KIP-848 member reports, which lag behind its assignment."""
    path: Path = Path.UNKNOWN
    session_timeout: float = 45.0
    rebalance_timeout: float = 300.0
    joined_at: float = 0.0
    last_seen: float = 0.0
    beats: int = 0
    """Heartbeats since something in its KIP-848 group has changed last."""
    standby: frozenset[Partition] | None = None
    """Standby and warm-up tasks of a member of a Streams group."""
    acquired: int = 0
    """Records that a share group has handed to the member."""
    redelivered: int = 0
    """Records among them that were delivered before."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Records by the way in which the member has acknowledged them: accepted, released, rejected, gaps, renewed."""
    announced: bool = False
    """True if ``member.joined`` was emitted."""
    disconnected_at: float | None = None
    """The time at which its connection closed; None while it is open."""

    @property
    def status(self) -> str:
        """``stable``, ``joining``, ``disconnected`` or ``elsewhere``."""
        if not self.seen_here:
            return "elsewhere"
        if self.disconnected_at is not None:
            return "disconnected"
        return "joining" if self.joining else "stable"

    def patience(self) -> float:
        """Return the seconds without a request after which the coordinator removes the member."""
        return max(self.session_timeout, self.rebalance_timeout) if self.joining else self.session_timeout


PROBABLY_TIMED_OUT = "probably timed out"
"""The tap has seen no request for the session timeout; what the coordinator did does not pass through it."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A former member: ``how`` is ``left``, ``probably timed out``, ``expelled``, ``replaced`` or ``not in the next generation``."""

    member: Member
    how: str
    at: float
    reason: str | None = None


class Commit(NamedTuple):
    """A committed offset."""

    offset: int
    at: float
    """The time of the response that told it, in seconds since the epoch."""
    source: str = "commit"
    """``commit``, ``transaction``, ``fetch`` (an OffsetFetch response) or ``verify``."""
    connection: int = -1
    """The connection of an OffsetCommit, whose responses come in order; -1 for another source."""


@dataclass(slots=True)
class Group:
    """A group."""

    id: str
    bounds: Bounds
    kind: str = "classic"
    """``classic``, ``consumer`` (KIP-848), ``share`` (KIP-932), ``streams`` (KIP-1071), or ``offsets`` for a group that
    only commits."""
    state: State = State.UNKNOWN
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    path: Path = Path.UNKNOWN
    leader: str = ""
    rebalance: Rebalance | None = None
    last_rebalance: Rebalance | None = None
    expected: set[str] = field(default_factory=set)
    """Members that have joined the generation and have not received their partitions yet."""
    counts: dict[str, int | None] = field(default_factory=dict)
    """Number of partitions of each subscribed topic when the generation began; None if unknown."""
    awaited: set[Partition] = field(default_factory=set)
    """Partitions that a member of a KIP-848 group has been told to give up, and nobody has been given yet."""
    epoch_due: bool = False
    """Whether the epoch of a KIP-848 group must rise, because a member has left."""
    broker_state: tuple[str, float] | None = None
    """The state that the coordinator named, in a response that passed, and the time of that."""
    members: LruDict[str, Member] = field(init=False)
    gone: deque[Gone] = field(default_factory=lambda: deque(maxlen=_GONE_KEPT))
    committed: LruDict[Partition, Commit] = field(init=False)
    """The last committed offset, by partition."""
    verified: float | None = None
    """The time at which the brokers were asked last (``--verify``)."""
    anomalies: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        self.members = LruDict(self.bounds.members)
        self.committed = LruDict(self.bounds.offsets)

    def claim(self, kind: str) -> None:
        """Note that members of a kind were seen that have epochs: ``consumer``, ``share`` or ``streams``."""
        self.kind, self.protocol_type, self.path = kind, kind, Path.HEARTBEAT

    def alive(self) -> list[Member]:
        """List the members by id."""
        return sorted(self.members.values(), key=lambda member: member.id)

    def owners(self) -> Iterator[tuple[Partition, Member]]:
        """Iterate over each partition with each of its owners."""
        for member in self.alive():
            for partition in member.partitions or ():
                yield partition, member

    def remove(self, member_id: str, how: str, at: float, reason: str | None = None) -> Member | None:
        """Remove a member and remember it as gone.

        Args:
            member_id: the member.
            how: see :class:`Gone`.
            at: when, in seconds since the epoch.
            reason: the client's own words.

        Returns:
            The member, None if it was not known.
        """
        member = self.members.pop(member_id)
        self.expected.discard(member_id)
        if member is not None:
            self.gone.append(Gone(member, how, at, reason))
        return member

    @property
    def type(self) -> str:
        """The kind as people name it: ``connect``, ``sr`` and so on for classic groups of other protocols."""
        return self.protocol_type or "unknown" if self.kind == "classic" else self.kind

    def stir(self) -> None:
        """Note a change that each member of a KIP-848 group must hear of in its next heartbeats."""
        for member in self.members.values():
            member.beats = 0

    def subscribed(self) -> set[str]:
        """Return all topics that members subscribe to by name."""
        return {topic for member in self.members.values() for topic in member.subscription}


def partitions_of(topics: Iterable[dict[str, object]], name: str) -> frozenset[Partition]:
    """Flatten the topics of an assignment.

    Args:
        topics: objects with a topic and ``Partitions``.
        name: the field that has the topic, ``Topic`` or ``TopicId``.
    """
    return frozenset(
        (topic[name], partition)  # type: ignore[misc]
        for topic in topics
        for partition in topic["Partitions"]  # type: ignore[attr-defined]
    )
