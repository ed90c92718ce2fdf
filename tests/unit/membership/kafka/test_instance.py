"""The start and end of an instance's thread: off the loop, with an error if the system has no more threads or
clients, and without leaving a client behind.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError as ConfluentError

from pixy.errors import Unavailable
from pixy.membership.instances import Earlier, Fetched, SessionFailed
from pixy.membership.kafka import first_records, instance, left_behind, unheard
from pixy.membership.kafka.instance import KafkaInstance
from pixy.membership.kafka.session import KafkaSession
from tests.support import make_config
from tests.unit.membership.kafka.instance_case import OTHER, PARTITION, Case, Message


def opened(post: Any) -> KafkaInstance:
    proxy = make_config(["127.0.0.1:1"]).proxies["default"]
    return KafkaInstance(proxy, "g", "c", "earliest", "read_committed", True, Earlier(), post)


async def test_without_a_thread_the_session_fails_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            if self.name == "kafka-c":
                raise RuntimeError("can't start new thread")
            super().start()

    monkeypatch.setattr(instance.threading, "Thread", Refused)
    events: asyncio.Queue[Any] = asyncio.Queue()
    session = opened(events.put_nowait)
    failed = await asyncio.wait_for(events.get(), 30)
    assert isinstance(failed, SessionFailed)
    assert isinstance(failed.error, Unavailable)
    assert "instance c of group g: can't start new thread" in str(failed.error)
    await asyncio.wait_for(session.close([], 10), 30)


async def test_a_thread_that_is_slow_to_start_does_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_start = threading.Event()

    class Slow(threading.Thread):
        def start(self) -> None:
            if self.name == "kafka-c" and not may_start.wait(10):
                raise AssertionError("the loop waited for the start of the thread")
            super().start()

    monkeypatch.setattr(instance.threading, "Thread", Slow)
    events: list[Any] = []
    session = opened(events.append)
    may_start.set()  # not reached if the constructor waits for the thread
    await asyncio.wait_for(session.close([], 10), 30)
    assert not events


def consumers() -> int:
    return sum(isinstance(each, Consumer) for each in gc.get_objects())


@pytest.mark.slow
async def test_a_closed_session_frees_its_client_at_once() -> None:
    """A process can have about 1,000 clients: each takes one of 1,024 keys of thread-local storage."""
    gc.collect()
    gc.disable()
    try:
        before = consumers()
        proxy = make_config(["127.0.0.1:1"]).proxies["default"]
        sessions = [opened(lambda _event: None), KafkaSession(proxy, "g", lambda _event: None)]
        await asyncio.to_thread(_until, lambda: consumers() == before + 2)
        for session in sessions:
            await asyncio.wait_for(session.close([], 10), 30)
        await asyncio.to_thread(_until, lambda: consumers() == before)
    finally:
        gc.enable()


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_too_many_clients_are_an_error_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_settings: object) -> None:
        raise RuntimeError("SessionFailed to initialize thread local storage")

    monkeypatch.setattr("pixy.kafka.consumer.Consumer", refused)
    events: asyncio.Queue[Any] = asyncio.Queue()
    session = opened(events.put_nowait)
    failed = await asyncio.wait_for(events.get(), 30)
    assert isinstance(failed.error, Unavailable) and "as many Kafka clients as it can have" in str(
        failed.error
    )
    await asyncio.wait_for(session.close([], 10), 30)


class JoinedClient:
    """The part of :class:`pixy.kafka.instance_consumer.InstanceConsumer` that a member without a reader calls."""

    unanswered_heartbeats = 1

    def __init__(self, _settings: object, **_callbacks: object) -> None:
        pass

    def subscribe_or_raise(self, _topics: object) -> None:
        pass

    def poll(self, _timeout: float) -> None:
        pass

    def member_id(self) -> str:
        return "me"

    def close(self) -> None:
        pass


class BehindLookups:
    """The coordinator says that the member is behind its group."""

    running = 0

    def __init__(self, *_: object) -> None:
        pass

    def behind(self, member_id: str, found: Callable[[bool], None]) -> None:
        found(member_id == "me")

    def describe(self, *_: object) -> None:
        """Nobody answers."""

    def close(self) -> None:
        pass


async def test_a_member_that_never_heard_of_its_assignment_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer with it came too late, and librdkafka does not ask again."""
    monkeypatch.setattr(instance, "InstanceConsumer", JoinedClient)
    monkeypatch.setattr(instance, "StartLookups", BehindLookups)
    monkeypatch.setattr(left_behind, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(left_behind, "PATIENCE", 0.05)
    events: asyncio.Queue[Any] = asyncio.Queue()
    session = opened(events.put_nowait)
    session.subscribe(1, ("t",))
    while not isinstance(event := await asyncio.wait_for(events.get(), 30), SessionFailed):
        pass
    assert str(event.error).startswith("kafka: the answer with this member's assignment was lost")
    await session.close((), 10)


async def test_a_partition_that_is_not_fetched_ends_the_session_though_others_are_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its topic was made again, and librdkafka asks with a leader epoch of the old one."""
    monkeypatch.setattr(unheard, "LOOK_AFTER", 0.0)
    monkeypatch.setattr(unheard, "PATIENCE", 1000.0)
    monkeypatch.setattr(unheard, "PATIENCE_BUSY", 0.01)
    case = await Case(monkeypatch).assigned(PARTITION, OTHER, made_again=True)
    case.client.busy = True
    ended: list[SessionFailed] = []
    for _ in range(2000):
        event = await case.event(lambda event: isinstance(event, Fetched | SessionFailed))
        if isinstance(event, SessionFailed):
            ended.append(event)
            break
        case.session.want(1, 1000)
    assert "does not fetch t/0" in str(ended[0].error)
    assert case.client.learned == [PARTITION[0]], "it may not have known the partition"
    await case.session.close((), 10)


async def test_an_answer_to_a_heartbeat_after_which_the_client_sends_none_ends_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in :mod:`tests.unit.membership.kafka.test_session`."""

    class Fatal(Message):
        def error(self) -> Any:
            return ConfluentError(ConfluentError._FATAL, "group id does not exist")

    case = await Case(monkeypatch).assigned(PARTITION, OTHER)
    case.client.in_poll.put(lambda: Fatal(0, 0))
    case.session.want(1, 1000)
    failed = await case.event(lambda event: isinstance(event, SessionFailed))
    assert "group id does not exist" in str(failed.error)
    await case.session.close((), 10)


async def reading(monkeypatch: pytest.MonkeyPatch) -> Case:
    """A session with two partitions, of which a read of ten records waits. It gives back at once what is revoked."""
    monkeypatch.setattr(first_records, "_SETTLING", 1000.0)
    monkeypatch.setattr(first_records, "_GATHER", 1000.0)
    case = await Case(monkeypatch).assigned(PARTITION, OTHER)
    case.on_revoked = lambda revoked: case.session.release(revoked, ())
    case.session.want(10, 1000)
    case.session.committed(2, ())
    await case.result(2)  # it has seen what is wanted now
    return case


async def fetched(case: Case) -> Fetched:
    event: Fetched = await case.event(lambda event: isinstance(event, Fetched))
    return event


async def test_a_read_gets_no_record_of_a_partition_that_goes_while_the_others_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader's position does not move with it, so that the next owner returns it too."""
    case = await reading(monkeypatch)
    theirs = Message(1, 7)
    case.client.in_poll.put(lambda: Message(0, 5))
    case.client.in_poll.put(lambda: case.client.revoked([PARTITION]))
    case.client.in_poll.put(lambda: theirs)
    assert await fetched(case) == Fetched([theirs], len(theirs))
    await case.session.close((), 10)


async def test_a_read_gets_no_record_of_a_partition_that_goes_while_more_are_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither one that was there before nor one that the same call returns."""
    case = await reading(monkeypatch)
    theirs = [Message(1, 7), Message(1, 8)]

    def take() -> list[Message]:
        case.client.revoked([PARTITION])
        return [Message(0, 6), *theirs]

    case.client.in_take.put(take)
    case.client.in_poll.put(lambda: Message(0, 5))
    case.client.in_poll.put(lambda: Message(1, 6))
    event = await fetched(case)
    assert [each.at for each in event.records] == [(1, 6), (1, 7), (1, 8)]
    assert event.size == sum(map(len, event.records))
    await case.session.close((), 10)


async def test_a_read_of_a_partition_that_goes_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing: the instance asks again, for what it has then."""
    case = await reading(monkeypatch)

    def take() -> list[Message]:
        case.client.revoked([PARTITION, OTHER])
        return []

    case.client.in_take.put(take)
    case.client.in_poll.put(lambda: Message(0, 5))
    case.client.in_poll.put(lambda: Message(1, 6))
    assert await fetched(case) == Fetched([], 0)
    await case.session.close((), 10)
