"""Starts the owners of a group's partitions, each with the journal of its topic."""

from __future__ import annotations

from collections.abc import Callable

from actors import Actor, ActorRef
from pixy.config.model import Consumer
from pixy.engine.consume.assignment import Assignment
from pixy.engine.consume.offset_committer import OffsetCommitter
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.engine.counters import GroupCounters
from pixy.engine.journal.buffer import Journal, Kind, Refusal, Stream
from pixy.membership import Session
from pixy.wire.types import TopicPartition


class OwnerSpawner:
    """Makes each owner a child of the group's actor. A part of that actor.

    Args:
        actor: the group's actor.
        group: the group's name.
        conf: the owners' limits and timeouts.
        session: returns the present session.
        committer: gets the owners' positions.
        journal: notes what happens to each message; None for no journal.
        counters: of the group.
    """

    def __init__(
        self,
        actor: Actor,
        group: str,
        conf: Consumer,
        session: Callable[[], Session],
        committer: ActorRef[OffsetCommitter],
        journal: Journal | None,
        counters: GroupCounters,
    ) -> None:
        self._counters = counters
        self._actor = actor
        self._group = group
        self._conf = conf
        self._session = session
        self._committer = committer
        self._journal = journal

    def spawn(self, assignment: Assignment) -> ActorRef[PartitionOwner]:
        """Start the owner of an assignment."""
        topic, partition = assignment.partition
        return self._actor.spawn(
            PartitionOwner,
            assignment,
            self._group,
            self._actor.actor_ref,
            self._committer,
            self._session(),
            self._conf,
            self._journal_of(topic),
            self._counters.topics.of(topic),
            name=self._actor.free_name(f"{topic}.{partition}"),
        )

    def note_refused(self, partition: TopicPartition, offset: int) -> None:
        """Count an ack that was refused, and note it in the journal, because this member does not own the partition."""
        self._counters.topics.of(partition[0]).refused += 1
        journal = self._journal_of(partition[0])
        if journal is not None:
            code = int(Refusal.NOT_OWNED)
            journal.add(
                int(Kind.ACK_REFUSED), journal.clock(), Stream(*partition, self._group), offset, code=code
            )

    def _journal_of(self, topic: str) -> Journal | None:
        # Journalling the reads of the journal topic would write to it, and so on for ever.
        return None if self._journal is None or topic == self._journal.topic else self._journal


__all__ = ["OwnerSpawner"]
