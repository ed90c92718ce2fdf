"""Seeks of an instance's session: in all of the partitions, or in none that the reader does not know of."""

from __future__ import annotations

from typing import Any

import pytest

from pixy.errors import IllegalState, KafkaError
from pixy.membership.instances import Done, Revoked, SessionFailed
from tests.unit.membership.kafka.instance_case import OTHER, PARTITION, Case

REFUSED = KafkaError("erroneous state", -172, "_STATE")
PLACES = {PARTITION: 500, OTHER: 0}


async def done(case: Case, token: int) -> Any:
    return await case.event(lambda event: isinstance(event, Done) and event.token == token)


async def test_a_seek_in_a_partition_that_was_just_given_back_moves_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The instance may not have heard of it. It would go on as if the others stood where they were, and commit what it skips."""
    case = await Case(monkeypatch).assigned(PARTITION, OTHER)

    def revoked(event: Revoked) -> None:
        case.session.seek(2, PLACES)
        case.session.release(event, ())

    case.on_revoked = revoked
    case.client.in_poll.put(lambda: case.client.revoked([OTHER]))
    failed = (await done(case, 2)).error
    assert isinstance(failed, IllegalState) and str(failed) == "No current assignment for partition t-1"
    assert case.client.seeks == []
    case.session.seek(3, {PARTITION: 7})
    assert (await done(case, 3)).error is None and case.client.seeks == [(PARTITION, 7)]
    await case.session.close((), 10)


async def test_a_seek_that_fails_halfway_ends_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one continues at the positions that the instance knows."""
    case = await Case(monkeypatch).assigned(PARTITION, OTHER)
    case.client.seek_fails = {OTHER: REFUSED}
    case.session.seek(2, PLACES)
    assert (await done(case, 2)).error is REFUSED
    assert case.client.seeks == [(PARTITION, 500)]
    ended: SessionFailed = await case.event(lambda event: isinstance(event, SessionFailed))
    assert ended.error is REFUSED
    await case.session.close((), 10)


async def test_a_seek_that_moves_nothing_ends_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    case = await Case(monkeypatch).assigned(PARTITION, OTHER)
    case.client.seek_fails = {PARTITION: REFUSED}
    case.session.seek(2, PLACES)
    assert (await done(case, 2)).error is REFUSED
    case.client.seek_fails = {}
    case.session.seek(3, PLACES)
    assert (await done(case, 3)).error is None
    await case.session.close((), 10)
