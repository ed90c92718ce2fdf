"""Scripts on a real broker, with librdkafka and the daemon's own session."""

from __future__ import annotations

import asyncio
import time
import unittest.mock
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic, OffsetSpec

from pixy.kafka import settings
from pixy.kafka.group_offsets import Commit, GroupOffsets
from pixy.membership.kafka.session import KafkaSession
from pixy.wire.client import GroupClient, Member as MemberId
from pixy.wire.exceptions import WireError
from tests.kafka.cluster import Cluster
from tests.model.member import Member
from tests.model.world import PATIENCE, Client, Failure, Record, Refused, World, parse
from tests.support import make_config

_TURN = 0.02
_FENCE = "fence/0"
_common = settings.common
_ALONE = {"min.insync.replicas": "1"}
QUICK: dict[str, Any] = {
    "topic.metadata.refresh.interval.ms": 100,
    "topic.metadata.propagation.max.ms": 1000,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "retry.backoff.ms": 20,
    "log_level": 0,
}
"""Settings that only shorten waits."""
_NOISE = frozenset({KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})


_FAILOVER = 60.0
"""Seconds for the cluster to notice that a broker died: its controller may have died with it."""


class KafkaWorld(World):
    """See :class:`tests.model.world.World`.

    Args:
        cluster: the brokers.
        prefix: of all names on the brokers, unlike that of any other test.
        protocol: of groups: ``classic`` or ``consumer``.
    """

    def __init__(self, cluster: Cluster, prefix: str, protocol: str = "classic") -> None:
        super().__init__()
        self.cluster, self.prefix, self._protocol = cluster, prefix, protocol
        self.common = {"bootstrap.servers": ",".join(cluster.bootstrap()), **QUICK}
        self._producers: dict[str, Producer] = {}
        self._closing: list[Any] = []
        self._fences = 0
        self._lone, self._dead = "", 0

    def real(self, topic: str) -> str:
        """The topic's name on the broker."""
        return f"{self.prefix}.{topic}"

    def parts(self, partitions: Iterable[str]) -> list[TopicPartition]:
        """The partitions as confluent-kafka takes them."""
        return [self.part(each) for each in partitions]

    def part(self, partition: str, offset: int = -1001) -> TopicPartition:
        """A partition as confluent-kafka takes it."""
        topic, number = parse(partition)
        return TopicPartition(self.real(topic), number, offset)

    def name_of(self, part: Any) -> str:
        """Write a message's or a confluent-kafka partition as ``"t/0"``."""
        topic = part.topic() if callable(part.topic) else part.topic
        number = part.partition() if callable(part.partition) else part.partition
        return f"{topic.removeprefix(self.prefix + '.')}/{number}" if topic else ""

    async def topic(self, name: str, partitions: int = 1, **config: str) -> None:
        """See :class:`tests.model.world.World`."""
        await asyncio.to_thread(self.cluster.create_topic, self.real(name), partitions, **config)
        self._producers.pop("", None)  # it would believe for a while what it knows of the topic

    async def topic_on_coordinator(self, name: str, group: str = "g") -> None:
        """See :class:`tests.model.world.World`."""
        real, self._lone = self.real(name), self.real(name)
        made = NewTopic(real, 1, replica_assignment=[[await self._coordinator(group)]], config=_ALONE)
        self.cluster.admin().create_topics([made])[real].result(PATIENCE)
        await eventually(lambda: self._leader(real) >= 0)

    async def coordinator_dies(self, group: str = "g") -> None:
        """See :class:`tests.model.world.World`."""
        self.patience = _FAILOVER  # of all that follows, which comes in the end
        self._dead = await self._coordinator(group)
        await asyncio.to_thread(self.cluster.kill, self._dead)
        await eventually(lambda: self._leader(self._lone) < 0, _FAILOVER)

    async def broker_returns(self) -> None:
        """See :class:`tests.model.world.World`."""
        self.cluster.start(self._dead)
        await asyncio.to_thread(self.cluster.wait_ready)
        await eventually(lambda: self._leader(self._lone) >= 0, _FAILOVER)

    async def _coordinator(self, group: str) -> int:
        found = []

        def ask() -> bool:
            with GroupClient(self.cluster.bootstrap(), f"{self.prefix}.{group}") as client:
                try:
                    found.append(client.coordinator().node_id)
                except WireError:  # the topic of the offsets is being created
                    return False
            return True

        await eventually(ask)
        return found[-1]

    def _leader(self, real: str) -> int:
        """The leader of the topic's first partition, -1 for none."""
        partitions = self.cluster.admin().list_topics(real, timeout=PATIENCE).topics[real].partitions
        return partitions[0].leader if partitions else -1

    async def delete_topic(self, name: str) -> None:
        """See :class:`tests.model.world.World`."""
        real, admin = self.real(name), self.cluster.admin()
        admin.delete_topics([real])[real].result(PATIENCE)
        await eventually(lambda: admin.list_topics(real, timeout=PATIENCE).topics[real].error is not None)

    async def grow(self, name: str, partitions: int) -> None:
        """See :class:`tests.model.world.World`."""
        self._producers.pop("", None)
        real, admin = self.real(name), self.cluster.admin()
        admin.create_partitions([NewPartitions(real, partitions)])[real].result(PATIENCE)
        await eventually(
            lambda: (
                [
                    info.leader >= 0
                    for info in admin.list_topics(real, timeout=PATIENCE).topics[real].partitions.values()
                ]
                == [True] * partitions
            )
        )

    async def produce(self, partition: str, count: int = 1) -> None:
        """See :class:`tests.model.world.World`."""
        self._send(self._producer(""), partition, count)

    async def delete_records(self, partition: str, before: int) -> None:
        """See :class:`tests.model.world.World`."""
        topic, number = parse(partition)
        await asyncio.to_thread(self.cluster.delete_records, self.real(topic), number, before)

    async def begin(self, transaction: str) -> None:
        """See :class:`tests.model.world.World`."""
        self._producer(transaction).begin_transaction()

    async def produce_in(self, transaction: str, partition: str, count: int = 1) -> None:
        """See :class:`tests.model.world.World`."""
        self._send(self._producer(transaction), partition, count)

    async def end(self, transaction: str, *, commit: bool) -> None:
        """See :class:`tests.model.world.World`."""
        producer = self._producer(transaction)
        touched = producer.touched  # type: ignore[attr-defined]
        if commit:
            producer.commit_transaction(PATIENCE)
        else:
            producer.abort_transaction(PATIENCE)
        await eventually(lambda: all(self._stable(each) for each in touched))
        touched.clear()

    def _stable(self, partition: str) -> bool:
        ends = [
            self.cluster.admin().list_offsets(
                {self.part(partition): OffsetSpec.latest()}, isolation_level=level
            )
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        first, second = (next(iter(each.values())).result(PATIENCE).offset for each in ends)
        return first == second

    def _producer(self, transaction: str) -> Producer:
        producer = self._producers.get(transaction)
        if producer is None:
            conf = {**self.common, "enable.idempotence": True, "linger.ms": 0}
            if transaction:
                conf["transactional.id"] = f"{self.prefix}.{transaction}"
            producer = self._producers[transaction] = _Producer(conf)
            if transaction:
                producer.init_transactions(PATIENCE * 3)
        return producer

    def _send(self, producer: Producer, partition: str, count: int) -> None:
        topic, number = parse(partition)
        errors: list[Any] = []
        for _ in range(count):
            producer.produce(
                self.real(topic),
                b"value",
                partition=number,
                on_delivery=lambda error, _: errors.append(error),
            )
        assert producer.flush(PATIENCE) == 0 and errors == [None] * count, errors
        producer.touched.add(partition)  # type: ignore[attr-defined]

    def client(self, name: str, *, reset: str = "earliest", isolation: str = "read_committed") -> Client:
        """See :class:`tests.model.world.World`."""
        made = KafkaClient(self, name, reset, isolation)
        self._closing.append(made)
        return made

    async def fence(self) -> int:
        """Write a record to a partition of its own, and return its offset: who reads it has read what came before."""
        if not self._fences:
            await self.topic(parse(_FENCE)[0])
        await self.produce(_FENCE)
        self._fences += 1
        return self._fences - 1

    def member(self, name: str, group: str = "g", **conf: Any) -> Member:
        """See :class:`tests.model.world.World`."""
        member = Member(self, name, self.real)
        proxy = make_config(self.cluster.bootstrap(), **{"heartbeat_interval": 0.1, **conf}).proxies[
            "default"
        ]
        with unittest.mock.patch.object(settings, "common", lambda proxy: {**_common(proxy), **QUICK}):
            member.session = KafkaSession(proxy, f"{self.prefix}.{group}", member.post)
        self._closing.append(_Closing(member))
        return member

    async def sets_offset(self, partition: str, offset: int, group: str = "g") -> None:
        """See :class:`tests.model.world.World`."""
        topic, number = parse(partition)

        def commit() -> None:
            proxy = make_config(self.cluster.bootstrap()).proxies["default"]
            offsets = GroupOffsets(settings.admin(proxy), f"{self.prefix}.{group}")
            assert not offsets.commit([Commit(self.real(topic), number, offset, "")], patience=PATIENCE)
            offsets.close()

        await asyncio.to_thread(commit)

    async def expels(self, member: Member) -> None:
        """See :class:`tests.model.world.World`."""
        session: Any = member.session
        found: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        # The session's thread alone may call the consumer: another one waits as long as it polls.
        session._command(
            lambda: session._loop.call_soon_threadsafe(found.set_result, session._client._consumer.memberid())
        )
        with GroupClient(self.cluster.bootstrap(), session._client._offsets._group) as client:
            answer = await asyncio.to_thread(client.leave, MemberId(await found))
        assert not answer["ErrorCode"], answer
        self.see(f"{member.name} is expelled")

    async def close(self) -> None:
        """Close all clients."""
        for each in self._closing:
            await each.close()


class _Closing:
    def __init__(self, member: Member) -> None:
        self._member = member

    async def close(self) -> None:
        """Leave the group, if the script did not."""
        self._member.session.release(self._member.revocation, ())
        await self._member.session.close((), PATIENCE)


class _Producer(Producer):
    """A producer that knows the partitions it has written to."""

    def __init__(self, conf: dict[str, Any]) -> None:
        super().__init__(conf)
        self.touched: set[str] = set()


class KafkaClient(Client):
    """See :class:`tests.model.world.Client`."""

    def __init__(self, world: KafkaWorld, name: str, reset: str, isolation: str) -> None:
        super().__init__(world, name)
        self._kafka = world
        proxy = make_config(world.cluster.bootstrap()).proxies["default"]
        proxy.instances.fetch_max_wait = _TURN
        conf = settings.instance(proxy, f"{world.prefix}.{name}", name, reset, isolation)
        conf.pop("logger")
        self._consumer = Consumer({**conf, **QUICK})
        self._fenced = False

    def _starts(self, starts: Mapping[str, int]) -> list[TopicPartition]:
        return [self._kafka.part(each, offset) for each, offset in starts.items()]

    def _assign(self, starts: Mapping[str, int]) -> None:
        refusing(lambda: self._consumer.assign(self._starts(starts)))
        self._fenced = False

    def _add(self, starts: Mapping[str, int]) -> None:
        refusing(lambda: self._consumer.incremental_assign(self._starts(starts)))

    def _remove(self, partitions: Iterable[str]) -> None:
        refusing(lambda: self._consumer.incremental_unassign(self._kafka.parts(partitions)))

    def _pause(self, partitions: Iterable[str]) -> None:
        refusing(lambda: self._consumer.pause(self._kafka.parts(partitions)))

    def _resume(self, partitions: Iterable[str]) -> None:
        refusing(lambda: self._consumer.resume(self._kafka.parts(partitions)))

    def _seek(self, partition: str, offset: int) -> None:
        refusing(lambda: self._consumer.seek(self._kafka.part(partition, offset)))

    def _position(self, partition: str) -> int | None:
        (found,) = self._consumer.position(self._kafka.parts([partition]))
        return None if found.offset == -1001 else found.offset

    def _bounds(self, partition: str) -> tuple[int, int]:
        ends = []
        for which in (-2, -1):
            (found,) = refusing(
                lambda w=which: self._consumer.offsets_for_times([self._kafka.part(partition, w)], 2)
            )
            if found.error is not None:
                raise Refused(found.error.name())
            ends.append(found.offset)
        return ends[0], ends[1]

    async def _poll(self) -> Record | Failure | None:
        message = self._consumer.poll(_TURN)
        await asyncio.sleep(0)
        if message is None:
            return None
        error = message.error()
        if error is None:
            return Record(self._kafka.name_of(message), message.offset())
        if error.code() in _NOISE:
            return None
        return Failure(self._kafka.name_of(message), error.name())

    async def _settle(self) -> None:
        # One fetch asks for all partitions of a broker. A fetch under way at the first marker may have asked
        # too early; the one that brings the second marker was sent later.
        for _ in range(2):
            marker = await self._kafka.fence()
            if not self._fenced:
                self._consumer.incremental_assign([self._kafka.part(_FENCE, marker)])
                self._fenced = True
            found = self._records[_FENCE]
            assert await self._until(lambda: marker in found), "the fence did not come"  # noqa: B023
        self._records.pop(_FENCE)

    async def close(self) -> None:
        """Close the consumer."""
        await asyncio.to_thread(self._consumer.close)


def refusing(call: Any) -> Any:
    """Call it; turn confluent-kafka's exception into :class:`Refused`."""
    try:
        return call()
    except KafkaException as error:
        raise Refused(error.args[0].name()) from error


async def eventually(check: Any, within: float = PATIENCE) -> None:
    """Ask until it is so, for so many seconds."""
    deadline = time.monotonic() + within
    while not await asyncio.to_thread(check):
        assert time.monotonic() < deadline, "it did not become so"
        await asyncio.sleep(0.01)
