"""Commits of an instance's session, in its thread: which it holds back, and what it still commits after it has failed."""

from __future__ import annotations

import pytest

from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit
from pixy.membership.instances import Revoked, SessionFailed
from tests.unit.engine.records import TOPIC
from tests.unit.membership.kafka.instance_case import PARTITION, Case

TEN, TWELVE = (Commit(TOPIC, 0, 10, ""),), (Commit(TOPIC, 0, 12, ""),)


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_position_that_runs_after_its_partition_was_given_back_is_left_out(
    monkeypatch: pytest.MonkeyPatch, comes_back: bool
) -> None:
    """The next owner may have committed more. What a client has named is committed as it said."""
    case = await Case(monkeypatch).assigned(PARTITION)
    session = case.session

    def revoked(event: Revoked) -> None:
        session.commit(2, TEN, assigned_only=True)
        session.commit(3, TEN)
        session.release(event, TWELVE)

    def rebalance() -> None:
        case.client.revoked([PARTITION])
        if comes_back:
            case.client.assigned([PARTITION])

    case.on_revoked = revoked
    case.client.in_poll.put(rebalance)
    assert await case.result(2) == ()
    assert await case.result(3) == TEN
    assert case.client.commits == [TWELVE, TEN]
    session.commit(4, TWELVE, assigned_only=True)
    assert await case.result(4) == (TWELVE if comes_back else ())
    await session.close((), 10)


async def test_a_position_is_committed_and_its_repetition_does_not_undo_a_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = await Case(monkeypatch).assigned(PARTITION)
    for token, commits, made in ((3, TWELVE, TWELVE), (2, TEN, ()), (4, TEN, TEN)):
        case.session.commit(token, commits, assigned_only=True)
        assert await case.result(token) == made
    assert case.client.commits == [TWELVE, TEN]
    await case.session.close((), 10)


async def test_a_failed_session_commits_the_last_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    case = await Case(monkeypatch).assigned(PARTITION)

    def fail() -> None:
        raise KafkaError("x", -1, "X")

    case.client.in_poll.put(fail)
    await case.event(lambda event: isinstance(event, SessionFailed))
    await case.session.close(TWELVE, 10)
    assert case.client.commits == [TWELVE]
