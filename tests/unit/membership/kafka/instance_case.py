"""The session of a consumer instance in its thread, on a client and look-ups that a test steers."""

from __future__ import annotations

import asyncio
import queue
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit, CommittedOffset
from pixy.kafka.partition_logs import Log
from pixy.membership.instances import Assigned, Done, Earlier, Revoked
from pixy.membership.kafka import instance
from pixy.membership.kafka.instance import KafkaInstance
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition
from tests.support import make_config
from tests.unit.engine.records import TOPIC, Record

PARTITION, OTHER = (TOPIC, 0), (TOPIC, 1)
NEW = Earlier()
"""Of an instance that did not restart."""


class Message(Record):
    """A record without an error."""

    def error(self) -> None:
        return None


class Client:
    """The part of :class:`pixy.kafka.instance_consumer.InstanceConsumer` that a member calls."""

    unanswered_heartbeats = 0

    def __init__(self, _settings: object, *, assign: Any, revoke: Any, **_callbacks: object) -> None:
        self.assigned, self.revoked = assign, revoke
        self.in_poll: queue.SimpleQueue[Callable[[], Message | None]] = queue.SimpleQueue()
        """What happens inside the next polls, and what they return."""
        self.in_take: queue.SimpleQueue[Callable[[], list[Message]]] = queue.SimpleQueue()
        """What happens inside the next takes, and what they return."""
        self.commits: list[tuple[Commit, ...]] = []
        self.seeks: list[tuple[TopicPartition, int]] = []
        self.seek_fails: dict[TopicPartition, KafkaError] = {}
        self.assign_fails: list[KafkaError] = []
        """What the next assignments end with."""
        self.learned: list[str] = []
        """The topics that it was told to ask for."""
        self.busy = False
        """Whether every poll brings a record of the second partition."""
        self._offset = 0

    def poll(self, timeout: float) -> Message | None:
        try:
            act = self.in_poll.get(timeout=min(timeout, 0.001)) if timeout else self.in_poll.get_nowait()
        except queue.Empty:
            if not self.busy:
                return None
            self._offset += 1
            return Message(1, self._offset)
        return act()

    def take(self, _most: int) -> list[Message]:
        try:
            return self.in_take.get_nowait()()
        except queue.Empty:
            return []

    def committed(self, partitions: Iterable[Any], _timeout: float) -> dict[Any, CommittedOffset]:
        return {each: CommittedOffset(10, "") for each in partitions}

    def commit(self, commits: tuple[Commit, ...], **_options: object) -> None:
        self.commits.append(commits)

    def seek_until(self, _deadline: float, partition: TopicPartition, offset: int) -> None:
        if partition in self.seek_fails:
            raise self.seek_fails[partition]
        self.seeks.append((partition, offset))

    def topic_ids(self, *_: object) -> dict[str, Any]:
        return {}

    def layout(self, topics: Iterable[str]) -> dict[str, dict[int, bool]]:
        return {topic: {0: True, 1: True} for topic in topics}

    def assign_only(self, _starts: object) -> None:
        if self.assign_fails:
            raise self.assign_fails.pop()

    def learn(self, topics: Iterable[str]) -> None:
        self.learned += sorted(topics)

    def nothing(self, *_: object) -> None:
        pass

    subscribe_or_raise = assign = resume = close = nothing


class Lookups:
    """Replaces StartLookups: each log has a hundred records, and that is all that is known."""

    running = 0
    ids: Mapping[str, uuid.UUID] = MappingProxyType({})
    """Of the topics that are described."""

    def __init__(self, *_: object) -> None:
        pass

    def logs(
        self,
        partitions: Iterable[TopicPartition],
        found: Callable[[Mapping[TopicPartition, Log]], None],
        _attempts: object = None,
    ) -> None:
        found(dict.fromkeys(partitions, Log(NULL_UUID, 0, 100, 100)))

    def describe(self, _topics: Iterable[str], found: Callable[[Any], None]) -> None:
        found(SimpleNamespace(ids=self.ids, counts={}))

    def close(self) -> None:
        pass


class Case:
    """A session, and the events that it has posted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, earlier: Earlier = NEW) -> None:
        made: list[Client] = []

        def client(*arguments: Any, **options: Any) -> Client:
            made.append(Client(*arguments, **options))
            return made[0]

        monkeypatch.setattr(instance, "InstanceConsumer", client)
        monkeypatch.setattr(instance, "StartLookups", Lookups)
        proxy = make_config(["127.0.0.1:1"]).proxies["default"]
        self._made = made
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self.on_revoked: Callable[[Revoked], None] = lambda _revoked: None
        self.session = KafkaInstance(proxy, "g", "c", "earliest", "read_committed", True, earlier, self._post)

    def _post(self, event: Any) -> None:
        if isinstance(event, Revoked):
            self.on_revoked(event)
        if isinstance(event, Assigned):
            self.session.heard(event)
        self._events.put_nowait(event)

    @property
    def client(self) -> Client:
        return self._made[0]

    async def event(self, wanted: Callable[[Any], bool]) -> Any:
        while not wanted(event := await asyncio.wait_for(self._events.get(), 30)):
            pass
        return event

    async def result(self, token: int) -> Any:
        return (await self.event(lambda event: isinstance(event, Done) and event.token == token)).value

    async def assigned(self, *partitions: TopicPartition, made_again: bool = False) -> Case:
        """Join the group, and get these partitions.

        Args:
            partitions: which.
            made_again: their topic was made again since the client knows it.
        """

        def assign() -> None:
            if made_again:
                self.session._topics._made_again.add(TOPIC)
            self.client.assigned(list(partitions))

        self.session.subscribe(1, (TOPIC,))
        self.session.want(1, 1000)
        await self.result(1)
        self.client.in_poll.put(assign)
        await self.event(lambda event: isinstance(event, Assigned))
        return self
