"""Faults on purpose: brokers that die or freeze, actors that crash, and versions and logs that are old."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import grpc
import pytest

from pixy.engine.consume.group_consumer import GroupConsumer
from pixy.engine.consume.offset_committer import OffsetCommitter
from pixy.engine.consume.partition_messages import Serve
from pixy.engine.consume.partition_owner import PartitionOwner
from pixy.engine.produce.messages import Produce
from pixy.engine.produce.topic_producer import TopicProducer
from tests.chaos.slow_callbacks import LIMIT, SlowCallbacks
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving


def compute(seconds: float) -> None:
    """Use so much processor time of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def consume_until(
    daemon: Daemon, topic: str, group: str, wanted: set[bytes], within: float = 60.0
) -> list[bytes]:
    """Consume with explicit acks until all wanted values have come; return all values, in order."""
    found: list[bytes] = []
    deadline = time.monotonic() + within
    while not wanted <= set(found):
        assert time.monotonic() < deadline, f"missing {sorted(wanted - set(found))[:5]}"
        try:
            message = await daemon.consume(topic, group, no_ack=True)
            found.append(message.message)
            await daemon.ack(topic, group, message)
        except grpc.RpcError as error:
            assert error.code() in (
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.FAILED_PRECONDITION,
                grpc.StatusCode.INVALID_ARGUMENT,
            ), error
    return found


async def test_a_frozen_broker_does_not_block_the_loop(kafka: Cluster, name: str) -> None:
    """While Kafka answers nothing, requests that do not need it are answered and no callback waits."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=60.0)
    async with serving(config) as daemon:
        await daemon.produce(name, b"x")
        kafka.signal(1, signal.SIGSTOP)
        try:
            stuck = [
                asyncio.ensure_future(daemon.produce(name, b"y")),
                asyncio.ensure_future(daemon.get(f"/topics/{name}/offsets?group={name}")),
                asyncio.ensure_future(daemon.get(f"/topics/{name}/messages?group={name}")),
            ]
            with SlowCallbacks().watching() as slow:
                for _ in range(20):
                    assert (await daemon.get("/_ping")).body == b"pong"
                    await asyncio.sleep(0.05)
            assert not slow.found
            assert not any(request.done() for request in stuck), "Kafka is frozen"
        finally:
            kafka.signal(1, signal.SIGCONT)
        assert (await stuck[0])[1] == 1
        assert (await stuck[1]).status == 200
        await stuck[2]


async def test_no_callback_blocks_the_loop(kafka: Cluster, name: str) -> None:
    """While every kind of request is served, no callback computes or sleeps for 0.1 s."""
    kafka.create_topic(name, 4)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0)
    async with serving(config) as daemon:
        with SlowCallbacks().watching() as slow:
            await asyncio.gather(*[daemon.produce(name, b"%d" % n) for n in range(300)])
            await asyncio.gather(*[daemon.consume(name, name, auto_ack=True) for _ in range(100)])
            await daemon.offsets(name, name)
            await daemon.get("/topics?withPartitions&withConfig")
            await daemon.get(f"/topics/{name}/consumers")
    assert not slow.found


@pytest.mark.parametrize("hold_up", [time.sleep, compute])
async def test_a_callback_that_blocks_the_loop_is_found(hold_up: Callable[[float], None]) -> None:
    """The control of the two tests above."""
    with SlowCallbacks().watching() as slow:
        asyncio.get_running_loop().call_soon(hold_up, 2 * LIMIT)
        await asyncio.sleep(0.01)
    assert len(slow.found) == 1 and hold_up.__name__ in slow.found[0], slow.found


def crash_once(monkeypatch: pytest.MonkeyPatch, actor: type, when) -> list[object]:  # type: ignore[no-untyped-def]
    """Make the actor class raise at the first message that ``when`` accepts."""
    crashes: list[object] = []
    handle = actor.on_receive

    def on_receive(self, message):  # type: ignore[no-untyped-def]
        if not crashes and when(self, message):
            crashes.append(message)
            raise RuntimeError("crash on purpose")
        return handle(self, message)

    monkeypatch.setattr(actor, "on_receive", on_receive)
    return crashes


async def test_a_crashed_partition_owner_restarts_alone(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Un-acknowledged messages are offered again, acknowledged ones never are."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for number in range(10):
            await daemon.produce(name, b"%d" % number)
        got = [await daemon.consume(name, name, no_ack=True) for _ in range(5)]
        for at in (0, 2):
            await daemon.ack(name, name, got[at])
        crashes = crash_once(monkeypatch, PartitionOwner, lambda _self, message: type(message) is Serve)
        after = [await daemon.consume(name, name, no_ack=True) for _ in range(2)]
        assert len(crashes) == 1
        assert [message.offset for message in after] == [1, 3]
        await daemon.ack(name, name, got[4])  # offered before the crash: the ack counts
        rest = [await daemon.consume(name, name, no_ack=True) for _ in range(5)]
        assert [message.offset for message in rest] == [5, 6, 7, 8, 9]
        for message in (*after, *rest):
            await daemon.ack(name, name, message)
        await eventually(lambda: daemon.offsets(name, name), lambda found: found[0].offset == 10)


@pytest.mark.parametrize("actor", [GroupConsumer, OffsetCommitter])
async def test_a_crashed_group_rejoins(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch, actor: type
) -> None:
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        values = {b"%d" % number for number in range(40)}
        for value in values:
            await daemon.produce(name, value)
        first = await daemon.consume(name, name, no_ack=True)
        await daemon.ack(name, name, first)
        crashes = crash_once(monkeypatch, actor, lambda _self, message: "Fetched" not in repr(type(message)))
        found = await consume_until(daemon, name, name, values - {first.message})
        assert len(crashes) == 1 and len(found) >= 39


async def test_a_crashed_producer_actor_answers_and_restarts(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await daemon.produce(name, b"0")
        crash_once(monkeypatch, TopicProducer, lambda _self, message: type(message) is not Produce)
        for number in range(1, 4):
            try:
                await daemon.produce(name, b"%d" % number)
            except grpc.RpcError as error:
                assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
        assert (await daemon.produce(name, b"after"))[1] >= 1


async def test_expired_segments_are_skipped(kafka: Cluster, name: str) -> None:
    """A group whose committed offset has expired goes on at the oldest message."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), subscription_timeout=0.5, long_polling_timeout=0.5)
    async with serving(config) as daemon:
        for number in range(10):
            await daemon.produce(name, b"%d" % number)
        await daemon.consume(name, name, auto_ack=True)
        await eventually(lambda: daemon.offsets(name, name), lambda found: found[0].offset == 1)
    await asyncio.to_thread(kafka.delete_records, name, 0, 6)
    async with serving(config) as daemon:
        assert (await daemon.consume(name, name, auto_ack=True)).offset == 6


async def test_a_group_begins_at_the_offset_that_was_set_before_its_message_was_written(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap(), long_polling_timeout=1.0)) as daemon:
        await daemon.post(f"/topics/{name}/offsets?group={name}", '[{"partition":0,"offset":3}]')
        for number in range(5):
            await daemon.produce(name, b"%d" % number)
        assert (await daemon.consume(name, name, auto_ack=True)).offset == 3


async def test_new_partitions_are_consumed_from_their_beginning(kafka: Cluster, name: str) -> None:
    from confluent_kafka.admin import NewPartitions

    kafka.create_topic(name)
    config = make_config(
        kafka.bootstrap(), initial_offset="newest", long_polling_timeout=0.5, subscription_timeout=60
    )
    async with serving(config) as daemon:
        with pytest.raises(grpc.RpcError):
            await daemon.consume(name, name, auto_ack=True)
        await asyncio.to_thread(
            lambda: kafka.admin().create_partitions([NewPartitions(name, 2)])[name].result(20)
        )

        async def produced() -> int:
            return (await daemon.produce(name, b"grown", b"1"))[0] + (
                await daemon.produce(name, b"grown", b"2")
            )[0]

        await eventually(produced, lambda found: found > 0, within=30)
        partitions = set()
        deadline = time.monotonic() + 40
        first: dict[int, int] = {}
        while partitions != {0, 1}:
            assert time.monotonic() < deadline, partitions
            try:
                message = await daemon.consume(name, name, auto_ack=True)
            except grpc.RpcError:
                continue
            partitions.add(message.partition)
            first.setdefault(message.partition, message.offset)
        assert first[1] == 0


async def test_kafka_3_9_with_zookeeper(old_kafka: Cluster, name: str) -> None:
    old_kafka.create_topic(name, 4)
    async with serving(make_config(old_kafka.bootstrap())) as daemon:
        for number in range(20):
            await daemon.produce(name, b"%d" % number)
        found = {(await daemon.consume(name, name, auto_ack=True)).message for _ in range(20)}
        assert len(found) == 20

        async def lag() -> int:
            return sum(po.lag for po in (await daemon.offsets(name, name)).values())

        await eventually(lag, lambda lag: lag == 0)
        assert name in (await daemon.get(f"/topics/{name}/consumers")).json
        assert name in (await daemon.get("/topics?withConfig&withPartitions")).json
        answer = await daemon.post(f"/topics/{name}/offsets?group={name}", '[{"partition":0}]')
        assert answer.status == 409
