"""A consumer instance's commit whose coordinator is lost, while the topic is deleted and made again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from pixy.kafka import consumer
from pixy.kafka.group_offsets import Check, Commit, GroupOffsets
from pixy.membership.kafka.instance_topics import InstanceTopics
from pixy.wire.client import get_group_coordinator
from pixy.wire.errors import KafkaError
from tests.integration.restv1.consumers import Instance, fill
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving


@pytest.mark.timeout(180)
async def test_a_commit_that_loses_its_coordinator_is_compared_with_the_topic_again(
    kafka3: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka would send it to the next coordinator, for the new topic; the position is the old one's."""
    node = await eventually(lambda: asyncio.to_thread(coordinator, kafka3, name))
    alive = [each for each in (1, 2, 3) if each != node]
    make(kafka3, name, alive)
    compared: list[tuple[Commit, ...]] = []
    check_of = InstanceTopics.check

    def check(topics: InstanceTopics, batch: tuple[Commit, ...]) -> Check:
        found = check_of(topics, batch)
        assert found is not None

        def then(offsets: GroupOffsets, commits: tuple[Commit, ...]) -> tuple[Commit, ...]:
            left = found(offsets, commits)
            compared.append(left)
            if len(compared) == 1:
                kafka3.kill(node)
                admin = kafka3.admin_without(node)
                admin.delete_topics([name])[name].result(30)
                make(kafka3, name, alive, admin)
            return left

        return then

    async def compared_again() -> bool:
        return len(compared) > 1

    monkeypatch.setattr(InstanceTopics, "check", check)
    monkeypatch.setattr(consumer, "_PATIENCE", 90.0)  # what is done in its midst takes long on a busy machine
    config = make_config(kafka3.bootstrap())
    async with serving(config) as daemon:
        await fill(daemon, name, b"0", b"1", b"2")
        instance = Instance(daemon, name)
        await instance.create(auto_commit_enable=False)
        places = {"partitions": [{"topic": name, "partition": 0}]}
        assert (await instance.at("POST", "/assignments", places)).status == 204
        assert await instance.values("?timeout=5000") == [b"0", b"1", b"2"]
        answer: Any = await instance.at("POST", "/offsets")
        await asyncio.to_thread(kafka3.start, node)
        await asyncio.to_thread(kafka3.wait_ready, 3)
        assert [each.offset for each in compared[0]] == [3]
        await eventually(compared_again, within=60.0)
        assert not [each for later in compared[1:] for each in later if each.offset]
        assert await instance.committed(name) in ({}, {0: 0}), answer


def coordinator(cluster: Cluster, group: str) -> int:
    """Return the broker that coordinates a group; 0 if there is none yet."""
    try:
        return get_group_coordinator(cluster.bootstrap(), group).node_id
    except KafkaError:  # the topic of the offsets is being made
        return 0


def make(cluster: Cluster, topic: str, nodes: list[int], admin: AdminClient | None = None) -> None:
    """Make a topic with one partition on these brokers, once the old one of its name is gone."""
    wanted = NewTopic(topic, 1, replica_assignment=[nodes], config={"min.insync.replicas": "1"})
    while not cluster.made(wanted, admin):
        pass
