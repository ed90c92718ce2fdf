"""Which of a reader's positions may still be committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pixy.kafka.consumer import Commit
from pixy.kafka.instance_consumer import END
from pixy.membership.kafka.instance_partitions import InstancePartitions
from pixy.wire.types import TopicPartition

ONE, TWO = ("t", 1), ("t", 2)
BOTH = (Commit("t", 1, 5, ""), Commit("t", 2, 5, ""))


def assigned() -> InstancePartitions:
    """The instance has heard of it."""
    made = InstancePartitions()
    made.heard(made.add({ONE: 5, TWO: 5}))
    return made


def test_positions_of_assigned_partitions_are_committed() -> None:
    made = assigned()
    assert made.to_commit(BOTH, made.moment(), 1) == BOTH
    assert set(made) == made.keys == {ONE, TWO} and len(made) == 2


def back(made: InstancePartitions) -> None:
    made.drop([ONE])
    made.heard(made.add({ONE: 5}))


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made.drop([ONE]),
        back,
        lambda made: made.replace([ONE, TWO], [TWO]),
        lambda made: made.replace([TWO], [ONE, TWO]),
    ],
)
def test_a_partition_that_was_given_back_since_is_left_out(
    change: Callable[[InstancePartitions], None],
) -> None:
    made = assigned()
    before = made.moment()
    change(made)
    assert made.to_commit(BOTH, before, 1) == BOTH[1:]
    assert made.held(TWO, before) and not made.held(ONE, before)


def test_a_partition_that_came_back_is_committed_again() -> None:
    made = assigned()
    back(made)
    assert made.to_commit(BOTH, made.moment(), 1) == BOTH


def test_a_repeated_commit_leaves_out_what_a_later_one_has_committed() -> None:
    """Whatever the offsets: they go back after a seek, and in a log that was truncated."""
    made = assigned()
    made.committed((Commit("t", 1, 3, ""),), 2)
    assert made.to_commit(BOTH, made.moment(), 1) == BOTH[1:]
    assert made.to_commit(BOTH, made.moment(), 2) == BOTH


def test_a_position_from_before_the_instance_has_heard_of_an_assignment_is_left_out() -> None:
    """It is another topic's, say. What another event tells does not count."""
    made = assigned()
    made.drop([ONE])
    number = made.add({ONE: 0})
    made.heard(0)
    assert made.to_commit(BOTH, made.moment(), 1) == BOTH[1:]
    made.heard(number)
    made.heard(0)
    assert made.to_commit(BOTH, made.moment(), 1) == BOTH


def test_what_the_instance_has_chosen_itself_is_heard_of() -> None:
    made = assigned()
    made.replace([ONE, TWO], [TWO])
    assert made.to_commit(BOTH, made.moment(), 1) == BOTH


@pytest.mark.parametrize(
    ("position", "begins"), [({}, 70), ({ONE: END}, 70), ({ONE: 50}, 50), ({ONE: 90}, 70)]
)
def test_a_chosen_partition_that_has_begun_continues_there_until_the_instance_has_heard_of_it(
    position: dict[TopicPartition, int], begins: int
) -> None:
    """Or before, where a seek that may have failed goes back to."""
    made = assigned()
    before = made.moment()
    number = made.add({ONE: 70})
    for each in (before, made.moment()):
        assert made.kept([ONE, TWO], {**position, TWO: 6}, each) == {ONE: begins, TWO: 6}
    made.heard(number)
    assert made.kept([ONE, TWO], {ONE: 90, TWO: 6}, made.moment()) == {ONE: 90, TWO: 6}
    made.replace([TWO], [ONE, TWO])
    assert made.kept([ONE, TWO], {TWO: 6}, before) == {TWO: 6}, "it was given up since"
