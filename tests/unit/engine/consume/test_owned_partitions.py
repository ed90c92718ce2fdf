"""Drains and releases of the partitions that a member owns."""

from __future__ import annotations

from typing import Any

from pixy.engine.consume.assignment import Assignment
from pixy.engine.consume.offset_committer import Forget, Track
from pixy.engine.consume.offset_tracker import Position
from pixy.engine.consume.owned_partitions import OwnedPartitions
from pixy.engine.consume.partition_messages import DrainPartition, PartitionDrained
from pixy.kafka.consumer import Commit
from pixy.membership import AssignedPartition
from pixy.wire.types import TopicPartition

ONE, TWO = ("t", 1), ("t", 2)


class Ref:
    """Records the messages of a reference; stands for an owner or the committer."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.stopped = False

    def tell(self, message: Any, *, urgent: bool) -> None:
        self.messages.append(message)

    def stop(self, *, block: bool) -> None:
        self.stopped = True


class Member:
    """Owned partitions with recorders around them."""

    def __init__(self, *partitions: TopicPartition) -> None:
        self.owners: dict[TopicPartition, Ref] = {}
        self.withdrawn: list[TopicPartition] = []
        self.committer = Ref()
        self.drained: list[list[Commit]] = []
        self.owned = OwnedPartitions(
            self._spawn,
            self.withdrawn.append,
            self.committer,  # type: ignore[arg-type]
            self.drained.append,
        )
        for epoch, partition in enumerate(partitions, 1):
            self.assign(partition, epoch)

    def _spawn(self, assignment: Assignment) -> Any:
        return self.owners.setdefault(assignment.partition, Ref())

    def assign(self, partition: TopicPartition, epoch: int) -> None:
        self.owned.add(Assignment(AssignedPartition(*partition, 0, "", epoch, new=False)))


def test_a_revoked_partition_is_released_once_its_owner_has_drained() -> None:
    member = Member(ONE, TWO)
    member.owned.drain([ONE], 2.0)
    assert member.owners[ONE].messages == [DrainPartition(2.0)] and not member.owners[TWO].messages
    assert member.withdrawn == [ONE] and not member.owned.serves(ONE, 1) and member.owned.serves(TWO, 2)
    assert not member.drained and member.owned.get(ONE) is not None
    member.owned.owner_drained(PartitionDrained(ONE, 1, Position(7)))
    assert member.drained == [[Commit("t", 1, 7, "")]]
    assert member.owners[ONE].stopped and member.owned.was_released(ONE)
    assert list(member.owned) == [TWO] and member.committer.messages == [
        Track(ONE, 1),
        Track(TWO, 2),
        Forget((ONE,)),
    ]


def test_a_report_of_an_earlier_epoch_does_not_end_a_drain() -> None:
    member = Member(ONE)
    member.assign(ONE, 5)
    member.owned.drain([ONE], 2.0)
    member.owned.owner_drained(PartitionDrained(ONE, 1, Position(3)))
    assert not member.drained
    member.owned.owner_drained(PartitionDrained(ONE, 5, Position(9)))
    assert member.drained == [[Commit("t", 1, 9, "")]]


def test_readiness_of_an_earlier_epoch_does_not_count() -> None:
    member = Member(ONE)
    assert member.owned.serves(ONE, 1)
    member.assign(ONE, 5)
    assert not member.owned.serves(ONE, 1) and member.owned.serves(ONE, 5)


def test_without_anything_to_drain_the_answer_comes_at_once() -> None:
    member = Member()
    member.owned.drain([ONE], 2.0)
    assert member.drained == [[]]


def test_a_partition_lost_while_draining_is_not_waited_for_and_not_committed() -> None:
    member = Member(ONE, TWO)
    member.owned.drain([ONE, TWO], 2.0)
    member.owned.owner_drained(PartitionDrained(ONE, 1, Position(7)))
    member.owned.lose((TWO,))
    assert member.drained == [[Commit("t", 1, 7, "")]]
    member.owned.owner_drained(PartitionDrained(TWO, 2, Position(8)))
    assert len(member.drained) == 1, "the other member has the partition"


def test_an_owner_that_restarts_while_draining_is_told_again() -> None:
    member = Member(ONE, TWO)
    member.owned.drain([ONE], 2.0)
    member.owned.owner_restarted(ONE)
    member.owned.owner_restarted(TWO)
    assert member.owners[ONE].messages == [DrainPartition(2.0)] * 2 and not member.owners[TWO].messages


def test_an_owner_that_restarts_after_its_report_offers_nothing_while_others_drain() -> None:
    member = Member(ONE, TWO)
    member.owned.drain([ONE, TWO], 2.0)
    member.owned.owner_drained(PartitionDrained(ONE, 1, Position(7)))
    assert not member.owned.serves(ONE, 1)
    member.owned.owner_restarted(ONE)
    assert member.owners[ONE].messages == [DrainPartition(2.0), DrainPartition(0.0)]
    member.owned.owner_drained(PartitionDrained(ONE, 1, Position(7)))
    assert not member.drained
    member.owned.owner_drained(PartitionDrained(TWO, 2, Position(8)))
    assert member.drained == [[Commit("t", 1, 7, ""), Commit("t", 2, 8, "")]]


def test_a_partition_that_returns_is_not_lost_any_more() -> None:
    member = Member(ONE)
    member.owned.lose((ONE,))
    assert member.owned.was_released(ONE)
    member.assign(ONE, 5)
    assert not member.owned.was_released(ONE) and member.owned.serves(ONE, 5)
