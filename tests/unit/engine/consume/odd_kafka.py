"""Clients that consume through the group's actors while Kafka does what scenarios of tests/model have shown.

Logs with gaps, markers and aborted records; retention that overtakes the group; topics that grow or are made again;
partitions without a leader; a member that is expelled; a rival that takes partitions over and gives them back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from actors import ActorDeadError
from actors.testing import Injected, Sim
from pixy.engine.consume.group_messages import AckMessage, Leave
from pixy.errors import PixyError
from pixy.kafka.errors import unknown_topic
from pixy.membership import Assigned, Commit, Event, Fetched, Lost, Revoked
from pixy.wire.types import TopicPartition
from tests.model.session import ModelSession
from tests.unit.engine.consume.group_model import Scenario
from tests.unit.engine.records import TOPIC

EVENTS = (
    "produce",
    "transact",
    "compact",
    "retain",
    "grow",
    "lead",
    "expel",
    "rival",
    "recreate",
    "rebalance",
)
MOST_PARTITIONS = 5
ROUNDS = 25

At = tuple[int, int, int]
"""The topic's id, partition and offset of a message."""


class Rival:
    """Another member of the group. It consumes in order, and commits when it must give partitions back."""

    def __init__(self, scenario: OddKafka) -> None:
        self._scenario = scenario
        self._positions: dict[TopicPartition, tuple[int, list[At]]] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self.session = ModelSession(scenario.group, self.post, scenario.rng)
        self.session.subscribe({TOPIC: 1})

    def post(self, event: Event) -> None:
        """Take an event of the session."""
        if isinstance(event, Assigned):
            for each in event.partitions:
                self._epochs[each.topic, each.partition] = each.epoch
                self._positions[each.topic, each.partition] = (each.position, [])
        elif isinstance(event, Fetched):
            for partition, (epoch, records) in event.batches.items():
                if self._epochs.get(partition) == epoch:
                    _, seen = self._positions[partition]
                    seen += [(record.life, *record.at) for record in records]
                    self._positions[partition] = (records[-1].offset() + 1, seen)
                    self.session.credit(partition, len(records), 0)
        elif isinstance(event, Revoked):
            self.session.release(event, self.commits(event.partitions))
            self._forget(event.partitions)
        elif isinstance(event, Lost):
            self._forget(event.partitions)

    def commits(self, partitions: Any) -> list[Commit]:
        """The positions to commit; what is below them counts as consumed once it is committed."""
        made = []
        for partition in partitions:
            if partition in self._positions:
                position, seen = self._positions[partition]
                made.append(Commit(*partition, position, ""))
                self._scenario.claims.append((partition, position, seen))
        return made

    def _forget(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self._epochs.pop(partition, None)
            self._positions.pop(partition, None)

    async def leave(self) -> None:
        """Commit and leave."""
        await self.session.close(self.commits(self._positions), 10)


class OddKafka(Scenario):
    """See the module.

    Args:
        sim: the simulated run.
        events: what may happen, names of :data:`EVENTS`.
    """

    def __init__(self, sim: Sim, events: tuple[str, ...] = EVENTS) -> None:
        super().__init__(sim)
        self.kafka = self.group.kafka
        self.events = events
        self.consumed: set[At] = set()
        self.claims: list[tuple[TopicPartition, int, list[At]]] = []
        """What rivals may have consumed: it counts if the position was committed."""
        self._rivals: list[Rival] = []
        self._transactions = 0
        self._ended = False

    async def _partitions(self, _topic: str) -> int:
        await asyncio.sleep(self.rng.random() * 0.01)
        if TOPIC not in self.kafka.topics:
            raise unknown_topic()
        return len(self.kafka.topics[TOPIC].partitions)

    # -- clients ------------------------------------------------------------------------------------

    async def client(self, group: Any, forget: float, impatient: bool) -> None:
        """Consume and acknowledge until all is committed."""
        while not (self._ended and self.done()):
            delivery = await self.consume(group, impatient)
            if delivery is None:
                continue
            at = (delivery.partition, delivery.offset)
            life = delivery.message.life
            if "recreate" not in self.events:
                committed = self.group.committed.get((TOPIC, at[0]), (0, ""))[0]
                assert at[1] >= committed, f"{at} is offered and was committed"
            await asyncio.sleep(self.rng.random() * 0.3)
            if self.rng.random() < forget:
                continue
            try:
                await group.ask(AckMessage(TOPIC, *at), block=False, urgent=True)
            except (PixyError, ActorDeadError, Injected):
                continue
            self.consumed.add((life, *at))

    def done(self) -> bool:
        """Whether the group's positions are at the ends of all logs."""
        return not self.behind()

    def behind(self) -> dict[int, tuple[int, int]]:
        """The partitions whose committed offset is not the end of their log: both offsets."""
        ends = {number: log.end for number, log in enumerate(self.kafka.topics[TOPIC].partitions)}
        found = {number: self.group.committed.get((TOPIC, number), (0, ""))[0] for number in ends}
        return {number: (found[number], end) for number, end in ends.items() if found[number] != end}

    def skipped(self) -> list[At]:
        """Messages below the committed offsets that nobody has consumed, though they can be read."""
        for partition, position, seen in self.claims:
            if self.group.committed.get(partition, (0, ""))[0] >= position:
                self.consumed.update(seen)
        topic = self.kafka.topics[TOPIC]
        return [
            (topic.id, number, offset)
            for number, log in enumerate(topic.partitions)
            for offset in log.read(log.start, log.end + 1, committed=True)[0]
            if offset < self.group.committed.get((TOPIC, number), (0, ""))[0]
            and (topic.id, number, offset) not in self.consumed
        ]

    # -- what happens to Kafka ------------------------------------------------------------------------

    async def disturb(self) -> None:
        """Let things happen, one after the other."""
        for _ in range(ROUNDS):
            await asyncio.sleep(self.rng.random() * 3)
            await getattr(self, f"_{self.rng.choice(self.events)}")()
        for rival in self._rivals:
            await rival.leave()
        for log in self.kafka.topics[TOPIC].partitions:
            log.leader = True
        for name in range(self._transactions):
            self.kafka.end(f"x{name}", commit=True)
        self._ended = True
        self.kafka.changed()

    def _any(self) -> TopicPartition:
        return TOPIC, self.rng.randrange(len(self.kafka.topics[TOPIC].partitions))

    async def _produce(self) -> None:
        self.kafka.produce(self._any(), self.rng.randrange(1, 10))

    async def _transact(self) -> None:
        """Begin a transaction; end an earlier one now and then."""
        self.kafka.produce(self._any(), self.rng.randrange(1, 5), f"x{self._transactions}")
        self._transactions += 1
        if self.rng.random() < 0.8:
            name = self.rng.randrange(self._transactions)
            self.kafka.end(f"x{name}", commit=self.rng.random() < 0.5)

    async def _compact(self) -> None:
        log = self.kafka.log(self._any())
        log.compact(each for each in range(log.start, log.end - 1) if self.rng.random() < 0.2)

    async def _retain(self) -> None:
        log = self.kafka.log(self._any())
        log.delete(self.rng.randrange(log.start, log.stable_end + 1))

    async def _grow(self) -> None:
        count = len(self.kafka.topics[TOPIC].partitions)
        if count < MOST_PARTITIONS:
            self.kafka.grow(TOPIC, count + 1)
            self.kafka.produce((TOPIC, count), self.rng.randrange(1, 10))

    async def _lead(self) -> None:
        """A partition loses its leader, or gets one."""
        log = self.kafka.log(self._any())
        log.leader = not log.leader
        self.kafka.changed()

    async def _expel(self) -> None:
        self.sessions[-1].expelled()

    async def _rival(self) -> None:
        """Another member joins, or leaves."""
        if self._rivals:
            await self._rivals.pop().leave()
        else:
            self._rivals.append(Rival(self))

    async def _recreate(self) -> None:
        count = len(self.kafka.topics[TOPIC].partitions)
        self.kafka.delete(TOPIC)
        self.claims.clear()
        await asyncio.sleep(self.rng.choice((0.0, 0.5)))
        self.kafka.create(TOPIC, count)
        for number in range(count):
            self.kafka.produce((TOPIC, number), self.rng.randrange(1, 70))

    async def _rebalance(self) -> None:
        if not self.sessions[-1].closed:
            await self.sessions[-1].rebalance([self._any()])

    async def run(self, *, forget: float = 0.1, within: float = 3600.0, **_: Any) -> None:
        """Consume until all has happened and is committed; nothing may be skipped."""
        group = self.start()
        disturbing = asyncio.create_task(self.disturb())
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(disturbing, *(self.client(group, forget, False) for _ in range(4)))
        except TimeoutError:
            raise AssertionError(f"the group stays behind: {self.behind()} (committed, end)") from None
        finally:
            disturbing.cancel()
        await group.ask(Leave(), block=False, urgent=True)
        assert not self.skipped()


__all__ = ["EVENTS", "OddKafka"]
