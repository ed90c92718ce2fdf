"""Static membership and racks, on real Kafka."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.kafka import settings
from pixy.membership import Assigned, Event, Revoked
from pixy.membership.kafka.session import KafkaSession
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config
from tests.unit.membership.conformance import PATIENCE, Member


class Static(Member):
    """A session of a daemon with a name of its own; all of its groups use the name."""

    def __init__(self, kafka: Cluster, topic: str, protocol: str, instance: str, group: str) -> None:
        super().__init__(topic)
        self.changes: list[Event] = []
        config = make_config(
            kafka.bootstrap(),
            membership=protocol,
            heartbeat_interval=0.2,
            group_instance_id=instance,
        )
        self.session = KafkaSession(config.proxies["default"], group, self.post)

    def post(self, event: Event) -> None:
        if isinstance(event, Assigned | Revoked) and event.partitions:
            self.changes.append(event)
        if isinstance(event, Revoked):
            self.session.release(event, ())
        super().post(event)

    def _note(self, event: Event) -> None:
        """Take partitions away in the order of the events: in ``post``, an assignment may still wait to be noted."""
        super()._note(event)
        if isinstance(event, Revoked):
            for partition in event.partitions:
                self.partitions.pop(partition, None)  # it may go before its beginning has been looked up


@pytest.mark.parametrize("protocol", ["kafka", "kafka-next"])
async def test_a_static_member_that_restarts_in_time_causes_no_rebalance(
    kafka: Cluster, name: str, protocol: str
) -> None:
    kafka.create_topic(name, 4)
    groups = [f"{name}-1", f"{name}-2"]  # a daemon has one name for all its groups
    stay = [Static(kafka, name, protocol, "stays", group) for group in groups]
    restart = [Static(kafka, name, protocol, "restarts", group) for group in groups]
    for member in (*stay, *restart):
        member.session.subscribe({name: 4})

    async def shares() -> list[int]:
        for member in (*stay, *restart):
            while not member._events.empty():
                member._note(member._events.get_nowait())
        return [len(member.partitions) for member in (*stay, *restart)]

    await eventually(shares, lambda found: found == [2, 2, 2, 2], within=PATIENCE)
    before = [list(member.changes) for member in stay]
    for member in restart:
        await member.session.close((), PATIENCE)

    again = [Static(kafka, name, protocol, "restarts", group) for group in groups]
    for member, predecessor in zip(again, restart, strict=True):
        await member.join()
        assert set(member.partitions) == set(predecessor.partitions)
    assert [member.changes for member in stay] == before
    await asyncio.gather(*(member.session.close((), PATIENCE) for member in (*stay, *again)))


@pytest.mark.parametrize("protocol", ["kafka", "kafka-next"])
async def test_a_member_fetches_from_a_replica_in_its_rack(
    kafka3: Cluster, name: str, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka3.create_topic(name, 1)
    producer = Producer({"bootstrap.servers": ",".join(kafka3.bootstrap())})
    producer.produce(name, b"value", partition=0)
    assert producer.flush(30) == 0
    leader = kafka3.admin().list_topics(name, timeout=10).topics[name].partitions[0].leader
    near = leader % 3 + 1
    fetching_from: list[int] = []

    def note(stats: str) -> None:
        for topic in json.loads(stats)["topics"].values():
            fetching_from.append(topic["partitions"]["0"]["broker"])

    plain = settings.consumer

    def observed(*args: Any) -> settings.Settings:
        return {**plain(*args), "statistics.interval.ms": 100, "stats_cb": note}

    monkeypatch.setattr(settings, "consumer", observed)
    config = make_config(kafka3.bootstrap(), membership=protocol, heartbeat_interval=0.2)
    config.proxies["default"].client_rack = f"rack-{near}"
    member = Member(name)
    member.session = KafkaSession(config.proxies["default"], name, member.post)
    await member.join()
    ((partition, start),) = member.partitions.items()
    assert await member.fetch(partition, start.epoch, 1) == [0]

    async def broker() -> int:
        return fetching_from[-1] if fetching_from else -1

    await eventually(broker, lambda found: found == near)
    await member.session.close((), PATIENCE)
