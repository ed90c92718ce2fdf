"""The membership of a consumer group, behind one interface with one implementation per folder.

A :class:`Session` is one group's membership together with its fetching, because with Kafka's own
groups one client does both. It posts the events below to the group's actor, in order, and takes
commands at any time without blocking. :mod:`pixy.membership.kafka` implements it on Kafka's own groups.
``tests/unit/membership/conformance.py`` holds the tests that every implementation passes.
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
    "Event",
    "Fetched",
    "Lost",
    "Revoked",
    "Session",
    "SessionFailed",
]


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """A newly assigned partition and the position where it begins.

    Args:
        topic: its topic.
        partition: its number.
        position: offsets below it count as consumed; see :mod:`pixy.membership.start_position`.
        metadata: the text that was committed with this very position, or nothing.
        epoch: the number of this assignment. An event with another number belongs to an earlier one.
        new: the group has committed nothing yet: commit the position at once.
    """

    topic: str
    partition: int
    position: int
    metadata: str
    epoch: int
    new: bool


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group assigned these partitions, maybe none: this member has joined all the same."""

    partitions: tuple[AssignedPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group wants these partitions back. Answer with ``session.release``: the wait is bounded."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """Another member may have these partitions already; nothing can be committed for them."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages by partition, each batch with the epoch of its assignment (or seek)."""

    batches: Mapping[TopicPartition, tuple[int, list[Any]]]


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit: its error, if it failed as a whole, and those of single partitions."""

    error: PixyError | None
    partitions: Mapping[TopicPartition, PixyError]


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session is over; no event follows."""

    error: PixyError


Event = Assigned | Revoked | Lost | Fetched | Committed | SessionFailed


class Session(Protocol):
    """One group's membership and fetching. No method blocks."""

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """Replace the subscription; the first one joins the group.

        Args:
            topics: name to the number of partitions known now. A partition beyond it that appears
                later is new and begins at its oldest message.
        """

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        """Give back room: the owner of a partition has let go of messages that it had buffered.

        Args:
            partition: where the messages came from.
            messages: how many.
            size: the bytes of their keys and values.
        """

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Fetch again from ``offset``, if the partition is still assigned.

        Args:
            partition: an assigned partition.
            offset: the first one to fetch.
            epoch: from :meth:`next_epoch`; the messages that come from there carry it.
        """

    def next_epoch(self) -> int:
        """A number that no assignment and no seek has had."""

    def commit(self, commits: Iterable[Commit]) -> None:
        """Commit; one :class:`Committed` follows.

        Call it again only after that. The last commit before :meth:`close` may follow at once: it waits
        for the one in flight.
        """

    def release(self, commits: Iterable[Commit]) -> None:
        """Answer :class:`Revoked` with the last positions of the revoked partitions."""

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Commit for the last time, leave the group, end the threads. Never raises.

        Args:
            commits: the last positions.
            timeout: seconds to wait for the end.
        """
