"""A daemon that stops cleanly, on a real Kafka, while its group changes: everything acknowledged is committed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc
import pytest

from tests.integration.test_where_groups_begin import committed, take, write
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

PARTITIONS, MESSAGES = 4, 3
ROUNDS = 12


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_stop_while_another_daemon_joins_commits_all_that_was_acknowledged(
    kafka: Cluster, name: str, protocol: str
) -> None:
    """At any moment of the rebalance: it lasts some hundred milliseconds."""
    kafka.create_topic(name, PARTITIONS)
    for partition in range(PARTITIONS):
        await asyncio.to_thread(write, kafka, name, MESSAGES, partition)
    config = make_config(kafka.bootstrap(), group_protocol=protocol, long_polling_timeout=1.0)
    config.proxies["default"].consumer.offsets_commit_interval = 3600.0
    wanted = {(partition, offset) for partition in range(PARTITIONS) for offset in range(MESSAGES)}
    lost: list[Any] = []
    async with serving(config) as other:
        for at in range(ROUNDS):
            group = f"{name}-{at}"
            async with serving(config) as stopping:
                await take(stopping, name, group, wanted)
                joining = asyncio.create_task(ask(other, name, group))
                await asyncio.sleep(0.06 * at)
            found = [await committed(kafka, group, name, partition) for partition in range(PARTITIONS)]
            again = await joining
            if found != [MESSAGES] * PARTITIONS or again:
                lost.append((at, found, again))
    assert not lost


async def ask(daemon: Any, topic: str, group: str) -> list[Any]:
    found = []
    with contextlib.suppress(grpc.RpcError):
        while True:
            message = await daemon.consume(topic, group, auto_ack=True)
            found.append((message.partition, message.offset))
    return found
