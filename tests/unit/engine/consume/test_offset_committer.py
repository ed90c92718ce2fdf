"""The offset committer: what it commits, and for whom."""

from __future__ import annotations

from typing import Any

from actors import ActorSystem
from pixy.engine.consume.offset_committer import Forget, LastKnown, Moved, OffsetCommitter, Track
from pixy.engine.consume.offset_tracker import Position

ONE = ("t", 0)


class Session:
    """Keeps the commits that it is given."""

    def __init__(self) -> None:
        self.committed: list[tuple[str, int, int]] = []

    def commit(self, commits: Any) -> None:
        self.committed += [(each.topic, each.partition, each.offset) for each in commits]


async def known_after(*messages: Any) -> tuple[Position | None, list[tuple[str, int, int]]]:
    session = Session()
    async with ActorSystem() as system:
        committer = system.spawn(OffsetCommitter, session, 60.0)
        for message in messages:
            committer.tell(message, urgent=True)
        known = await committer.ask(LastKnown(ONE), block=False)
    return known, session.committed


async def test_the_last_position_is_known_and_committed_at_the_end() -> None:
    five, six = Position(5, ()), Position(6, ())
    assert await known_after(Track(ONE, 1), Moved(ONE, 1, five), Moved(ONE, 1, six)) == (six, [("t", 0, 6)])


async def test_an_ack_after_the_release_is_not_committed() -> None:
    """The partition belongs to another member by now: committing would undo its commits."""
    moved = Moved(ONE, 1, Position(5, ()))
    assert await known_after(Track(ONE, 1), Forget((ONE,)), moved) == (None, [])


async def test_an_ack_of_an_earlier_assignment_is_not_committed() -> None:
    moved = Moved(ONE, 1, Position(5, ()))
    assert await known_after(Track(ONE, 1), Forget((ONE,)), Track(ONE, 2), moved) == (None, [])
