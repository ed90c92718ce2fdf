"""A model of Kafka for the group's actors, and clients that consume through them, all in virtual time.

The model keeps a log per partition, committed positions, and assignments with their epochs. Messages and
commits take a random while; a revoked partition comes back with a new epoch.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from actors import ActorDeadError, Backoff, Intensity, Supervision
from actors.testing import Injected, Sim
from pixy.config.model import Proxy
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.group_messages import AckMessage, Consume, Leave
from pixy.errors import PixyError
from pixy.kafka.consumer import Commit
from pixy.membership import Assigned, AssignedPartition, Committed, Event, Fetched, Revoked
from pixy.wire.types import TopicPartition
from tests.unit.engine.records import TOPIC, Record

PARTITIONS = 3
MESSAGES = 60
BATCH = 4
AHEAD = 3
"""Batches that are fetched ahead of the first credit."""


class Log:
    """The topic's log and the group's committed positions: both outlive sessions."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, tuple[int, str]] = {}

    def commit(self, commits: Iterable[Commit]) -> None:
        for each in commits:
            partition = (each.topic, each.partition)
            before = self.committed.get(partition, (0, ""))[0]
            assert each.offset >= before, f"{partition} goes back from {before} to {each.offset}"
            self.committed[partition] = (each.offset, each.metadata)


class ModelSession:
    """One member's session. The test makes it rebalance, by :meth:`rebalance`."""

    def __init__(
        self,
        log: Log,
        post: Callable[[Event], None],
        rng: random.Random,
        partitions: int = PARTITIONS,
    ) -> None:
        self._log, self._post, self._rng = log, post, rng
        self._partitions = partitions
        self._epoch = 0
        self._next: dict[TopicPartition, tuple[int, int]] = {}
        self._lands: dict[TopicPartition, float] = {}
        self._revoking: tuple[TopicPartition, ...] = ()
        self.released = asyncio.Event()
        self.closed = False

    def subscribe(self, topics: Mapping[str, int]) -> None:
        if not self._next and topics:
            self.assign(range(self._partitions))

    def assign(self, numbers: Iterable[int]) -> None:
        starts = []
        for number in numbers:
            partition = (TOPIC, number)
            epoch = self.next_epoch()
            position, metadata = self._log.committed.get(partition, (0, ""))
            self._next[partition] = (position, epoch)
            new = partition not in self._log.committed
            starts.append(AssignedPartition(TOPIC, number, position, metadata, epoch, new))
        self._post(Assigned(tuple(starts)))
        for start in starts:
            self._fetch_ahead((TOPIC, start.partition))

    def _fetch_ahead(self, partition: TopicPartition) -> None:
        for _ in range(AHEAD):
            self._fetch(partition)

    def _fetch(self, partition: TopicPartition) -> None:
        if partition not in self._next or self.closed:
            return
        offset, epoch = self._next[partition]
        records = [Record(partition[1], at) for at in range(offset, min(offset + BATCH, MESSAGES))]
        if records:
            self._next[partition] = (offset + len(records), epoch)
            # It takes a while and keeps its order: after a seek, old batches arrive with the old epoch.
            loop = asyncio.get_running_loop()
            earliest = self._lands.get(partition, 0.0) + 0.001
            lands = max(loop.time() + self._rng.random() * 0.1, earliest)
            self._lands[partition] = lands
            loop.call_at(lands, self._post, Fetched({partition: (epoch, records)}))

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        asyncio.get_running_loop().call_later(self._rng.random() * 0.01, self._fetch, partition)

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        if partition in self._next:
            self._next[partition] = (offset, epoch)
            self._fetch_ahead(partition)

    def next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def commit(self, commits: Iterable[Commit]) -> None:
        made = list(commits)

        def land() -> None:
            # A broker refuses the commit of an old generation: skip partitions revoked meanwhile.
            self._log.commit(each for each in made if (each.topic, each.partition) in self._next)
            self._post(Committed(None, {}))

        asyncio.get_running_loop().call_later(self._rng.random() * 0.05, land)

    def release(self, commits: Iterable[Commit]) -> None:
        self._log.commit(commits)
        for partition in self._revoking:
            self._next.pop(partition, None)
        self.released.set()

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        if not self.closed:
            self._log.commit(commits)
        self.closed = True
        self._next.clear()

    async def rebalance(self, numbers: tuple[int, ...]) -> None:
        """Revoke partitions, wait until they are released, and assign them again."""
        self._revoking = tuple((TOPIC, number) for number in numbers if (TOPIC, number) in self._next)
        if not self._revoking:
            return
        self.released.clear()
        self._post(Revoked(self._revoking))
        await asyncio.wait_for(self.released.wait(), 60)
        self.assign(sorted(number for _, number in self._revoking))


class Scenario:
    """Clients that consume and acknowledge (some forget to) until the log is drained, and rebalances.

    Args:
        sim: the simulated run.
        scale: stretches the clients' and the configuration's times, so that a run takes hours.
    """

    def __init__(self, sim: Sim, scale: float = 1.0) -> None:
        self.scale = scale
        self.sim = sim
        self.rng = random.Random(sim.rng.random())
        self.log = Log()
        self.sessions: list[ModelSession] = []
        self.offered: dict[tuple[int, int], int] = {}
        self.acked: set[tuple[int, int]] = set()
        self.proxy = Proxy()
        self.proxy.consumer.initial_offset = "oldest"
        self.proxy.consumer.ack_timeout = 5.0 * scale
        self.proxy.consumer.offsets_commit_interval *= scale
        self.proxy.consumer.subscription_timeout *= scale
        self.proxy.consumer.long_polling_timeout *= scale
        self.proxy.consumer.max_retries = -1

    def _session(self, _group: str, post: Callable[[Event], None]) -> Any:
        self.sessions.append(ModelSession(self.log, post, self.rng))
        return self.sessions[-1]

    async def _partitions(self, _topic: str) -> int:
        await asyncio.sleep(self.rng.random() * 0.01)
        return PARTITIONS

    def start(self) -> Any:
        cluster = self.sim.probe()
        supervision = Supervision(backoff=Backoff(first=0.01), intensity=Intensity(1000, 3600))
        return self.sim.system.spawn(
            GroupConsumer,
            "g",
            self.proxy,
            cluster.ref,
            self._session,
            self._partitions,
            name="g",
            supervision=supervision,
        )

    async def consume(self, group: Any, impatient: bool) -> Any:
        """Send one request; None if it got nothing or gave up before the answer."""
        reply = group.ask(Consume(TOPIC), block=False)
        try:
            async with asyncio.timeout(self.rng.random() * 0.05 if impatient else None):
                return await reply
        except TimeoutError:
            if reply.value() is not None:  # offered at the moment of giving up
                reply.value().give_back()
        except (PixyError, ActorDeadError):
            await asyncio.sleep(0.05)
        return None

    async def client(self, group: Any, forget: float, impatient: bool) -> None:
        while len(self.acked) < PARTITIONS * MESSAGES:
            delivery = await self.consume(group, impatient)
            if delivery is None:
                continue
            at = (delivery.partition, delivery.offset)
            self.offered[at] = self.offered.get(at, 0) + 1
            assert at[1] >= self.log.committed.get((TOPIC, at[0]), (0, ""))[0], f"{at} was committed"
            await asyncio.sleep(self.rng.random() * 0.3 * self.scale)
            if self.rng.random() < forget:
                continue
            try:
                await group.ask(AckMessage(TOPIC, *at), block=False, urgent=True)
            except (PixyError, ActorDeadError, Injected):
                continue
            self.acked.add(at)

    async def rebalances(self) -> None:
        while True:
            await asyncio.sleep((2 + self.rng.random() * 20) * self.scale)
            numbers = tuple(n for n in range(PARTITIONS) if self.rng.random() < 0.5)
            if self.sessions and not self.sessions[-1].closed:
                await self.sessions[-1].rebalance(numbers)

    async def run(
        self,
        *,
        forget: float = 0.1,
        rebalances: bool = True,
        impatient: bool = False,
        within: float = 3600.0,
    ) -> None:
        group = self.start()
        disturbing = asyncio.create_task(self.rebalances()) if rebalances else None
        try:
            async with asyncio.timeout(within * self.scale):
                await asyncio.gather(*(self.client(group, forget, impatient) for _ in range(4)))
        finally:
            if disturbing is not None:
                disturbing.cancel()
                await asyncio.gather(disturbing, return_exceptions=True)
        await group.ask(Leave(), block=False, urgent=True)
        for number in range(PARTITIONS):
            assert self.log.committed[TOPIC, number][0] == MESSAGES, self.log.committed
