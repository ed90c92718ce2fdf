"""The requests to a consumer instance, and their replies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from actors import ActorRef, Request
from pixy.engine.consume.long_polls import Message
from pixy.kafka.consumer import Commit, CommittedOffset
from pixy.wire.types import TopicPartition

R_co = TypeVar("R_co", covariant=True)

Progress = list[tuple[TopicPartition, int, int | None]]
"""Of each partition read from: the last offset handed out, and the last one committed (None: none yet)."""


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """The options with which an instance was created.

    Attributes:
        format: of the records in its answers. The engine only checks that reads do not change it.
        reset: where a partition without a committed offset begins: ``earliest`` or ``latest``.
        auto_commit: commit automatically what was handed out before the reader's latest read.
        min_bytes: a read is answered when this many bytes are ready, or when its wait is over.
        wait: seconds a read waits for records, unless the read says otherwise.
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


class InstanceRequest(Request[R_co]):
    """A client's request to an instance. It counts as a use, and its PixyError is the answer."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ReadRecords(InstanceRequest["ReadBatch"]):
    """Ask for records: a :class:`ReadBatch`, empty if none came within the wait.

    Attributes:
        max_bytes: of keys and values; the first record is returned whatever its size.
        most: the most records.
        format: of the answer; None: the instance's.
        topic: v1: the topic, which the first read subscribes to; None: the subscription's topics.
        wait: seconds; None: the instance's.
    """

    max_bytes: int
    most: int
    format: str | None = None
    topic: str | None = None
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class SubscribeTo(InstanceRequest[None]):
    """Consume topics, or those that match a pattern, as a member of the group."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    allowed: Callable[[str], bool] | None = field(default=None, compare=False, repr=False)
    """Tells whether the reader may consume a topic that matches the pattern; None: he may consume all of them."""


@dataclass(frozen=True, slots=True)
class GetSubscription(InstanceRequest[list[str]]):
    """Ask for the topics, sorted; for a pattern, the topics of the assigned partitions."""


@dataclass(frozen=True, slots=True)
class Unsubscribe(InstanceRequest[None]):
    """Consume nothing, and leave the group."""


@dataclass(frozen=True, slots=True)
class AssignPartitions(InstanceRequest[None]):
    """Consume these partitions without joining the group, even if others consume them too."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GetAssignment(InstanceRequest[list[TopicPartition]]):
    """Ask for the assigned partitions, sorted."""


@dataclass(frozen=True, slots=True)
class CommitPositions(InstanceRequest[Progress]):
    """Commit the positions: the offsets after the records handed out."""


@dataclass(frozen=True, slots=True)
class CommitOffsets(InstanceRequest[None]):
    """Commit these offsets."""

    commits: tuple[Commit, ...]


@dataclass(frozen=True, slots=True)
class GetCommitted(InstanceRequest[dict[TopicPartition, CommittedOffset]]):
    """Ask for the committed offsets of partitions."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class SeekTo(InstanceRequest[None]):
    """Continue at offsets, or at times (ms since 1970; -1: the end, -2: the beginning), in assigned
    partitions.
    """

    offsets: Mapping[TopicPartition, int]
    times: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class DeleteInstance(InstanceRequest[None]):
    """Leave the group and end. The reply comes when that is done, or takes too long."""


@dataclass(frozen=True, slots=True)
class GetInstanceState(Request[str]):
    """Ask for ``"waiting"`` (a read waits), ``"idle"`` (has a session) or ``"unused"`` (has none)."""


@dataclass(frozen=True, slots=True)
class CloseInstance(Request[None]):
    """From the registry: the service stops. The reply comes when the instance has left its group."""


@dataclass(frozen=True, slots=True)
class InstanceClosing:
    """To the registry: this instance takes no more requests and will stop."""

    group: str
    name: str
    ref: ActorRef[Any]


@dataclass(frozen=True, slots=True)
class BatchSettled:
    """To an instance: the answer with a batch was sent, or not."""

    batch: ReadBatch
    sent: bool


class ReadBatch:
    """Records on their way to a reader. Call :meth:`sent` or :meth:`give_back`, once; the instance
    holds its next read until then.

    Attributes:
        records: in the order in which to return them.
        size: bytes of their keys and values.
        epochs: the epoch of each partition when the records were taken.
        format: of the instance.
    """

    __slots__ = ("_instance", "epochs", "format", "records", "size")

    def __init__(
        self,
        records: list[Message],
        size: int,
        epochs: Mapping[TopicPartition, int],
        embedded: str,
        instance: ActorRef[Any],
    ) -> None:
        self.records = records
        self.size = size
        self.epochs = epochs
        self.format = embedded
        self._instance = instance

    def sent(self) -> None:
        """Report that the answer was written: from now on the records count as handed out."""
        self._instance.notify(BatchSettled(self, True), urgent=True)

    def give_back(self) -> None:
        """Report that the reader is gone: the next read returns the records."""
        self._instance.notify(BatchSettled(self, False), urgent=True)
