"""What the engine counts of a group."""

from __future__ import annotations

from pixy.engine.counters import ONE, GroupCounters


def test_assignments_that_come_one_after_another_are_one_rebalance() -> None:
    """Each restart of another daemon counted up to six times, so two of them were a storm."""
    counters = GroupCounters()
    for now in (10.0, 10.1, 10.0 + ONE / 2, 20.0, 20.2):
        counters.rebalanced(now)
    assert list(counters.rebalances) == [10.0, 20.0]
