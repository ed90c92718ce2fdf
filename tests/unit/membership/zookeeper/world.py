"""Members of one group in a model of ZooKeeper, with a check that no partition has two consumers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from pixy.errors import KafkaError
from pixy.membership.zookeeper.interfaces import Outlook
from pixy.membership.zookeeper.layout import Layout, encode_member
from pixy.membership.zookeeper.member import GroupMember
from pixy.membership.zookeeper.orphans import Orphans
from pixy.wire.types import TopicPartition
from tests.unit.membership.zookeeper.model import ModelKeeper, ZooKeeper

TIMEOUT = 15.0
BACKOFF = 0.5


class World:
    """The server, the topics, and who consumes what."""

    def __init__(self, rng: random.Random, **topics: int) -> None:
        self.rng = rng
        self.server = ZooKeeper()
        self.layout = Layout("/kafka", "g")
        self.topics = dict(topics)
        self.kafka_members = False
        self.refused: set[str] = set()
        """The topics that the members may not read."""
        self.committed: set[str] = set()
        self.begun: dict[TopicPartition, str] = {}
        """Who was the first to consume each partition."""
        self.consumers: dict[TopicPartition, str] = {}
        self.members: dict[str, Instance] = {}

    def start(self, name: str, *topics: str, drain: float = 0.1, after: Instance | None = None) -> Instance:
        """Start an instance that subscribes to these topics, or to all; ``after`` left the daemon's session to it."""
        instance = Instance(self, name, drain, after)
        self.members[name] = instance
        instance.member.subscribe(frozenset(topics or self.topics))
        return instance

    def owners(self) -> dict[TopicPartition, str]:
        """The claims at the server."""
        prefix = f"{self.layout.owners}/"
        found = {}
        for path, node in self.server.nodes.items():
            if path.startswith(prefix) and node.session:
                topic, _, number = path[len(prefix) :].partition("/")
                found[topic, int(number)] = node.data.decode()
        return found

    def shares(self) -> dict[str, list[int]]:
        """The numbers of the partitions that each instance consumes."""
        found: dict[str, list[int]] = {}
        for (_, number), name in sorted(self.consumers.items()):
            found.setdefault(name, []).append(number)
        return found

    async def until(self, check: Callable[[], bool], within: float = 120.0) -> None:
        """Let virtual time pass until it is so."""
        async with asyncio.timeout(within):
            while not check():
                await asyncio.sleep(0.05)

    async def settled(self) -> None:
        """Wait until every partition is consumed by its claim's owner."""
        wanted = {(topic, number) for topic, count in self.topics.items() for number in range(count)}
        await self.until(lambda: set(self.consumers) == wanted and self.consumers == self.owners())


class Instance:
    """A daemon of ours with one member."""

    def __init__(self, world: World, name: str, drain: float, after: Instance | None = None) -> None:
        self.world, self.name, self.drain = world, name, drain
        self.log: list[tuple[str, list[int]]] = []
        self.error: BaseException | None = None
        self.established: set[TopicPartition] = set()
        """Partitions of topics that the group had consumed before, says the member."""
        self.keeper = ModelKeeper(world.server, world.rng) if after is None else after.keeper
        self.orphans = Orphans(self.keeper) if after is None else after.orphans
        outlook = Outlook(self._count, self._has_kafka_members, self._has_commits)
        self.member = GroupMember(
            self.keeper, self.orphans, world.layout, name, self, outlook, TIMEOUT, BACKOFF
        )

    async def _count(self, topic: str) -> int | None:
        await asyncio.sleep(self.world.rng.random() * 0.01)
        self._check(topic)
        return self.world.topics.get(topic)

    async def _has_kafka_members(self, _group: str) -> bool:
        return self.world.kafka_members

    async def _has_commits(self, _group: str, topic: str) -> bool:
        await asyncio.sleep(self.world.rng.random() * 0.1)
        self._check(topic)
        return topic in self.world.committed

    def _check(self, topic: str) -> None:
        if topic in self.world.refused:
            raise KafkaError(f"not authorized to access {topic}", 29, "TOPIC_AUTHORIZATION_FAILED")

    def joined(self) -> None:
        self.log.append(("joined", []))

    def acquire(self, partitions: list[TopicPartition]) -> None:
        self.log.append(("acquire", [number for _, number in partitions]))
        self.established |= {each for each in partitions if self.member.is_established(each[0])}
        self.world.begun.update((each, self.name) for each in partitions if each not in self.world.begun)
        self.world.committed |= {topic for topic, _ in partitions}  # their beginnings
        for partition in partitions:
            owner = self.world.consumers.get(partition)
            assert owner is None, f"{partition} of {owner} goes to {self.name} as well"
            self.world.consumers[partition] = self.name

    async def hand_back(self, partitions: list[TopicPartition]) -> None:
        self.log.append(("hand back", [number for _, number in partitions]))
        await asyncio.sleep(self.world.rng.random() * self.drain)
        self._stop(partitions)

    def lose(self, partitions: list[TopicPartition]) -> None:
        self.log.append(("lose", [number for _, number in partitions]))
        self._stop(partitions)

    def failed(self, error: BaseException) -> None:
        self.error = error

    def _stop(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            if self.world.consumers.get(partition) == self.name:
                del self.world.consumers[partition]

    async def leave(self, timeout: float = 5.0) -> None:
        """Stop as a daemon does."""
        await self.member.stop()
        self._stop(list(self.world.consumers))
        await self.member.leave(timeout)
        assert self.error is None, self.error

    async def kill(self) -> None:
        """End without a word; the session expires later, by the test."""
        self.keeper.kill()
        await self.member.stop()
        self._stop(list(self.world.consumers))


class GoInstance:
    """A daemon of the original, as far as others see it.

    It rewrites its registration when a claim fails, accepts each claim that carries its client id, and
    drains before it releases.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.session = world.server.open_session()

    def _own(self) -> set[TopicPartition]:
        return {each for each, name in self.world.owners().items() if name == self.name}

    async def run(self, *topics: str) -> None:
        """Take part in the group, polling in place of watches, until it is cancelled."""
        world, server = self.world, self.world.server
        await _make_parents(world)
        server.create(world.layout.member(self.name), encode_member(topics, 1.0), self.session)
        while True:
            await asyncio.sleep(world.rng.random() * 0.2)
            wanted = {
                (topic, number)
                for topic in topics
                for number in _go_range(world.topics[topic], server.children(world.layout.ids), self.name)
            }
            for partition in sorted(self._own() - wanted):
                await asyncio.sleep(world.rng.random() * 0.5)
                del world.consumers[partition]
                server.delete(world.layout.claim(partition))
            for partition in sorted(wanted - self._own()):
                if world.layout.claim(partition) in server.nodes:
                    server.set(world.layout.member(self.name), encode_member(topics, 1.0))
                    continue
                if world.layout.topic(partition[0]) not in server.nodes:
                    server.create(world.layout.topic(partition[0]), b"", 0)
                server.create(world.layout.claim(partition), self.name.encode(), self.session)
                assert partition not in world.consumers, f"{partition} goes to {self.name} as well"
                world.consumers[partition] = self.name


async def _make_parents(world: World) -> None:
    layout = world.layout
    for path in ("/kafka", layout.root, layout.path, layout.ids, layout.owners):
        if path not in world.server.nodes:
            world.server.create(path, b"", 0)


def _go_range(count: int, members: list[str], name: str) -> range:
    # Written after groupcsm.go, apart from ours.
    members = sorted(members)
    each = count // len(members)
    extra = count - len(members) * each
    begin = 0
    for member in members:
        end = begin + each
        if extra:
            end, extra = end + 1, extra - 1
        if member == name:
            return range(begin, end)
        begin = end
    return range(0)
