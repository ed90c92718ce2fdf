"""A daemon that stops cleanly, on a real Kafka, while its group changes: everything acknowledged is committed."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

import grpc
import pytest

from pixy.cli.serve import listeners
from pixy.engine.engine import Engine
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


async def test_what_a_stop_gives_up_is_counted_though_shutdown_timeout_is_shorter_than_the_producers(
    kafka: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It said that 0 messages were not delivered, and named none: the producer would have counted later than the stop waited."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.shutdown_timeout = 4.0
    assert config.proxies["default"].producer.shutdown_timeout > config.shutdown_timeout
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    client = engine.cluster()
    await client.produce(name, b"delivered")
    kafka.signal(1, signal.SIGSTOP)
    try:
        for _ in range(20):
            await client.produce_async(name, b"given up")
        result = await engine.stop()
    finally:
        kafka.signal(1, signal.SIGCONT)
    assert (result.lost_messages, result.drained) == (20, True), result
    lines = [each.getMessage() for each in caplog.records if "lost" in each.getMessage()]
    named = sum("an asynchronous message is lost" in each for each in lines)
    more = sum(int(each.split(": ")[1].split()[0]) for each in lines if "more asynchronous messages" in each)
    assert named + more == 20, lines
