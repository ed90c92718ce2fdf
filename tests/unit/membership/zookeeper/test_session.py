"""A session in a group of ZooKeeper: what its thread and its member on the loop do at the same time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pixy.kafka.consumer import Commit
from pixy.kafka.partition_logs import Log
from pixy.membership import Assigned, Event, Lost, Revoked, SessionFailed
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

    made = 0

    def __init__(self, *_: object) -> None:
        FakeMember.made += 1

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


async def test_the_time_for_a_hand_over_begins_when_the_group_hears_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread may be polling, or committing a beginning. Acks that come in time are committed."""
    session, events = open_session(monkeypatch)
    monkeypatch.setattr(session_module, "DRAIN_SLACK", 0.0)
    consumer: Any = session._client
    async with asyncio.timeout(30):
        session.acquire([ONE])
        assert isinstance(await events.get(), Assigned)
        polling, go_on = threading.Event(), threading.Event()

        def poll() -> None:
            polling.set()
            go_on.wait(30)

        consumer.steps.put(poll)
        while not polling.is_set():
            await asyncio.sleep(0.001)
        session._conf.drain_timeout = 0.0
        handing_back = asyncio.create_task(session.hand_back([ONE]))
        await asyncio.sleep(0.05)  # were its time running already, it would be over
        session._conf.drain_timeout = 20.0
        go_on.set()
        revoked = await events.get()
        assert isinstance(revoked, Revoked)
        session.release(revoked, [Commit(TOPIC, 0, 5, "")])
        await handing_back
        assert ("commit", [Commit(TOPIC, 0, 5, "")]) in consumer.calls
    await session.close((), 10)


async def test_nothing_follows_the_failure_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    session, events = open_session(monkeypatch)
    async with asyncio.timeout(30):
        session.acquire([ONE])
        assert isinstance(await events.get(), Assigned)
        session.failed(RuntimeError("on purpose"))
        assert isinstance(await events.get(), SessionFailed)
        session.lose([ONE])
        session.joined()
        session.failed(RuntimeError("again"))
        await session.close((), 10)
    assert events.empty()


async def test_a_session_without_a_thread_leaves_no_member_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would go on removing the registration, which is that of the group's next session by then."""

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made = FakeMember.made
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            open_session(monkeypatch)
    assert FakeMember.made == made
