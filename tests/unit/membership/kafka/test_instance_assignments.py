"""Assignments of chosen partitions by an instance's session, also those that fail."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.membership.instances import Done, Earlier, EarlierPosition, Fetched, Met, MetTopic
from pixy.wire.types import TopicPartition
from tests.unit.engine.records import TOPIC
from tests.unit.membership.kafka.instance_case import OTHER, PARTITION, Case, Client, Lookups, Message

REFUSED = KafkaError("no coordinator", 15, "COORDINATOR_NOT_AVAILABLE")


async def done(case: Case, token: int) -> Any:
    return await case.event(lambda event: isinstance(event, Done) and event.token == token)


async def test_an_assignment_that_failed_continues_at_the_same_positions_when_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier = Earlier({PARTITION: EarlierPosition(7, frozenset())})
    case = Case(monkeypatch, earlier)
    case.session.committed(1, ())
    await case.result(1)  # the client is there
    case.client.assign_fails = [REFUSED]
    case.session.assign(2, (PARTITION, OTHER), {}, repeated=True)
    assert (await done(case, 2)).error is REFUSED
    assert not case.session._topics._ids, "what is not assigned is not compared"
    case.session.assign(3, (PARTITION, OTHER), {}, repeated=True)
    assert (await done(case, 3)).value == {PARTITION: 7, OTHER: 10}
    case.session.assign(4, (OTHER,), {})
    assert (await done(case, 4)).value == {OTHER: 10}
    case.session.assign(5, (PARTITION, OTHER), {})
    assert (await done(case, 5)).value == {PARTITION: 10, OTHER: 10}, "the position was for the restart"
    await case.session.close((), 10)


async def test_an_assignment_that_fails_leaves_what_is_assigned(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    case.session.assign(1, (PARTITION,), {})
    await done(case, 1)
    case.client.assign_fails = [REFUSED]
    case.session.assign(2, (PARTITION, OTHER), {PARTITION: 50})
    assert (await done(case, 2)).error is REFUSED
    assert set(case.session._topics._ids) == set(case.session._assigned) == {PARTITION}
    await case.session.close((), 10)


async def test_the_instance_hears_of_the_id_of_a_topic_that_is_made_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else its next session would take a topic that was made again for this one."""
    case, made = Case(monkeypatch), uuid.UUID(int=1)
    case.session.assign(1, (PARTITION,), {})
    assert (await case.event(lambda event: isinstance(event, Met))).topics == {}
    await done(case, 1)
    monkeypatch.setattr(Lookups, "ids", {TOPIC: made})
    case.client.in_poll.put(lambda: Message(0, 10))
    case.session.want(1, 1000)
    await case.event(lambda event: isinstance(event, Fetched))
    case.session.want(1, 1000)
    assert (await case.event(lambda event: isinstance(event, Met))).topics == {TOPIC: MetTopic(made)}
    await case.session.close((), 10)


async def test_a_topic_that_is_found_made_again_while_an_assignment_waits_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The instance has not heard of it when it tells the position to keep."""
    old, new = uuid.UUID(int=1), uuid.UUID(int=2)
    restarted: list[tuple[TopicPartition, int]] = []
    fetched: list[dict[TopicPartition, int]] = []
    monkeypatch.setattr(Client, "topic_ids", lambda *_: {TOPIC: old})
    monkeypatch.setattr(Client, "restart", lambda _, *start: restarted.append(start), raising=False)
    monkeypatch.setattr(Client, "assign_only", lambda _, starts: fetched.append(dict(starts)))
    case = Case(monkeypatch)
    case.session.assign(1, (PARTITION,), {})
    await done(case, 1)
    monkeypatch.setattr(Client, "topic_ids", lambda *_: {TOPIC: new})
    topics, told = case.session._topics, threading.Event()

    def compared() -> None:
        told.wait(30)
        topics._compared(dict(topics._ids), {TOPIC: new})

    case.session._run_soon(compared)
    case.session.assign(2, (PARTITION, OTHER), {PARTITION: 100})
    told.set()
    assert (await done(case, 2)).value[PARTITION] == 0
    assert restarted == [(PARTITION, 0)] and fetched[-1][PARTITION] == 0
    case.session.assign(3, (PARTITION, OTHER), {PARTITION: 7})
    assert (await done(case, 3)).value[PARTITION] == 7, "the reader has read on"
    await case.session.close((), 10)
