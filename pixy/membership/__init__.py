"""The membership of a consumer group, behind one interface with one implementation per folder.

A :class:`Session` is one group's membership together with its fetching, because with Kafka's own
groups one client does both. It posts the events below to the group's actor, in order, and takes
commands at any time without blocking. :mod:`pixy.membership.kafka` implements it on Kafka's own groups,
:mod:`pixy.membership.zookeeper` on the Go original's. ``tests/unit/membership/conformance.py`` holds the tests that
every implementation passes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
        metadata: the text that was committed with ``base``, or nothing.
        epoch: the number of this assignment. An event with another number belongs to an earlier one.
        new: this position is not committed yet: commit it at once.
        base: the committed offset, which ``metadata`` counts from; None if it is the position itself.
        end: nothing from this offset on can have been acknowledged, for a check of ``metadata``: the log's next message, or the first
            one that a truncation has put in place of others; None if it is not known.
    """

    topic: str
    partition: int
    position: int
    metadata: str
    epoch: int
    new: bool
    base: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group assigned these partitions, maybe none: this member has joined all the same.

    One assignment of the group may come as several events: a partition whose log cannot be asked, because it
    has no leader, follows when it can.
    """

    partitions: tuple[AssignedPartition, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """The group wants these partitions back. Answer with ``session.release`` and this event: the wait is bounded."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Lost:
    """These partitions are gone, and nothing can be committed for them: forget their offers and positions.

    Another member may have them already. Or the topic was deleted and made again: then :class:`Assigned`
    follows, with the beginning of the new log.
    """

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Fetched:
    """Messages by partition, and ends of partitions that were reached.

    Args:
        batches: messages, with the epoch of the assignment (or seek).
        ends: no message below this offset will come any more, with the epoch. The end of a log may hold no
            messages but markers of transactions, and aborted or compacted messages. It counts after
            ``batches``; a session that cannot tell leaves it out.
    """

    batches: Mapping[TopicPartition, tuple[int, list[Any]]]
    ends: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit: its error, if it failed as a whole, and those of single partitions."""

    error: PixyError | None
    partitions: Mapping[TopicPartition, PixyError]


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The session is over; no event follows. Answer with ``session.close`` and the last positions."""

    error: PixyError


Event = Assigned | Revoked | Lost | Fetched | Committed | SessionFailed


class Session(Protocol):
    """One group's membership and fetching. No method blocks."""

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """Replace the subscription; the first one joins the group.

        Args:
            topics: name to the number of partitions known now; 0 for a topic that did not exist when it was
                first asked for. A partition beyond that number was added later and begins at its oldest message.
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
        """Return a number that no assignment and no seek has had, of this session or another one in this process."""

    def commit(self, commits: Iterable[Commit]) -> None:
        """Commit; one :class:`Committed` follows.

        Call it again only after that. The last commit before :meth:`close` may follow at once: it waits
        for the one in flight.
        """

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None:
        """Answer :class:`Revoked`. Ignored if the session has stopped to wait for it.

        Args:
            revoked: the event itself, not an equal one.
            commits: the last positions of the revoked partitions.
        """

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Commit for the last time, leave the group, end the threads. Never raises.

        Args:
            commits: the last positions.
            timeout: seconds to wait for the end.
        """
