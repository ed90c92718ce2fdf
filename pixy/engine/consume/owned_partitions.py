"""The partitions that the group has assigned to this member, from their assignment to their release.

A part of the group's actor, not an actor: it runs inside the actor's handlers. It keeps one
:class:`~pixy.engine.consume.partition_owner.PartitionOwner` per partition. A revoked partition drains
first, that is, its owner offers nothing more and waits for acks; a lost one is dropped at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from actors import ActorRef
from pixy.engine.consume.assignment import Assignment
from pixy.engine.consume.offset_committer import Forget, OffsetCommitter, Track, to_commit
from pixy.engine.consume.offset_tracker import Position
from pixy.engine.consume.partition_messages import (
    Announce,
    DrainPartition,
    EndReached,
    PartitionDrained,
    Records,
)
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.engine.consume.views import PartitionView
from pixy.kafka.consumer import Commit
from pixy.membership import Fetched
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


class _Owner:
    __slots__ = ("assignment", "ref")

    def __init__(self, ref: ActorRef[PartitionOwner], assignment: Assignment) -> None:
        self.ref = ref
        self.assignment = assignment


class OwnedPartitions:
    """Owners by partition, and the drains that are under way.

    Args:
        spawn: starts the owner of an assignment.
        withdraw: called with a partition that must not be given any more requests.
        committer: forgets the positions of released partitions.
        on_drained: called with the last positions when no drain is under way any more.
        covered: whether an operator has paused a partition.
    """

    def __init__(
        self,
        spawn: Callable[[Assignment], ActorRef[PartitionOwner]],
        withdraw: Callable[[TopicPartition], None],
        committer: ActorRef[OffsetCommitter],
        on_drained: Callable[[list[Commit]], None],
        covered: Callable[[TopicPartition], bool] = lambda _partition: False,
    ) -> None:
        self._spawn = spawn
        self._withdraw = withdraw
        self._committer = committer
        self._on_drained = on_drained
        self._owners: dict[TopicPartition, _Owner] = {}
        self._released: set[TopicPartition] = set()
        self._draining: dict[TopicPartition, float] = {}  # with the seconds that the owner waits for acks
        self._drained: dict[TopicPartition, Position | None] = {}
        self._covered = covered
        self._paused: set[TopicPartition] = set()  # those whose owners get no requests

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._owners)

    def by_topic(self) -> dict[str, list[int]]:
        """Return the partitions of each topic, sorted."""
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._owners):
            owned.setdefault(topic, []).append(partition)
        return owned

    def views(self) -> tuple[PartitionView, ...]:
        """Return the state of each partition, sorted."""
        return tuple(
            PartitionView(
                topic,
                partition,
                own.epoch,
                own.since,
                own.start.position if own.position is None else own.position.offset,
                own.pending,
                own.lives,
                (topic, partition) in self._draining or (topic, partition) in self._drained,
            )
            for topic, partition in sorted(self._owners)
            for own in (self._owners[topic, partition].assignment,)
        )

    def fetched(self, event: Fetched) -> None:
        """Pass fetched messages, and ends that were reached, to the owners."""
        owners = self._owners
        for partition, (epoch, records) in event.batches.items():
            if (owner := owners.get(partition)) is not None:
                owner.ref.tell(Records(epoch, records), urgent=True)
        for partition, end in event.ends.items():
            if (owner := owners.get(partition)) is not None:
                owner.ref.tell(EndReached(*end), urgent=True)

    def get(self, partition: TopicPartition) -> ActorRef[PartitionOwner] | None:
        """Return the owner of a partition, if this member has it."""
        owner = self._owners.get(partition)
        return None if owner is None else owner.ref

    def serves(self, partition: TopicPartition, epoch: int) -> bool:
        """Return whether the partition is still assigned under this epoch, and neither drains nor is paused.

        Args:
            partition: one that this member may have lost since.
            epoch: of the assignment under which its owner has reported.
        """
        owner = self._owners.get(partition)
        rests = partition in self._draining or partition in self._drained or partition in self._paused
        return owner is not None and not rests and owner.assignment.epoch == epoch

    def was_released(self, partition: TopicPartition) -> bool:
        """Return whether this member had the partition and has released it since, by revocation or loss."""
        return partition in self._released

    def positions(self) -> list[Commit]:
        """Return the last positions of all partitions, as far as they have moved: for a commit without a drain."""
        found = ((partition, owner.assignment.position) for partition, owner in self._owners.items())
        return [to_commit(partition, position) for partition, position in found if position is not None]

    def count_pending(self, topic: str) -> int:
        """Count the messages of the topic that are offered and not acknowledged."""
        return sum(
            owner.assignment.pending for partition, owner in self._owners.items() if partition[0] == topic
        )

    def announce_again(self, topic: str) -> bool:
        """Have the topic's owners announce all their messages again; return whether there are any owners."""
        owners = [owner for partition, owner in self._owners.items() if partition[0] == topic]
        for owner in owners:
            owner.ref.tell(Announce(), urgent=True)
        return bool(owners)

    def pause_or_resume(self) -> tuple[TopicPartition, ...]:
        """Do what the operators' pauses say now; return the paused partitions, sorted.

        Owners whose pause ends announce all their messages again: what they have announced meanwhile was ignored.
        """
        for partition, owner in self._owners.items():
            covered = self._covered(partition)
            if covered and partition not in self._paused:
                self._paused.add(partition)
                self._withdraw(partition)
            elif not covered and partition in self._paused:
                self._paused.discard(partition)
                owner.ref.tell(Announce(), urgent=True)
        return tuple(sorted(self._paused))

    # -- from the assignment to the release -------------------------------------------------------

    def add(self, assignment: Assignment) -> None:
        """Start the owner of a newly assigned partition, in place of one that was not released in time."""
        if assignment.partition in self._owners:
            self.lose((assignment.partition,))
        self._released.discard(assignment.partition)
        if self._covered(assignment.partition):
            self._paused.add(assignment.partition)
        self._committer.tell(
            Track(assignment.partition, assignment.epoch, _committed(assignment)), urgent=True
        )
        self._owners[assignment.partition] = _Owner(self._spawn(assignment), assignment)

    def drain(self, partitions: Iterable[TopicPartition], timeout: float) -> None:
        """Begin to drain; ``on_drained`` follows, at once if there is nothing to wait for.

        Args:
            partitions: which; those that drain already are left alone.
            timeout: seconds that an owner waits for acks.
        """
        for partition in partitions:
            owner = self._owners.get(partition)
            if owner is None or partition in self._draining or partition in self._drained:
                continue
            self._withdraw(partition)
            self._draining[partition] = timeout
            owner.ref.tell(DrainPartition(timeout), urgent=True)
        self._check_drained()

    def end_drains(self, partitions: Iterable[TopicPartition]) -> None:
        """Drain no longer: of an owner that has not answered, because it fails, the last known position counts."""
        late = [each for each in partitions if self._draining.pop(each, None) is not None]
        if late:
            logger.warning("not drained in time: %s", late)
            self._drained |= {each: self._owners[each].assignment.position for each in late}
            self._check_drained()

    def take_drained(self, partitions: Iterable[TopicPartition]) -> list[Commit] | None:
        """Release partitions that have drained, and return their last positions; None while one of them drains.

        Args:
            partitions: which; those that are not owned any more do not count.
        """
        wanted = tuple(partitions)
        if any(each in self._draining for each in wanted):
            return None
        drained = {each: self._drained.pop(each) for each in wanted if each in self._drained}
        commits = self._last_positions(drained)
        self._release(tuple(drained))
        return commits

    def owner_restarted(self, partition: TopicPartition) -> None:
        """Drain the owner's new life too: otherwise the group would wait for ever for the old one."""
        owner = self._owners.get(partition)
        if owner is not None and (partition in self._draining or partition in self._drained):
            # One that has reported already, and waits for others to drain, must offer nothing either.
            owner.ref.tell(DrainPartition(self._draining.get(partition, 0.0)), urgent=True)

    def owner_drained(self, message: PartitionDrained) -> None:
        """Note the last position of a partition."""
        owner = self._owners.get(message.partition)
        if message.partition not in self._draining or owner is None:
            return
        if owner.assignment.epoch != message.epoch:
            return
        del self._draining[message.partition]
        self._drained[message.partition] = message.position
        self._check_drained()

    def lose(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Drop partitions that another member has already."""
        was_draining = bool(self._draining)
        for partition in partitions:
            self._draining.pop(partition, None)
            self._drained.pop(partition, None)
        self._release(partitions)
        if was_draining:
            self._check_drained()

    def _check_drained(self) -> None:
        if self._draining:
            return
        drained, self._drained = self._drained, {}
        commits = self._last_positions(drained)
        self._release(tuple(drained))
        self._on_drained(commits)

    def _last_positions(self, drained: dict[TopicPartition, Position | None]) -> list[Commit]:
        """Return the last positions to commit, with acks that came after the owner reported, while others were draining."""
        found = ((each, self._owners[each].assignment.position or told) for each, told in drained.items())
        return [to_commit(partition, position) for partition, position in found if position is not None]

    def _release(self, partitions: tuple[TopicPartition, ...]) -> None:
        if not partitions:
            return
        self._committer.tell(Forget(partitions), urgent=True)
        for partition in partitions:
            self._withdraw(partition)
            self._paused.discard(partition)
            owner = self._owners.pop(partition, None)
            if owner is not None:
                self._released.add(partition)
                owner.assignment.released = True
                # Normal lane: the owner still handles what was sent before.
                owner.ref.stop(block=False)


def _committed(assignment: Assignment) -> Commit | None:
    start = assignment.start
    return None if start.base is None else Commit(*assignment.partition, start.base, start.metadata)
