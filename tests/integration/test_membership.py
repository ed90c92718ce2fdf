"""Sessions in Kafka's own groups keep the rules of :class:`pixy.membership.Session`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Producer

from pixy.config import Proxy
from pixy.membership import AssignedPartition, Revoked
from pixy.membership.kafka.session import KafkaSession
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


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_kafka_sessions_conform(
    kafka: Cluster, name: str, check: Callable[[Stage], Awaitable[None]], protocol: str
) -> None:
    await check(KafkaStage(kafka, name, protocol))
