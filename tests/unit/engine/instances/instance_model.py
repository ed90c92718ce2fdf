"""A model of Kafka under a consumer instance, and an instance on it in simulated time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from actors import Backoff, Intensity, Supervision
from actors.testing import Sim, simulate
from pixy.config.model import Proxy
from pixy.engine.instances.actor import Instance
from pixy.engine.instances.context import END, ReaderState
from pixy.engine.instances.messages import InstanceSpec, ReadBatch, ReadRecords, SubscribeTo
from pixy.engine.instances.topic_patterns import TopicPattern
from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit, CommittedOffset
from pixy.kafka.errors import unknown_topic
from pixy.membership.instances import Assigned, Done, Earlier, Fetched, InstanceEvent, Revoked, SessionFailed
from pixy.wire.types import TopicPartition
from tests.unit.engine.records import TOPIC, Record

READ = ReadRecords(max_bytes=1000, most=100)


class Kafka:
    """A topic's log and a group's committed offsets, which outlive sessions."""

    def __init__(self, partitions: int = 2) -> None:
        self.partitions = partitions
        self.ends = [0] * partitions
        self.sizes: dict[tuple[int, int], int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.history: list[tuple[Commit, ...]] = []
        self.join_takes = 0.05
        self.commit_takes = 0.01
        self.close_takes = 0.02
        self.commit_fails: list[KafkaError] = []
        self.change_fails: list[KafkaError | None] = []
        """What the next subscriptions and assignments of sessions end with; None: they succeed."""
        self.change_takes = 0.005
        self.assigned: list[tuple[tuple[TopicPartition, ...], bool]] = []
        """What sessions were told to assign, and whether it was a repetition."""
        self.sessions: list[Session] = []
        self.topics = [TOPIC]
        self.lookups_fail: list[KafkaError] = []
        self.subscribed: list[tuple[tuple[str, ...], tuple[str, ...]]] = []
        """What sessions were told to subscribe to: the topics, and those of them that were made later."""

    def produce(self, partition: int, count: int = 1, size: int = 10) -> None:
        for _ in range(count):
            self.sizes[partition, self.ends[partition]] = size
            self.ends[partition] += 1
        for session in self.sessions:
            session.look()

    def commit(self, commits: Iterable[Commit]) -> None:
        batch = tuple(commits)
        if batch:
            self.history.append(batch)
        for each in batch:
            self.committed[each.topic, each.partition] = each.offset


class Session:
    """A model of InstanceSession."""

    def __init__(
        self,
        kafka: Kafka,
        rng: random.Random,
        earlier: Earlier,
        post: Callable[[InstanceEvent], None],
    ) -> None:
        self.kafka, self.rng, self.post = kafka, rng, post
        self.earlier = earlier
        self.resume = dict(earlier.positions)
        self.next: dict[TopicPartition, int] = {}
        self.wanted, self.waits = (0, 0), True
        self.closed = False
        self.released = asyncio.Event()
        self.releasing: tuple[TopicPartition, ...] = ()
        self._last = 0.0
        kafka.sessions.append(self)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        # In order, because a real session has one thread.
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + seconds)

        def run() -> None:
            if not self.closed:
                act()

        loop.call_at(self._last, run)

    def subscribe(self, token: int, topics: tuple[str, ...], added: tuple[str, ...] = ()) -> None:
        self.kafka.subscribed.append((topics, added))
        error = self._change_fails()
        self._later(self.kafka.change_takes, lambda: self.post(Done(token, None, error)))
        if error is None and topics and not self.next:
            self._later(self.kafka.join_takes, lambda: self.join(range(self.kafka.partitions)))

    def _change_fails(self) -> KafkaError | None:
        return self.kafka.change_fails.pop(0) if self.kafka.change_fails else None

    def join(self, numbers: Iterable[int]) -> None:
        starts = {}
        for number in numbers:
            partition = (TOPIC, number)
            committed, earlier = self.kafka.committed.get(partition), self.resume.pop(partition, None)
            if earlier is not None and earlier.holds(committed):
                starts[partition] = earlier.offset
            else:
                starts[partition] = committed or 0
        self.next.update(starts)
        self.post(Assigned(starts))
        self.look()

    def assign(
        self,
        token: int,
        partitions: tuple[TopicPartition, ...],
        keep: Mapping[TopicPartition, int],
        *,
        repeated: bool = False,
    ) -> None:
        self.kafka.assigned.append((partitions, repeated))
        error = self._change_fails()

        def act() -> None:
            if error is not None:
                self.post(Done(token, None, error))
                return
            earlier = {each: self.resume[each].offset for each in partitions if each in self.resume}
            self.next = {
                each: {**self.kafka.committed, **earlier, **keep}.get(each, 0) for each in partitions
            }
            self.resume.clear()
            self.post(Done(token, dict(self.next), None))
            self.look()

        self._later(self.kafka.change_takes, act)

    def seek(self, token: int, offsets: Mapping[TopicPartition, int]) -> None:
        def act() -> None:
            self.next.update(offsets)
            self.post(Done(token, None, None))
            self.look()

        self._later(0.005, act)

    def committed(self, token: int, partitions: tuple[TopicPartition, ...]) -> None:
        found = {each: CommittedOffset(self.kafka.committed.get(each), "") for each in partitions}
        self._later(0.005, lambda: self.post(Done(token, found, None)))

    def commit(self, token: int, commits: tuple[Commit, ...], *, assigned_only: bool = False) -> None:
        def act() -> None:
            # Without the epochs of the real session: it stands for commits that it would not have held back.
            made = tuple(
                each for each in commits if not assigned_only or (each.topic, each.partition) in self.next
            )
            error = self.kafka.commit_fails.pop(0) if self.kafka.commit_fails else None
            if error is None:
                self.kafka.commit(made)
            self.post(Done(token, made, error))

        self._later(self.kafka.commit_takes, act)

    def want(self, most: int, max_bytes: int, *, wait: bool = True) -> None:
        self.wanted = (most, max_bytes)
        self.waits = wait
        self.look()

    def look(self) -> None:
        if self.wanted[0] and not self.closed:
            asyncio.get_running_loop().call_later(self.rng.random() * 0.003, self._fetch)

    def _fetch(self) -> None:
        most, max_bytes = self.wanted
        found: list[Record] = []
        size = 0
        for partition, at in list(self.next.items()):
            while (
                most
                and at < self.kafka.ends[partition[1]]
                and len(found) < most + 2
                and size < max_bytes + 20
            ):
                found.append(Record(partition[1], at, self.kafka.sizes[partition[1], at]))
                size += len(found[-1])
                at += 1
            self.next[partition] = at
        if (found or (most and not self.waits)) and not self.closed:
            self.wanted = (0, 0)
            self.post(Fetched(found, size))

    def heard(self, event: Assigned) -> None:
        pass

    def release(self, _revoked: Revoked, commits: Iterable[Commit]) -> None:
        self.kafka.commit(commits)
        for partition in self.releasing:
            self.next.pop(partition, None)
        self.released.set()

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        if not self.closed:
            await asyncio.sleep(self.kafka.close_takes)
            self.kafka.commit(commits)
        self.closed = True

    async def rebalance(self, numbers: Iterable[int]) -> None:
        self.releasing = tuple((TOPIC, number) for number in numbers if (TOPIC, number) in self.next)
        if not self.releasing:
            return
        self.released.clear()
        self.post(Revoked(self.releasing))
        await asyncio.wait_for(self.released.wait(), 10)
        await asyncio.sleep(self.rng.random())
        self.join(sorted(number for _, number in self.releasing))


class Catalogue:
    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka

    async def check(self, topic: str) -> None:
        await asyncio.sleep(0.01)
        if topic != TOPIC:
            raise unknown_topic()

    async def matching(self, pattern: TopicPattern) -> tuple[str, ...]:
        await asyncio.sleep(0.01)
        if self._kafka.lookups_fail:
            raise self._kafka.lookups_fail.pop(0)
        return pattern.matching(self._kafka.topics)

    async def find(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        await asyncio.sleep(0.01)
        return {each: self._kafka.ends[each[1]] if at == END else 0 for each, at in times.items()}


class Case:
    """One instance on one model of Kafka."""

    def __init__(self, sim: Sim, *, partitions: int = 2, **spec: Any) -> None:
        self.sim = sim
        self.kafka = Kafka(partitions)
        self.proxy = Proxy()
        self.conf = self.proxy.instances
        self.spec = InstanceSpec(**{"reset": "earliest", **spec})
        self.registry = sim.probe()
        self.ref: Any = None

    def start(self) -> Case:
        rng = random.Random(self.sim.rng.random())
        self.ref = self.sim.system.spawn(
            Instance,
            "g",
            "i",
            self.spec,
            self.proxy,
            self.registry.ref,
            lambda resume, post: Session(self.kafka, rng, resume, post),
            Catalogue(self.kafka),
            ReaderState(),
            name="i",
            supervision=Supervision(backoff=Backoff(first=0.01), intensity=Intensity(1000, 3600)),
        )
        return self

    def fail_session(self) -> None:
        self.kafka.sessions[-1].post(SessionFailed(KafkaError("on purpose", -1, "X")))

    def ask(self, message: Any) -> Any:
        return self.ref.ask(message, block=False)

    async def subscribe(self) -> None:
        await self.ask(SubscribeTo((TOPIC,)))

    async def read(self, request: ReadRecords = READ, sent: bool = True) -> list[tuple[int, int]]:
        batch: ReadBatch = await self.ask(request)
        (batch.sent if sent else batch.give_back)()
        return [record.at for record in batch.records]  # type: ignore[attr-defined]


def now() -> float:
    return asyncio.get_running_loop().time()


def scenario(function: Any) -> Any:
    """Make a test that runs an async function with several seeds and schedules."""

    @pytest.mark.parametrize("mode", ["actors", "pct", "harsh"])
    def test(mode: str) -> None:
        for seed in range(4):
            simulate(function, seed=seed, mode=mode)

    test.__doc__, test.__name__ = function.__doc__, function.__name__
    return test
