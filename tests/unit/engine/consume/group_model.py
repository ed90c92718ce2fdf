"""Clients that consume through the group's actors, on the model of Kafka in tests/model, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from actors import ActorDeadError, Backoff, Intensity, Supervision
from actors.testing import Injected, Sim
from pixy.config.model import Proxy
from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.group_messages import AckMessage, Consume, Leave
from pixy.errors import PixyError
from pixy.membership import Event
from tests.model.group import Group
from tests.model.log import Kafka
from tests.model.session import ModelSession
from tests.unit.engine.records import TOPIC

PARTITIONS = 3
MESSAGES = 60


def filled() -> Kafka:
    """A Kafka with one topic that has messages."""
    kafka = Kafka()
    kafka.create(TOPIC, PARTITIONS)
    for number in range(PARTITIONS):
        kafka.produce((TOPIC, number), MESSAGES)
    return kafka


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
        self.group = Group(filled(), self.rng)
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
        self.sessions.append(ModelSession(self.group, post, self.rng))
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
        while not self.finished():
            delivery = await self.consume(group, impatient)
            if delivery is None:
                continue
            at = (delivery.partition, delivery.offset)
            self.offered[at] = self.offered.get(at, 0) + 1
            assert at[1] >= self.group.committed.get((TOPIC, at[0]), (0, ""))[0], f"{at} was committed"
            await asyncio.sleep(self.rng.random() * 0.3 * self.scale)
            if self.rng.random() < forget:
                continue
            try:
                await group.ask(AckMessage(TOPIC, *at), block=False, urgent=True)
            except (PixyError, ActorDeadError, Injected):
                continue
            self.acked.add(at)

    async def leave(self, group: Any) -> None:
        """Have the group commit and leave."""
        await group.ask(Leave(), block=False, urgent=True)

    def finished(self) -> bool:
        """Whether every message was acknowledged."""
        return len(self.acked) >= PARTITIONS * MESSAGES

    def ends(self) -> dict[int, int]:
        """The offset at the end of each partition."""
        return dict.fromkeys(range(PARTITIONS), MESSAGES)

    async def rebalances(self) -> None:
        while True:
            await asyncio.sleep((2 + self.rng.random() * 20) * self.scale)
            numbers = [(TOPIC, n) for n in range(PARTITIONS) if self.rng.random() < 0.5]
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
        await self.leave(group)
        found = {number: self.group.committed[TOPIC, number][0] for number in self.ends()}
        assert found == self.ends()
