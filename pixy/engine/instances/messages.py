"""What a consumer instance is asked, and what it answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors import ActorRef
from pixy.engine.consume.long_polls import Message
from pixy.kafka.consumer import Commit
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """How an instance was created.

    Attributes:
        format: of the records in its answers; of no concern to the engine but that it stays the same.
        reset: where a partition without a committed offset begins: ``earliest`` or ``latest``.
        auto_commit: commit by itself what was handed out.
        min_bytes: a read is answered when so many bytes are there, or its wait is over.
        wait: seconds a read waits for a record, unless it says otherwise.
        max_records: the most records of a read.
        isolation: of transactions: ``read_committed`` or ``read_uncommitted``.
    """

    format: str = "binary"
    reset: str = "latest"
    auto_commit: bool = False
    min_bytes: int = 1
    wait: float = 1.0
    max_records: int = 1_000_000
    isolation: str = "read_committed"


@dataclass(frozen=True, slots=True)
class ReadRecords:
    """Ask for records: a :class:`Batch`, with none if none came within the wait.

    Attributes:
        format: what the answer is to be in; None: the instance's.
        topic: v1: the topic, which the first read subscribes to; None: what is subscribed.
        wait: seconds; None: the instance's.
    """

    max_bytes: int
    most: int
    format: str | None = None
    topic: str | None = None
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class SubscribeTo:
    """Consume topics, or those that match a pattern, as a member of the group."""

    topics: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class GetSubscription:
    """Ask for the topics, sorted; those of a pattern are the topics of the assigned partitions."""


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """Consume nothing, and leave the group."""


@dataclass(frozen=True, slots=True)
class AssignPartitions:
    """Consume these partitions, whoever else does."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GetAssignment:
    """Ask for the partitions, sorted."""


@dataclass(frozen=True, slots=True)
class CommitPositions:
    """Commit what was handed out. The reply: see :meth:`pixy.engine.instances.positions.Book.progress`."""


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """Commit these offsets."""

    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class GetCommitted:
    """Ask for committed offsets: partition to :class:`pixy.kafka.consumer.Committed`."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SeekTo:
    """Go on at offsets, or at times (ms since 1970; -1: the end, -2: the beginning), in assigned
    partitions.
    """

    offsets: Mapping[TopicPartition, int]
    times: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class DeleteInstance:
    """Leave the group and end. The reply comes when that is done, or takes too long."""


@dataclass(frozen=True, slots=True)
class InstanceState:
    """Ask for ``"waiting"`` (a read waits), ``"idle"`` (joined) or ``"unused"`` (no Kafka client)."""


@dataclass(frozen=True, slots=True)
class InstanceLeaving:
    """To the registry: this instance takes no more requests and will stop."""

    group: str
    name: str
    ref: ActorRef[Any]


@dataclass(frozen=True, slots=True)
class BatchSettled:
    """To an instance: whether the answer with a batch was sent."""

    batch: Batch
    sent: bool


class Batch:
    """Records, with ``size`` bytes of keys and values, on their way to a reader. Whoever answers says how that went: :meth:`sent` or
    :meth:`give_back`, once; the next read waits for it.
    """

    __slots__ = ("_owner", "format", "records", "size", "terms")

    def __init__(
        self,
        records: list[Message],
        size: int,
        terms: Mapping[TopicPartition, int],
        embedded: str,
        owner: ActorRef[Any],
    ) -> None:
        self.records = records
        self.size = size
        self.terms = terms
        self.format = embedded
        self._owner = owner

    def sent(self) -> None:
        """The answer was written: from here on the records count as handed out."""
        self._owner.notify(BatchSettled(self, True), urgent=True)

    def give_back(self) -> None:
        """The reader is gone: the records are the next ones read."""
        self._owner.notify(BatchSettled(self, False), urgent=True)
