"""The offset committer: what it commits, and for whom."""

from __future__ import annotations

from typing import Any

from actors.testing import Sim, simulate
from pixy.engine.consume.offset_committer import Forget, Moved, OffsetCommitter, Track
from pixy.engine.consume.offset_tracker import Position
from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit
from pixy.membership import Committed

ONE, TWO = ("t", 0), ("t", 1)
INTERVAL = 0.5
FIVE, SIX = Position(5, ()), Position(6, ())
DONE = Committed(None, {})
REFUSED = Committed(KafkaError("refused", 25, "UNKNOWN_MEMBER_ID"), {})


class Session:
    """Keeps the commits that it is given."""

    def __init__(self) -> None:
        self.committed: list[tuple[str, int, int]] = []

    def commit(self, commits: Any) -> None:
        self.committed += [(each.topic, each.partition, each.offset) for each in commits]


def committed_after(*messages: Any) -> list[tuple[str, int, int]]:
    """What the committer has committed some intervals after it got the messages."""
    session = Session()

    async def scenario(sim: Sim) -> None:
        committer = sim.system.spawn(OffsetCommitter, session, INTERVAL, name="committer")
        for message in messages:
            committer.tell(message, urgent=True)
        await sim.sleep(3 * INTERVAL)

    simulate(scenario, seed=1)
    return session.committed


def test_the_last_position_of_an_interval_is_committed() -> None:
    assert committed_after(Track(ONE, 1), Moved(ONE, 1, FIVE), Moved(ONE, 1, SIX)) == [("t", 0, 6)]


def test_an_ack_after_the_release_is_not_committed() -> None:
    """The partition belongs to another member by now: committing would undo its commits."""
    assert committed_after(Track(ONE, 1), Forget((ONE,)), Moved(ONE, 1, FIVE, at_once=True)) == []


def test_an_ack_of_an_earlier_assignment_is_not_committed() -> None:
    moved = Moved(ONE, 1, FIVE, at_once=True)
    assert committed_after(Track(ONE, 1), Forget((ONE,)), Track(ONE, 2), moved) == []


def test_a_commit_that_failed_is_tried_again() -> None:
    moved = Moved(ONE, 1, FIVE, at_once=True)
    assert committed_after(Track(ONE, 1), moved, REFUSED) == [("t", 0, 5)] * 2


def test_a_commit_that_failed_is_not_tried_again_for_a_partition_that_left_and_came_back() -> None:
    """Another member may have had the partition meanwhile: its commits are newer."""
    moved = Moved(ONE, 1, FIVE, at_once=True)
    assert committed_after(Track(ONE, 1), moved, Forget((ONE,)), Track(ONE, 2), REFUSED) == [("t", 0, 5)]


MINUTE, DAY = 60.0, 86_400.0


def test_an_offset_that_does_not_change_is_committed_again_when_it_is_assigned_and_daily() -> None:
    """With what else was committed with it. Each commit begins the day anew, and a failed one counts for nothing."""
    session = Session()
    kept = Commit("t", 0, 5, "BB")
    batches: list[list[Commit]] = []
    session.commit = batches.append  # type: ignore[method-assign]

    async def scenario(sim: Sim) -> None:
        committer = sim.system.spawn(OffsetCommitter, session, MINUTE, DAY, name="committer")
        committer.tell(Track(ONE, 1, kept), urgent=True)
        committer.tell(Track(TWO, 2), urgent=True)
        await sim.sleep(2 * MINUTE)
        committer.tell(DONE, urgent=True)
        await sim.sleep(DAY - 2 * MINUTE)
        assert batches == [[kept]]
        await sim.sleep(4 * MINUTE)
        committer.tell(REFUSED, urgent=True)
        await sim.sleep(2 * MINUTE)
        assert batches == [[kept]] * 3
        committer.tell(DONE, urgent=True)
        await sim.sleep(DAY / 2)
        committer.tell(Moved(TWO, 2, SIX), urgent=True)
        await sim.sleep(2 * MINUTE)
        committer.tell(DONE, urgent=True)
        await sim.sleep(DAY / 2 + MINUTE)
        committer.tell(DONE, urgent=True)
        two = Commit("t", 1, 6, "")
        assert batches == [[kept]] * 3 + [[two], [kept]]
        committer.tell(Forget((ONE,)), urgent=True)
        await sim.sleep(DAY)
        assert batches[5:] == [[two]]

    simulate(scenario, seed=1)


def test_kafkas_own_groups_commit_nothing_again() -> None:
    assert committed_after(Track(ONE, 1, Commit("t", 0, 5, ""))) == []
