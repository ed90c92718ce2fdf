"""Groups and their members, as far as the traffic tells."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pixy.tap.config import Bounds
from pixy.tap.lru import LruDict
from pixy.tap.partial_decoders import Topic
from pixy.tap.rebalances import Rebalance

_GONE = 20
"""Members that have gone and are remembered, in one group."""

Partition = tuple[Topic, int]


class Path(enum.StrEnum):
    """How a group's protocol type was found out."""

    STATELESS = "stateless"
    """The message itself says it: JoinGroup response v7+, SyncGroup v5+ (KIP-559)."""
    LEARNT = "learnt"
    """From the member's JoinGroup request: older versions, or a null where the type should be."""
    HEARTBEAT = "heartbeat"
    """ConsumerGroupHeartbeat (KIP-848), put together from what each heartbeat changes."""
    UNKNOWN = "unknown"
    """The member joined before the tap was there."""


class State(enum.StrEnum):
    """A group's state, by the names that Kafka's tools use."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    UNKNOWN = "Unknown"


@dataclass(slots=True)
class Member:
    """One member. ``generation`` is its epoch in a KIP-848 group; ``partitions`` None as long as nothing told them."""

    id: str
    client_id: str = ""
    instance_id: str | None = None
    connection: int | None = None
    """The connection that its last request came on; None if that is gone, or it is not connected through the tap."""
    seen_here: bool = False
    """Whether any request of it passed here; others are known from what the leader was told."""
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
    """What a KIP-848 member says it has, which follows what it was given."""
    path: Path = Path.UNKNOWN
    session_timeout: float = 45.0
    rebalance_timeout: float = 300.0
    joined_at: float = 0.0
    last_seen: float = 0.0
    announced: bool = False
    """Whether the event that it has joined was told."""
    lost_at: float | None = None
    """When its connection died."""

    @property
    def status(self) -> str:
        """In one word."""
        if not self.seen_here:
            return "elsewhere"
        if self.lost_at is not None:
            return "disconnected"
        return "joining" if self.joining else "stable"

    def patience(self) -> float:
        """Seconds without a request after which the coordinator gives it up."""
        return max(self.session_timeout, self.rebalance_timeout) if self.joining else self.session_timeout


@dataclass(frozen=True, slots=True)
class Gone:
    """A member that is no more: ``how`` is ``left``, ``timed out``, ``expelled``, ``replaced`` or ``not in the next generation``."""

    member: Member
    how: str
    at: float
    reason: str | None = None


@dataclass(slots=True)
class Group:
    """One group."""

    id: str
    bounds: Bounds
    kind: str = "classic"
    """``classic``, ``consumer`` (KIP-848), or ``offsets`` for one that only commits."""
    state: State = State.UNKNOWN
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    path: Path = Path.UNKNOWN
    leader: str = ""
    rebalance: Rebalance | None = None
    last_rebalance: Rebalance | None = None
    expected: set[str] = field(default_factory=set)
    """Members that have joined the generation and were not told their partitions yet."""
    counts: dict[str, int | None] = field(default_factory=dict)
    """Partitions of the subscribed topics when the generation began."""
    members: LruDict[str, Member] = field(init=False)
    gone: deque[Gone] = field(default_factory=lambda: deque(maxlen=_GONE))
    committed: LruDict[Partition, tuple[int, float]] = field(init=False)
    """Offset and time of the last commit."""
    anomalies: frozenset[tuple[str, str]] = frozenset()

    def __post_init__(self) -> None:
        self.members = LruDict(self.bounds.members)
        self.committed = LruDict(self.bounds.offsets)

    def alive(self) -> list[Member]:
        """All members, by id."""
        return sorted(self.members.values(), key=lambda member: member.id)

    def owners(self) -> Iterator[tuple[Partition, Member]]:
        """Each partition with each member that was given it."""
        for member in self.alive():
            for partition in member.partitions or ():
                yield partition, member

    def remove(self, member_id: str, how: str, at: float, reason: str | None = None) -> Member | None:
        """A member is gone."""
        member = self.members.pop(member_id)
        self.expected.discard(member_id)
        if member is not None:
            self.gone.append(Gone(member, how, at, reason))
        return member

    def subscribed(self) -> set[str]:
        """All topics that members have subscribed to by name."""
        return {topic for member in self.members.values() for topic in member.subscription}


def partitions_of(topics: Iterable[dict[str, object]], name: str) -> frozenset[Partition]:
    """Partitions of an array of {name, Partitions}, as assignments have it."""
    return frozenset(
        (topic[name], partition)  # type: ignore[misc]
        for topic in topics
        for partition in topic["Partitions"]  # type: ignore[attr-defined]
    )
