"""The Go original's known defects, each on real Kafka. The numbers are issues of mailgun/kafka-pixy.

Its issues 26, 120 and 124 are about lost ZooKeeper sessions: see the tests of groups in ZooKeeper.
The lost coordinator without a number is librdkafka's defect (its issue 5511).
"""

from __future__ import annotations

import asyncio
import statistics
import time

import grpc
import pytest
from confluent_kafka.admin import NewPartitions

from pixy.config import App
from pixy.engine.consume.group_messages import Owned
from pixy.engine.engine import Engine
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.admin import KafkaAdmin
from pixy.kafka.consumer import Commit
from pixy.kafka.group_members import Groups
from pixy.wire.client import get_group_coordinator
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving

EMPTY = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE)


def quick(kafka: Cluster, **consumer: object) -> App:
    return make_config(
        kafka.bootstrap(),
        **{"long_polling_timeout": 1.0, "heartbeat_interval": 0.2, "subscription_timeout": 60.0, **consumer},
    )


async def next_value(daemon: Daemon, topic: str, group: str = "g", *, auto_ack: bool = True) -> bytes | None:
    """Consume one message; None if there is none."""
    try:
        return (await daemon.consume(topic, group, auto_ack=auto_ack, no_ack=not auto_ack)).message
    except grpc.RpcError as error:
        assert error.code() in EMPTY, error
        return None


async def consume_all(daemon: Daemon, topic: str, wanted: set[bytes], within: float = 60.0) -> list[bytes]:
    """Consume until all wanted values have come; return what came, in order."""
    found: list[bytes] = []

    async def more() -> bool:
        value = await next_value(daemon, topic)
        found.extend([] if value is None else [value])
        return wanted <= set(found)

    await eventually(more, within=within)
    return found


async def test_issue_17_new_partitions_are_consumed(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(quick(kafka)) as daemon:
        await daemon.produce(name, b"old")
        await consume_all(daemon, name, {b"old"})
        future = kafka.admin().create_partitions([NewPartitions(name, 4)])[name]
        await asyncio.to_thread(future.result, 20)

        async def fourth() -> bool:
            return (await daemon.produce(name, b"new", b"4"))[0] == 3

        await eventually(fourth, within=30)
        await consume_all(daemon, name, {b"new"})


async def test_issue_35_an_idle_topic_does_not_slow_a_busy_one(kafka: Cluster, name: str) -> None:
    """In the original a fetch of the idle topic held up those of the busy one, by fetch_max_wait."""
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-idle")
    async with serving(quick(kafka, fetch_max_wait=0.5)) as daemon:

        async def took() -> float:
            """The median time from produce to consume."""
            times = []
            for number in range(15):
                begun = time.monotonic()
                await daemon.produce(name, b"%d" % number)
                await consume_all(daemon, name, {b"%d" % number})
                times.append(time.monotonic() - begun)
            return statistics.median(times)

        alone = await took()
        assert await next_value(daemon, f"{name}-idle") is None
        beside = await took()
        assert beside < max(4 * alone, 0.25), f"{alone:.3f} s alone, {beside:.3f} s beside an idle topic"


async def test_issue_54_a_missing_topic_does_not_stall_the_group(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(quick(kafka, long_polling_timeout=5.0)) as daemon:
        missing = asyncio.create_task(next_value(daemon, f"{name}-missing"))
        for number in range(20):
            await daemon.produce(name, b"%d" % number)
        await consume_all(daemon, name, {b"%d" % number for number in range(20)})
        assert await missing is None


async def test_issues_59_and_62_members_that_come_and_go_skip_and_repeat_nothing(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name, 4)
    found: list[bytes] = []
    sent: list[bytes] = []

    async def consume(daemon: Daemon, stop: asyncio.Event) -> None:
        while not stop.is_set():
            value = await next_value(daemon, name)
            found.extend([] if value is None else [value])

    async with serving(quick(kafka)) as first:
        end = asyncio.Event()
        working = [asyncio.create_task(consume(first, end)) for _ in range(3)]

        async def produce(count: int) -> None:
            for _ in range(count):
                sent.append(b"%d" % len(sent))
                await first.produce(name, sent[-1])

        await produce(50)
        for _ in range(2):
            async with serving(quick(kafka)) as second:
                left = asyncio.Event()
                joined = asyncio.create_task(consume(second, left))
                await eventually(lambda second=second: _owned(second))
                await produce(50)
                left.set()
                await joined
            await produce(50)
        await eventually(lambda: asyncio.sleep(0, len(set(found)) == len(sent)), within=40)
        end.set()
        await asyncio.gather(*working)
    assert sorted(found) == sorted(sent)


async def _owned(daemon: Daemon) -> bool:
    """Whether the daemon's group has partitions."""
    cluster = daemon.engine.cluster()
    group = cluster._groups.get("g")
    return group is not None and bool(await group.ask(Owned(), block=False))


async def test_issue_100_consumption_goes_on_when_a_segment_expires(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = quick(kafka, prefetch_max_messages=10, max_pending_messages=5)
    async with serving(config) as daemon:
        for number in range(400):
            await daemon.produce(name, b"%d" % number + bytes(10_000))
        await next_value(daemon, name)
        await asyncio.to_thread(kafka.delete_records, name, 0, 390)
        last = b"399" + bytes(10_000)
        await consume_all(daemon, name, {last})


async def test_issue_163_setting_offsets_of_a_group_that_is_consumed_is_refused(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    async with serving(quick(kafka)) as daemon:
        await daemon.produce(name, b"0")
        await consume_all(daemon, name, {b"0"})
        answer = await daemon.post(f"/topics/{name}/offsets?group=g", '[{"partition": 0, "offset": 0}]')
        assert answer.status == 409 and "is being consumed" in answer.error
        await eventually(lambda: daemon.offsets(name, "g"), lambda found: found[0].offset == 1)


async def test_issue_183_a_stop_does_not_wait_for_acks_that_never_come(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = quick(kafka, drain_timeout=1.0, ack_timeout=300.0)
    config.shutdown_timeout = 30.0  # type: ignore[assignment]
    engine = Engine(config)
    async with engine:
        await engine.cluster().produce(name, b"0")
        await engine.cluster().consume(name, "g")
        assert (await engine.stop()).drained, "within shutdown_timeout, a tenth of ack_timeout"


@pytest.mark.timeout(200)
async def test_issues_29_31_123_140_consumption_and_commits_outlive_a_broker(
    kafka3: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """29: consumption stopped; 31: it retried without a pause; 123, 140: commits failed from then on."""
    kafka3.create_topic(name, 3)
    async with serving(quick(kafka3)) as daemon:

        async def round_trip(begin: int) -> None:
            values = {b"%d" % number for number in range(begin, begin + 60)}
            for value in values:
                await eventually(lambda value=value: _produced(daemon, name, value), within=60)
            await consume_all(daemon, name, values)

        async def lag() -> int:
            return sum(each.lag for each in (await daemon.offsets(name, "g")).values())

        await round_trip(0)
        for node in (1, 2):  # one of them is the coordinator or leads a partition
            kafka3.kill(node)
            before = len(caplog.records)
            await round_trip(100 * node)
            await eventually(lag, lambda lag: lag == 0, within=60)
            assert len(caplog.records) - before < 500, "retries have pauses"
            kafka3.start(node)
            await asyncio.to_thread(kafka3.wait_ready)
        await round_trip(1000)
        await eventually(lag, lambda lag: lag == 0, within=60)


@pytest.mark.timeout(200)
async def test_the_members_of_a_group_are_found_after_its_coordinator_was_lost(
    kafka3: Cluster, name: str
) -> None:
    """A member in ZooKeeper asks for them before it consumes: its rounds failed, by timeout, for ever."""
    kafka3.create_topic(name)
    admin = KafkaAdmin(settings.admin(quick(kafka3).proxies["default"]), 2.0)

    async def describe() -> Groups | None:
        try:
            return await admin.describe([name])
        except KafkaError:
            return None

    async def commit() -> bool:
        try:
            await admin.set_offsets(name, [Commit(name, 0, 0, "")])
        except KafkaError:
            return False
        return True

    await eventually(commit, within=60)
    assert await eventually(describe) == {name: ()}
    node = (await asyncio.to_thread(get_group_coordinator, kafka3.bootstrap(), name)).node_id
    kafka3.kill(node)
    assert await eventually(describe, within=60) == {name: ()}
    kafka3.start(node)
    await asyncio.to_thread(kafka3.wait_ready)
    assert await eventually(describe) == {name: ()}
    admin.close()


async def _produced(daemon: Daemon, topic: str, value: bytes) -> bool:
    try:
        await daemon.produce(topic, value)
    except grpc.RpcError:
        return False
    return True
