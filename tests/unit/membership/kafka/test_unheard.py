"""Which partitions are stuck, told when what was started, heard and looked up."""

from __future__ import annotations

from pixy.kafka.partition_logs import Log
from pixy.membership.kafka.unheard import LOOK_AFTER, PATIENCE, PATIENCE_BUSY, Unheard
from pixy.wire.schema import NULL_UUID

ONE, TWO = ("t", 0), ("t", 1)


def log(oldest: int, stable: int) -> Log:
    return Log(NULL_UUID, oldest, stable, stable)


def test_a_partition_with_messages_of_which_none_comes_is_stuck() -> None:
    unheard = Unheard()
    unheard.started({ONE: 0, TWO: 0}, 0.0)
    assert unheard.due(LOOK_AFTER - 0.1) == []
    assert unheard.due(LOOK_AFTER) == [ONE, TWO]
    unheard.looked_up({ONE: log(0, 5), TWO: log(0, 0)}, 10.0)
    assert unheard.stuck(10.0 + PATIENCE - 0.1) == []
    assert unheard.stuck(10.0 + PATIENCE) == [ONE]


def test_one_of_which_nothing_comes_while_others_bring_messages_is_stuck_later() -> None:
    """Its messages may lie behind those of the others."""
    unheard = Unheard()
    unheard.started({ONE: 0}, 0.0)
    unheard.due(LOOK_AFTER)
    unheard.looked_up({ONE: log(0, 5)}, 10.0)
    assert unheard.stuck(10.0 + PATIENCE_BUSY - 0.1, busy=True) == []
    assert unheard.stuck(10.0 + PATIENCE_BUSY, busy=True) == [ONE]


def test_an_empty_partition_is_looked_up_again_until_it_has_messages() -> None:
    unheard = Unheard()
    unheard.started({ONE: 7}, 0.0)
    assert unheard.due(LOOK_AFTER) == [ONE]
    unheard.looked_up({ONE: log(0, 7)}, LOOK_AFTER)
    assert unheard.due(LOOK_AFTER + 0.1) == []
    assert unheard.due(2 * LOOK_AFTER) == [ONE]
    unheard.looked_up({ONE: log(0, 8)}, 2 * LOOK_AFTER)
    assert unheard.due(3 * LOOK_AFTER) == [], "it is known to have messages"
    assert unheard.stuck(2 * LOOK_AFTER + PATIENCE) == [ONE]


def test_what_is_heard_of_or_started_again_is_not_stuck() -> None:
    unheard = Unheard()
    for act in (lambda: unheard.heard([ONE]), lambda: unheard.started({ONE: 0}, 100.0)):
        unheard.started({ONE: 0}, 0.0)
        unheard.due(LOOK_AFTER)
        unheard.looked_up({ONE: log(0, 5)}, LOOK_AFTER)
        act()
        assert unheard.stuck(100.0) == []
    unheard.heard([ONE])
    unheard.looked_up({ONE: log(0, 5)}, 200.0)
    assert unheard.stuck(300.0) == [] and unheard.due(300.0) == []


def test_a_start_before_the_oldest_message_counts_from_there() -> None:
    unheard = Unheard()
    unheard.started({ONE: -2, TWO: 0}, 0.0)
    unheard.due(LOOK_AFTER)
    unheard.looked_up({ONE: log(0, 0), TWO: log(5, 5)}, LOOK_AFTER)
    assert unheard.stuck(100.0) == []


def test_the_library_asks_for_the_topic_before_a_partition_is_stuck() -> None:
    """It may not know a partition that was added within the last 10 s."""
    unheard = Unheard()
    unheard.started({ONE: 0, TWO: 0}, 0.0)
    unheard.due(LOOK_AFTER)
    unheard.looked_up({ONE: log(0, 5), TWO: log(0, 0)}, 10.0)
    assert unheard.to_learn() == {"t"}
    unheard.learned(100.0)
    assert unheard.to_learn() == set()
    assert unheard.stuck(100.0 + PATIENCE - 0.1) == []
    unheard.looked_up({ONE: log(0, 6)}, 101.0)
    assert unheard.to_learn() == set(), "once for each"
    assert unheard.stuck(100.0 + PATIENCE) == [ONE]
