"""Sessions in Kafka's own groups, and in ZooKeeper's, keep the rules of :class:`pixy.membership.Session`."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Producer

from pixy.config import Proxy
from pixy.membership import AssignedPartition, Revoked
from pixy.membership.kafka.session import KafkaSession
from pixy.membership.zookeeper.groups import ZooKeeperGroups
from pixy.membership.zookeeper.interfaces import Outlook
from tests.kafka.cluster import Cluster
from tests.support import make_config
from tests.unit.membership.conformance import CHECKS, MESSAGES, PATIENCE, ROOM, Member, Stage


class KafkaStage(Stage):
    def __init__(self, cluster: Cluster, topic: str, protocol: str) -> None:
        self.topic = topic
        cluster.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap()[0]})
        for number in range(2 * MESSAGES):
            producer.produce(topic, b"value", partition=number % 2)
        assert producer.flush(30) == 0
        self._proxy: Proxy = make_config(
            cluster.bootstrap(),
            group_protocol=protocol,
            heartbeat_interval=0.2,
            prefetch_max_messages=ROOM,
            drain_timeout=PATIENCE,
        ).proxies["default"]

    def open(self) -> Member:
        member = Member(self.topic)
        member.session = KafkaSession(self._proxy, self.topic, member.post)
        return member

    async def revoke(self, member: Member) -> tuple[Revoked, Callable[[], Awaitable[AssignedPartition]]]:
        other = self.open()
        joining = asyncio.create_task(other.join())
        revoked = await member.event(Revoked)

        async def next_assignment() -> AssignedPartition:
            await joining
            await other.session.close((), PATIENCE)
            return next(iter(other.partitions.values()))

        return revoked, next_assignment


class ZooKeeperStage(KafkaStage):
    """As many daemons as sessions: each has its own connection and client id."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(cluster, topic, "classic")
        self._proxy.consumer.membership = "zookeeper"
        self._proxy.zoo_keeper.seed_peers = [cluster.zookeeper]
        self._groups: list[ZooKeeperGroups] = []

    def open(self) -> Member:
        async def count(_topic: str) -> int:
            return 2

        async def no(*_names: str) -> bool:
            return False

        member = Member(self.topic)
        # The first gets the lower range: partition 0 if there are two.
        proxy = dataclasses.replace(self._proxy, client_id=f"member-{len(self._groups)}")
        self._groups.append(ZooKeeperGroups(proxy, Outlook(count, no, no)))
        member.session = self._groups[-1].session(self.topic, member.post)
        return member

    async def close(self) -> None:
        for groups in self._groups:
            await groups.close()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_zookeeper_sessions_conform(
    old_kafka: Cluster, name: str, check: Callable[[Stage], Awaitable[None]]
) -> None:
    stage = ZooKeeperStage(old_kafka, name)
    await check(stage)
    await stage.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_kafka_sessions_conform(
    kafka: Cluster, name: str, check: Callable[[Stage], Awaitable[None]], protocol: str
) -> None:
    await check(KafkaStage(kafka, name, protocol))
