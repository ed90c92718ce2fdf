"""Which of a reader's positions may still be committed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pixy.kafka.consumer import Commit
from pixy.membership.kafka.instance_partitions import InstancePartitions

ONE, TWO = ("t", 1), ("t", 2)
BOTH = (Commit("t", 1, 5, ""), Commit("t", 2, 5, ""))


def assigned() -> InstancePartitions:
    made = InstancePartitions()
    made.add([ONE, TWO])
    return made


def test_positions_of_assigned_partitions_are_committed() -> None:
    made = assigned()
    assert made.to_commit(BOTH, made.next_number(), 1) == BOTH
    assert set(made) == made.keys == {ONE, TWO} and len(made) == 2


def back(made: InstancePartitions) -> None:
    made.drop([ONE])
    made.add([ONE])


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
    before = made.next_number()
    change(made)
    assert made.to_commit(BOTH, before, 1) == BOTH[1:]
    assert made.held(TWO, before) and not made.held(ONE, before)


def test_a_partition_that_came_back_is_committed_again() -> None:
    made = assigned()
    back(made)
    assert made.to_commit(BOTH, made.next_number(), 1) == BOTH


def test_a_repeated_commit_leaves_out_what_a_later_one_has_committed() -> None:
    """Whatever the offsets: they go back after a seek, and in a log that was truncated."""
    made = assigned()
    made.committed((Commit("t", 1, 3, ""),), 2)
    assert made.to_commit(BOTH, made.next_number(), 1) == BOTH[1:]
    assert made.to_commit(BOTH, made.next_number(), 2) == BOTH
