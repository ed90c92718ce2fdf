"""The session of a REST consumer instance: group membership and fetching for one reader.

Unlike :class:`pixy.membership.Session` it fetches on demand: it looks for records only while a read
waits for some. Between reads, librdkafka's bounded queue holds the records fetched ahead.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pixy.errors import IllegalState, PixyError
from pixy.kafka.consumer import Commit
from pixy.kafka.partition_logs import FirstAttempt
from pixy.membership import Lost, Revoked, SessionFailed
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class EarlierPosition:
    """The reader's position in a partition before its instance restarted.

    Another member may have had the partition since. Then the group's committed offset counts, and committing this
    position would move it back.

    Attributes:
        offset: the next one to hand out; -2 for the oldest record, wherever it is.
        committed: what the group may have committed if nobody else has committed since. Several offsets, because it is
            not known whether the last commit has succeeded.
    """

    offset: int
    committed: frozenset[int]

    def holds(self, committed: int | None) -> bool:
        """Return whether to continue here, if the group has committed this by now; None for nothing."""
        return committed is None or committed in self.committed


@dataclass(frozen=True, slots=True)
class MetTopic:
    """The id and the new partitions of a topic, as a session that reads it has learned them.

    Attributes:
        id: the topic's; None if it is not known. Positions belong to it: a topic with another id was made again.
        partitions: those with this number and above were added while the instance was there; 0 for a topic that was
            made again. None if nobody had to know.
    """

    id: uuid.UUID | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Earlier:
    """The knowledge of an instance from before its restart; empty if it has not restarted.

    Attributes:
        positions: where its reader stood.
        topics: what it had learned of those that it reads.
        late: the partitions that waited for their beginning, and since when.
    """

    positions: Mapping[TopicPartition, EarlierPosition] = field(default_factory=dict)
    topics: Mapping[str, MetTopic] = field(default_factory=dict)
    late: Mapping[TopicPartition, FirstAttempt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Assigned:
    """The group has assigned these partitions (maybe none), each from the given offset on.

    Attributes:
        starts: offsets; -2 is the oldest record and -1 the next to be written, wherever they are.
        new: the partitions that begin at their end because the group has committed nothing in them.
        number: for :meth:`InstanceSession.heard`.
    """

    starts: Mapping[TopicPartition, int]
    new: frozenset[TopicPartition] = frozenset()
    number: int = 0


@dataclass(frozen=True, slots=True)
class Met:
    """The session's present knowledge of its topics. Posted before the :class:`Assigned` and :class:`Done` that follow from it, and when
    the session has learned of a topic that was made after its partitions were chosen.

    Attributes:
        topics: all.
        late: the partitions that wait for their beginning, and since when.
    """

    topics: Mapping[str, MetTopic]
    late: Mapping[TopicPartition, FirstAttempt] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fetched:
    """The records that the last ``want`` found, in the order in which to hand them out.

    ``size`` is the bytes of their keys and values.
    """

    records: list[Any]
    size: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Kafka refuses something and will keep refusing it; the session keeps trying all the same."""

    error: PixyError


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a command, in order with the events: later events happened after the command."""

    token: int
    value: Any
    error: PixyError | None


__all__ = [
    "Assigned",
    "Done",
    "Earlier",
    "EarlierPosition",
    "Fetched",
    "InstanceEvent",
    "InstanceSession",
    "Lost",
    "Met",
    "MetTopic",
    "Refused",
    "Revoked",
    "SessionFailed",
    "not_assigned",
]


def not_assigned(partition: TopicPartition) -> IllegalState:
    """Return the error of a seek in a partition that the instance does not have."""
    return IllegalState(f"No current assignment for partition {partition[0]}-{partition[1]}")


InstanceEvent = Assigned | Revoked | Lost | Met | Fetched | Refused | Done | SessionFailed


class InstanceSession(Protocol):
    """One instance's consumer. No method blocks. Each command with a token ends in one :class:`Done`."""

    def subscribe(self, token: int, topics: tuple[str, ...], added: tuple[str, ...] = ()) -> None:
        """Join the group for these topics, or change them. :class:`Assigned` follows the group's answer.

        Args:
            token: returned in :class:`Done`.
            topics: their names.
            added: those that were made after the reader had subscribed to a pattern that matches them. They begin at
                their oldest record.
        """

    def assign(
        self,
        token: int,
        partitions: tuple[TopicPartition, ...],
        keep: Mapping[TopicPartition, int],
        *,
        repeated: bool = False,
    ) -> None:
        """Fetch these partitions without joining the group.

        Args:
            token: returned in :class:`Done`, whose value maps each partition to its start offset.
            partitions: replace all partitions assigned before.
            keep: offsets to start from; the other partitions start from their committed offset. -1 for one that waits
                for its beginning, as far as the instance knows: it goes on waiting, or continues where it has begun meanwhile.
            repeated: they were assigned before a restart. One that is gone does not fail the others.
        """

    def seek(self, token: int, offsets: Mapping[TopicPartition, int]) -> None:
        """Continue at these offsets: in all of the partitions, or, with an error, in none.

        If it fails halfway, the session ends, and the next one continues at the reader's positions.

        Args:
            token: returned in :class:`Done`.
            offsets: the next offset to fetch, by assigned partition.
        """

    def committed(self, token: int, partitions: tuple[TopicPartition, ...]) -> None:
        """Look up committed offsets.

        Args:
            token: returned in :class:`Done`, whose value maps each partition to a
                :class:`pixy.kafka.consumer.CommittedOffset`.
            partitions: need not be assigned.
        """

    def commit(self, token: int, commits: tuple[Commit, ...], *, assigned_only: bool = False) -> None:
        """Commit offsets; any failure fails the whole command.

        Args:
            token: returned in :class:`Done`, whose value is the commits that were made. Higher than those of commits
                that were asked for before; a repeated one has its first token.
            commits: at most one for each partition.
            assigned_only: they are the reader's positions. Leave out partitions that have been given back since this
                call, even if they have come back, and those of which a commit with a higher token is made: Kafka
                takes a commit from any member, and it would move the offset back.
        """

    def want(self, most: int, max_bytes: int, *, wait: bool = True) -> None:
        """Look for records; one :class:`Fetched` follows.

        Args:
            most: about how many records to return; 0 stops looking, though a ``Fetched`` may already
                be on its way.
            max_bytes: about how many bytes of keys and values to return.
            wait: False: post ``Fetched`` at once with the records that are ready, even if none are.
        """

    def heard(self, event: Assigned) -> None:
        """Note that the instance has handled an event. In commands before, its positions of these partitions are those of an earlier assignment.

        Args:
            event: what the session has posted.
        """

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None:
        """Answer :class:`Revoked`. Ignored if the session has stopped to wait for it.

        Args:
            revoked: the event itself, not an equal one.
            commits: made before the partitions go.
        """

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """Commit for the last time, leave the group and end the thread. Never raises.

        Args:
            commits: the last offsets of this session.
            timeout: seconds to wait for the thread to end.
        """
