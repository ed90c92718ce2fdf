"""Round robin over the ready partitions of a topic."""

from __future__ import annotations

from pixy.engine.consume.dispatch import RoundRobin


def test_ready_partitions_take_turns() -> None:
    ready = RoundRobin()
    for partition in (3, 1, 2):
        ready.announce(partition, 2)
    assert [ready.next() for _ in range(6)] == [1, 2, 3, 1, 2, 3]
    assert not ready


def test_turns_continue_after_a_change_and_restart_at_the_lowest_partition() -> None:
    ready = RoundRobin()
    ready.announce(1, 5)
    ready.announce(2, 5)
    assert ready.next() == 1
    ready.announce(0, 5)
    assert ready.next() == 2
    ready.restart()
    assert ready.next() == 0
    ready.remove(1)
    assert [ready.next(), ready.next()] == [2, 0]


def test_a_partition_without_messages_takes_no_turn() -> None:
    ready = RoundRobin()
    ready.announce(7, 3)
    ready.announce(8, 0)
    assert [ready.next() for _ in range(3)] == [7, 7, 7]
