"""Who owns which partition of a group, behind one interface.

A session is one group's membership together with its fetching, because with Kafka's own groups the
two are one client. It posts the events below to the group's actor, in order, and takes commands at
any time without blocking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pixy.errors import PixyError
from pixy.kafka.consumer import Commit
from pixy.wire.types import TopicPartition

__all__ = [
    "Assigned",
    "AssignedPartition",
    "Commit",
    "Committed",
    "Fetched",
    "Lost",
    "Revoked",
    "Session",
    "SessionFailed",
]


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """Where a partition begins.

    ``position`` is the committed offset (or the one resolved for a new group: ``new``), ``metadata``
    what was committed with it. ``epoch`` numbers this assignment: whatever carries another number
    belongs to an earlier one.
    """

    topic: str
    partition: int
    position: int
    metadata: str
    epoch: int
    new: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group gave us these partitions (maybe none: we have joined all the same)."""

    partitions: tuple[AssignedPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group wants these back. Answer with ``session.release``; the wait is bounded."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """These belong to somebody else already; nothing can be committed for them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages by partition, each batch with the epoch of its assignment."""

    batches: Mapping[TopicPartition, tuple[int, list[Any]]]


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit: None if all is well, else why it failed."""

    error: PixyError | None
    partitions: Mapping[TopicPartition, PixyError]


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session is over and nothing follows."""

    error: PixyError


Event = Assigned | Revoked | Lost | Fetched | Committed | SessionFailed


class Session(Protocol):
    """One group's membership and fetching."""

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """Replace the topics (name to number of partitions known now); joins with the first."""

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        """The owner of a partition let go of messages that it had buffered."""

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Fetch again from ``offset``; what comes from there carries ``epoch``."""

    def next_epoch(self) -> int:
        """A number that no assignment has had."""

    def commit(self, commits: Iterable[Commit]) -> None:
        """Commit; one :class:`Committed` follows. At most one at a time."""

    def release(self, commits: Iterable[Commit]) -> None:
        """Answer to :class:`Revoked`: the last positions of what is being revoked."""

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Commit for the last time, leave the group, end the threads."""
