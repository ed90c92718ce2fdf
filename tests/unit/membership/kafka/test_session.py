"""How a session drives its consumer, with a consumer that runs the test's steps."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pixy.kafka.consumer import Commit, Committed as CommittedOffset
from pixy.membership import Assigned, Event, Fetched, Revoked
from pixy.membership.kafka import session as session_module
from pixy.membership.kafka.session import KafkaSession
from pixy.wire.types import TopicPartition
from tests.support import make_config
from tests.unit.engine.records import TOPIC, Record

FULL, OTHER = (TOPIC, 0), (TOPIC, 1)
ROOM = 10


class FakeMessage(Record):
    def error(self) -> None:
        return None


class FakeConsumer:
    """The part of :class:`pixy.kafka.consumer.ConsumerClient` that a session calls."""

    def __init__(self, _settings: object, **callbacks: Callable[[list[TopicPartition]], None]) -> None:
        self.callbacks = callbacks
        self.steps: queue.Queue[Callable[[], Any]] = queue.Queue()
        """Run inside ``poll``, in the session's thread; the result is the message."""
        self.calls: list[tuple[str, Any]] = []

    def poll(self, _timeout: float) -> Any:
        try:
            return self.steps.get(timeout=0.01)()
        except queue.Empty:
            return None

    def take(self, _most: int) -> list[Any]:
        return []

    def subscribe(self, topics: Iterable[str]) -> None:
        self.calls.append(("subscribe", list(topics)))

    def assign(self, starts: Iterable[tuple[TopicPartition, int]]) -> None:
        self.calls.append(("assign", [partition for partition, _ in starts]))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.calls.append(("seek", (partition, offset)))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("pause", list(partitions)))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("resume", list(partitions)))

    def committed(self, partitions: list[TopicPartition], _timeout: float) -> dict[TopicPartition, Any]:
        return {partition: CommittedOffset(0, "") for partition in partitions}

    def bounds(self, partitions: list[TopicPartition], _timeout: float) -> dict[TopicPartition, Any]:
        return dict.fromkeys(partitions, (0, 100))

    def commit(self, commits: Iterable[Commit], *, wait: bool) -> None:
        self.calls.append(("commit", list(commits)))

    def close(self) -> None:
        pass


class Case:
    """A session of a group that was assigned both partitions, and has paused one because it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(session_module, "ConsumerClient", FakeConsumer)
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        config = make_config(["127.0.0.1:1"], prefetch_max_messages=ROOM)
        self.session = KafkaSession(config.proxies["default"], "g", self.events.put_nowait)
        self.consumer: FakeConsumer = self.session._client  # type: ignore[assignment]

    async def event(self, wanted: type[Event]) -> Event:
        async with asyncio.timeout(10):
            event = await self.events.get()
        assert isinstance(event, wanted), event
        return event

    def step(self, callback: str, *partitions: TopicPartition) -> None:
        self.consumer.steps.put(lambda: self.consumer.callbacks[callback](list(partitions)))

    async def fill(self) -> None:
        self.session.subscribe({TOPIC: 2})
        self.step("assign", FULL, OTHER)
        await self.event(Assigned)
        for offset in range(ROOM):
            self.consumer.steps.put(lambda offset=offset: FakeMessage(0, offset))  # type: ignore[misc]
            await self.event(Fetched)
        await self.until(("pause", [FULL]))
        self.consumer.calls.clear()

    async def until(self, call: tuple[str, Any]) -> None:
        async with asyncio.timeout(10):
            while call not in self.consumer.calls:
                await asyncio.sleep(0.001)


async def test_a_seek_resumes_a_paused_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the owner that restarts, and seeks because of it, would never get a message again."""
    case = Case(monkeypatch)
    await case.fill()
    case.session.seek(FULL, 3, case.session.next_epoch())
    await case.until(("resume", [FULL]))
    assert case.consumer.calls[:2] == [("seek", (FULL, 3)), ("resume", [FULL])]
    await case.session.close((), 10)


async def test_a_paused_partition_that_returns_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(monkeypatch)
    await case.fill()
    case.step("revoke", FULL)
    assert await case.event(Revoked) == Revoked((FULL,))
    case.session.release([Commit(TOPIC, 0, 5, "")])
    case.step("assign", FULL)
    await case.event(Assigned)
    assert case.consumer.calls[:3] == [
        ("commit", [Commit(TOPIC, 0, 5, "")]),
        ("assign", [FULL]),
        ("resume", [FULL]),
    ]
    await case.session.close((), 10)
