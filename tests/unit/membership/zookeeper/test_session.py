"""A session in a group of ZooKeeper: what its thread and its member on the loop do at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pixy.kafka.consumer import Commit
from pixy.kafka.partition_logs import Log
from pixy.membership import Assigned, Event, Lost, Revoked
from pixy.membership.kafka import fetching_session
from pixy.membership.kafka.start_lookups import Found
from pixy.membership.zookeeper import session as session_module
from pixy.membership.zookeeper.layout import Layout
from pixy.membership.zookeeper.session import ZooKeeperSession
from pixy.wire.types import TopicPartition
from tests.support import make_config
from tests.unit.engine.records import TOPIC
from tests.unit.membership.kafka.test_session import FOUND, OTHER_ID, FakeConsumer, FakeLookups

ONE, OTHER = (TOPIC, 0), (TOPIC, 1)


class FakeMember:
    """Claims nothing by itself; the test says what is acquired and handed back."""

    def __init__(self, *_: object) -> None:
        pass

    def is_established(self, _topic: str) -> bool:
        return True

    async def stop(self) -> None:
        pass

    async def leave(self, _timeout: float) -> None:
        pass


def open_session(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[ZooKeeperSession, asyncio.Queue[Event]]:
    """A session whose member, consumer and lookups are fakes, and its events."""
    monkeypatch.setattr(fetching_session, "ConsumerClient", FakeConsumer)
    monkeypatch.setattr(fetching_session, "StartLookups", FakeLookups)
    monkeypatch.setattr(session_module, "GroupMember", FakeMember)
    events: asyncio.Queue[Event] = asyncio.Queue()
    nothing: Any = None
    proxy = make_config(["127.0.0.1:1"]).proxies["default"]
    session = ZooKeeperSession(proxy, Layout("/kafka", "g"), events.put_nowait, nothing, nothing, nothing)
    return session, events


async def test_a_partition_that_is_handed_back_while_it_is_looked_up_is_not_assigned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its claim is given up after that: two members would deliver its messages, and the first one for ever."""
    session, events = open_session(monkeypatch)
    lookups: Any = session._lookups
    consumer: Any = session._client
    asked: list[set[TopicPartition]] = []
    answers: list[Callable[[], None]] = []

    def look_up(wanted: Iterable[TopicPartition], _after: object, found: Any, done: Any) -> None:
        each = list(wanted)
        asked.append(set(each))
        answers.append(lambda: (found(dict.fromkeys(each, FOUND)), done())[-1])

    monkeypatch.setattr(lookups, "look_up", look_up)
    async with asyncio.timeout(30):
        session.acquire([ONE, OTHER])
        while not asked:
            await asyncio.sleep(0.001)
        handing_back = asyncio.create_task(session.hand_back([ONE]))
        revoked = await events.get()
        assert revoked == Revoked((ONE,))
        answers.pop()()
        assigned = await events.get()
        assert isinstance(assigned, Assigned)
        assert [each.partition for each in assigned.partitions] == [1]
        session.release(revoked, [Commit(TOPIC, 0, 5, "")])
        await handing_back
        assert events.empty()
        assert [call for call in consumer.calls if call[0] == "assign"] == [("assign", [OTHER])]
    await session.close((), 10)


async def test_a_partition_that_is_handed_back_does_not_begin_again_when_its_topic_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found while its owner drains: its claim is given up after that, as above."""
    session, events = open_session(monkeypatch)
    lookups: Any = session._lookups
    consumer: Any = session._client
    async with asyncio.timeout(30):
        session.acquire([ONE, OTHER])
        assigned = await events.get()
        assert isinstance(assigned, Assigned) and len(assigned.partitions) == 2
        handing_back = asyncio.create_task(session.hand_back([ONE]))
        revoked = await events.get()
        assert revoked == Revoked((ONE,))
        new = Found(Log(OTHER_ID, 7, 100, 100), FOUND.committed, True)
        lookups.outcomes = {ONE: new, OTHER: new}
        lookups.ids = {TOPIC: OTHER_ID}
        session._partitions._compare_at = 0.0
        assert await events.get() == Lost((ONE, OTHER))
        assigned = await events.get()
        assert isinstance(assigned, Assigned)
        assert [each.partition for each in assigned.partitions] == [1]
        session.release(revoked, ())
        await handing_back
        assert events.empty()
        assert [call for call in consumer.calls if call[0] == "assign"] == [
            ("assign", [ONE, OTHER]),
            ("assign", [OTHER]),
        ]
    await session.close((), 10)
