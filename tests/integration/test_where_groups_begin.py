"""Where a group begins on a real Kafka: topics that are grown, truncated, made again, or have no leader."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from pixy.config.model import Kafka, Proxy
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.brokers import Brokers
from pixy.kafka.group_members import GroupMembers
from pixy.kafka.partition_logs import FirstAttempt, PartitionLogs
from pixy.membership.kafka.start_lookups import StartLookups
from pixy.wire.client import GroupClient
from tests.integration.restv1.consumers import Instance
from tests.integration.restv1.test_consumer_partitions import hold_look_ups, read
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving

Message = tuple[int, int]
"""Partition and offset."""


async def consume(daemon: Daemon, topic: str, group: str, **fields: Any) -> Any:
    """The next message, however long it takes within a minute."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await daemon.consume(topic, group, **(fields or {"auto_ack": True}))
            except grpc.RpcError as error:
                rejoining = "though there are messages" in str(error.details())
                assert rejoining or error.code() is grpc.StatusCode.NOT_FOUND, error


async def take(daemon: Daemon, topic: str, group: str, wanted: set[Message]) -> list[Message]:
    """Consume until all wanted messages have come; return all that came, in order."""
    found: list[Message] = []
    while not wanted <= set(found):
        message = await consume(daemon, topic, group)
        found.append((message.partition, message.offset))
    return found


async def drain(daemon: Daemon, topic: str, group: str) -> None:
    """Consume until nothing comes."""
    with contextlib.suppress(grpc.RpcError):
        while True:
            await daemon.consume(topic, group, auto_ack=True)


def write(cluster: Cluster, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": ",".join(cluster.bootstrap()), "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(30) == 0


async def committed(cluster: Cluster, group: str, topic: str, partition: int = 0) -> int:
    def ask() -> int:
        with GroupClient(cluster.bootstrap()[0], group) as client:
            return client.fetch_offset(topic, partition).offset

    return await asyncio.to_thread(ask)


def make_again(cluster: Cluster, topic: str, partitions: int = 1) -> None:
    """Delete a topic and create it again, as soon as the broker lets us."""
    cluster.admin().delete_topics([topic])[topic].result(30)
    while not cluster.made(NewTopic(topic, partitions, 1)):
        pass


# -- partitions without a leader ----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_partition_without_a_leader_delays_no_other_and_begins_when_it_has_one(
    kafka3: Cluster, name: str, protocol: str
) -> None:
    healthy = kafka3.create_topic(f"{name}-healthy")
    new = NewTopic(name, 2, replica_assignment=[[1], [3]], config={"min.insync.replicas": "1"})
    kafka3.admin().create_topics([new])[name].result(30)
    for topic, partition in ((healthy, 0), (name, 0), (name, 1)):
        await asyncio.to_thread(write, kafka3, topic, 3, partition)
    kafka3.kill(3)
    try:
        config = make_config(kafka3.bootstrap(), group_protocol=protocol, long_polling_timeout=1.0)
        async with serving(config) as daemon:
            await take(daemon, name, "g", {(0, 0), (0, 1), (0, 2)})
            await take(daemon, healthy, "g", {(0, 0), (0, 1), (0, 2)})
            await eventually(lambda: committed(kafka3, "g", name), lambda offset: offset == 3)
            kafka3.start(3)
            assert await take(daemon, name, "g", {(1, 0), (1, 1), (1, 2)}) == [(1, 0), (1, 1), (1, 2)]
    finally:
        if 3 not in kafka3._processes:
            kafka3.start(3)
        await asyncio.to_thread(kafka3.wait_ready)


async def test_a_partition_that_had_no_leader_at_the_join_begins_where_it_ended_then(
    kafka3: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``newest``. What is written before the returned leader is asked was written after the join."""
    new = NewTopic(name, 2, replica_assignment=[[1], [3]], config={"min.insync.replicas": "1"})
    kafka3.admin().create_topics([new])[name].result(30)
    for partition in range(2):
        await asyncio.to_thread(write, kafka3, name, 3, partition)
    kafka3.kill(3)
    try:
        config, config_next = (
            make_config(
                kafka3.bootstrap(),
                initial_offset="newest",
                long_polling_timeout=1.0,
                group_protocol=protocol,
                subscription_timeout=600.0,  # they stay members, however long the broker takes to start
            )
            for protocol in ("classic", "consumer")
        )
        async with serving(config) as one, serving(config_next) as two:
            for daemon, group in ((one, "g1"), (two, "g2")):
                await eventually(lambda d=daemon, g=group: _first_answer(d, name, g))
                await asyncio.to_thread(write, kafka3, name, 1, 0)
                await take(daemon, name, group, {(0, 3)} if daemon is one else {(0, 4)})
            written = hold_look_ups(monkeypatch)
            late = Producer({"bootstrap.servers": ",".join(kafka3.bootstrap()), "log_level": 0})
            late.produce(name, b"late", partition=1)  # with the leader's return
            kafka3.start(3)
            assert await asyncio.to_thread(late.flush, 60) == 0
            written.set()
            assert await take(one, name, "g1", {(0, 4), (1, 3)}) in ([(0, 4), (1, 3)], [(1, 3), (0, 4)])
            assert await take(two, name, "g2", {(1, 3)}) == [(1, 3)]
    finally:
        if 3 not in kafka3._processes:
            kafka3.start(3)
        await asyncio.to_thread(kafka3.wait_ready)


async def _first_answer(daemon: Daemon, topic: str, group: str) -> bool:
    """Whether a first request was answered that there is no message."""
    try:
        await daemon.consume(topic, group, auto_ack=True)
    except grpc.RpcError as error:
        return error.code() is grpc.StatusCode.NOT_FOUND
    raise AssertionError("a message came")


def test_a_leader_that_had_not_answered_tells_by_timestamps_where_its_log_ended(
    kafka: Cluster, name: str
) -> None:
    """Its epoch goes on. A timestamp in the future says nothing."""
    kafka.create_topic(name, 3)
    partitions = [(name, partition) for partition in range(3)]
    brokers = Brokers(settings.consumer(make_config(kafka.bootstrap()).proxies["default"], name))
    for partition in range(3):
        write(kafka, name, 2, partition)
    future = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    future.produce(name, b"", partition=1, timestamp=int(time.time() * 1000) + 600_000)
    future.flush(30)
    found: dict[Any, Any] = {}
    attempts = {each: FirstAttempt() for each in partitions}

    def look_up() -> list[int]:
        for each in attempts.values():
            each.attempts += 1
        PartitionLogs(brokers).look_up(partitions, brokers.topics([name]), found.update, attempts)
        return [found[each].newest() for each in partitions]

    assert look_up() == [2, 3, 2]
    for partition in range(2):
        write(kafka, name, 2, partition)
    assert look_up() == [2, 5, 2]


# -- topics that are made again -----------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("count", [3, 10, 15], ids=["shorter", "equal", "longer"])
async def test_a_topic_that_is_made_again_begins_at_its_oldest_message(
    kafka: Cluster, name: str, count: int, protocol: str
) -> None:
    kafka.create_topic(name)
    config = make_config(
        kafka.bootstrap(), initial_offset="newest", group_protocol=protocol, long_polling_timeout=1.0
    )
    async with serving(config) as daemon:
        with pytest.raises(grpc.RpcError):
            await daemon.consume(name, name, auto_ack=True)
        await asyncio.to_thread(write, kafka, name, 10)
        await take(daemon, name, name, {(0, offset) for offset in range(10)})
        await eventually(lambda: committed(kafka, name, name), lambda offset: offset == 10)
        await asyncio.to_thread(make_again, kafka, name)
        await asyncio.to_thread(write, kafka, name, count)
        await take(daemon, name, name, {(0, offset) for offset in range(count)})
        await drain(daemon, name, name)  # what came before the new topic was noticed comes twice
        await eventually(lambda: committed(kafka, name, name), lambda offset: offset == count)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_topic_that_is_made_again_before_its_partition_comes_here_begins_at_its_oldest_message(
    kafka: Cluster, name: str, protocol: str
) -> None:
    """Its only partition is the other daemon's, which stops while the topic does not exist."""
    kafka.create_topic(name)
    config = make_config(
        kafka.bootstrap(), initial_offset="newest", group_protocol=protocol, long_polling_timeout=1.0
    )
    found: set[Message] = set()

    async def ask(daemon: Daemon) -> None:
        while True:
            with contextlib.suppress(grpc.RpcError):
                message = await daemon.consume(name, name, auto_ack=True)
                found.add((message.partition, message.offset))

    async def has(count: int) -> bool:
        return found == {(0, offset) for offset in range(count)}

    async with contextlib.AsyncExitStack() as one, contextlib.AsyncExitStack() as other:
        daemons = {stack: await stack.enter_async_context(serving(config)) for stack in (one, other)}
        asking = [asyncio.create_task(ask(daemon)) for daemon in daemons.values()]

        async def owner() -> contextlib.AsyncExitStack | None:
            joined = await asyncio.to_thread(members, kafka, name) == len(daemons)
            owners = [stack for stack, daemon in daemons.items() if daemon.owned(name, name)]
            return owners[0] if joined and len(owners) == 1 else None

        await eventually(owner)
        await asyncio.to_thread(write, kafka, name, 10)
        await eventually(lambda: has(10))
        leaving = await eventually(owner)
        await asyncio.to_thread(lambda: kafka.admin().delete_topics([name])[name].result(30))
        found.clear()
        await leaving.aclose()
        await eventually(lambda: asyncio.to_thread(kafka.made, NewTopic(name, 1, 1)))
        await asyncio.to_thread(write, kafka, name, 20)
        await eventually(lambda: has(20), within=60)
        for each in asking:
            each.cancel()


def members(cluster: Cluster, group: str) -> int:
    """Count the members of a group."""
    brokers = Brokers(settings.common(Proxy(kafka=Kafka(seed_peers=cluster.bootstrap()))), patience=10.0)
    try:
        return len(GroupMembers(brokers).describe([group]).get(group, ()))
    except KafkaError:  # the topic of the offsets is being made
        return 0


async def test_a_topic_that_is_made_again_is_noticed_while_another_of_its_group_is_busy(
    kafka: Cluster, name: str
) -> None:
    """Its new log ends where the group is: nothing comes of it, and so no commit of its own shows what has happened."""
    busy = kafka.create_topic(f"{name}-busy")
    kafka.create_topic(name)
    await asyncio.to_thread(write, kafka, name, 10)
    async with serving(make_config(kafka.bootstrap(), long_polling_timeout=1.0)) as daemon:

        async def acknowledge() -> None:
            for count in itertools.count(1):
                await daemon.produce(busy, b"")
                await consume(daemon, busy, name)
                await eventually(lambda: committed(kafka, name, busy), lambda offset, at=count: offset == at)

        wanted = {(0, offset) for offset in range(10)}
        await take(daemon, name, name, wanted)
        await eventually(lambda: committed(kafka, name, name), lambda offset: offset == 10)
        acknowledging = asyncio.create_task(acknowledge())
        await eventually(lambda: committed(kafka, name, busy), lambda offset: offset > 0)
        await asyncio.to_thread(make_again, kafka, name)
        await asyncio.to_thread(write, kafka, name, 10)
        try:
            await take(daemon, name, name, wanted)
        finally:
            acknowledging.cancel()


async def test_a_stop_commits_no_position_of_the_old_topic_and_the_restart_begins_at_the_oldest(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), initial_offset="newest", long_polling_timeout=1.0)
    config.proxies["default"].consumer.offsets_commit_interval = 3600.0
    async with serving(config) as daemon:
        with pytest.raises(grpc.RpcError):
            await daemon.consume(name, name, auto_ack=True)
        await asyncio.to_thread(write, kafka, name, 10)
        await take(daemon, name, name, {(0, offset) for offset in range(10)})
        await asyncio.to_thread(make_again, kafka, name)
        await asyncio.to_thread(write, kafka, name, 15)
    assert await committed(kafka, name, name) <= 0
    async with serving(config) as daemon:
        found = await take(daemon, name, name, {(0, offset) for offset in range(15)})
        assert found == [(0, offset) for offset in range(15)]


async def test_a_committed_offset_above_the_end_means_another_log(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    await asyncio.to_thread(write, kafka, name, 5)
    config = make_config(kafka.bootstrap(), initial_offset="newest", long_polling_timeout=1.0)
    async with serving(config) as daemon:
        await daemon.post(f"/topics/{name}/offsets?group={name}", '[{"partition":0,"offset":30}]')
        assert (await consume(daemon, name, name)).offset == 0


async def test_a_topic_that_is_made_while_it_is_asked_for_begins_at_its_oldest_message(
    kafka: Cluster, name: str
) -> None:
    """The first time, and again once its deletion has been noticed."""
    config = make_config(kafka.bootstrap(), initial_offset="newest", long_polling_timeout=1.0)
    async with serving(config) as daemon:
        with pytest.raises(grpc.RpcError):
            await daemon.consume(name, name, auto_ack=True)
        for _ in range(2):
            await asyncio.to_thread(kafka.create_topic, name)
            await asyncio.to_thread(write, kafka, name, 5)
            wanted = [(0, offset) for offset in range(5)]
            assert await take(daemon, name, name, set(wanted)) == wanted
            kafka.admin().delete_topics([name])[name].result(30)

            async def owned() -> set[int]:
                with contextlib.suppress(grpc.RpcError):
                    await daemon.consume(name, name, auto_ack=True)
                return daemon.owned(name, name)

            await eventually(owned, lambda owned: not owned, within=40)


async def test_a_topic_of_kafka_3_9_that_is_made_again(old_kafka: Cluster, name: str) -> None:
    old_kafka.create_topic(name)
    config = make_config(old_kafka.bootstrap(), initial_offset="newest", long_polling_timeout=1.0)
    async with serving(config) as daemon:
        with pytest.raises(grpc.RpcError):
            await daemon.consume(name, name, auto_ack=True)
        await asyncio.to_thread(write, old_kafka, name, 3)
        await take(daemon, name, name, {(0, offset) for offset in range(3)})
        await asyncio.to_thread(make_again, old_kafka, name)
        await asyncio.to_thread(write, old_kafka, name, 9)
        await take(daemon, name, name, {(0, offset) for offset in range(9)})


# -- topics that grow, and retention ------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_partitions_added_while_an_established_group_is_away_begin_at_their_oldest_message(
    kafka: Cluster, name: str, protocol: str
) -> None:
    kafka.create_topic(name)
    config = make_config(
        kafka.bootstrap(), initial_offset="newest", group_protocol=protocol, long_polling_timeout=1.0
    )
    async with serving(config) as daemon:
        with pytest.raises(grpc.RpcError):
            await daemon.consume(name, name, auto_ack=True)
        await asyncio.to_thread(write, kafka, name, 2)
        await take(daemon, name, name, {(0, 0), (0, 1)})
    kafka.admin().create_partitions([NewPartitions(name, 3)])[name].result(30)
    for partition in range(3):
        await asyncio.to_thread(write, kafka, name, 2, partition)
    async with serving(config) as daemon:
        found = await take(daemon, name, name, {(0, 2), (0, 3), (1, 0), (1, 1), (2, 0), (2, 1)})
        assert len(found) == 6


@pytest.mark.parametrize("slow", [0.0, 2.0], ids=["at once", "slowly"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_new_to_a_topic_begins_at_the_newest_message_of_all_partitions(
    kafka: Cluster, name: str, protocol: str, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two daemons join at the same time: each finds offsets that the other has just committed. On a busy machine they look slowly."""
    find = StartLookups._find

    def late(*args: Any) -> None:
        time.sleep(slow)
        find(*args)

    monkeypatch.setattr(StartLookups, "_find", late)
    kafka.create_topic(name, 6)
    for partition in range(6):
        await asyncio.to_thread(write, kafka, name, 3, partition)
    config = make_config(
        kafka.bootstrap(), initial_offset="newest", group_protocol=protocol, long_polling_timeout=1.0
    )
    async with serving(config) as one, serving(config) as two:

        async def ask(daemon: Daemon) -> None:
            with pytest.raises(grpc.RpcError):
                await daemon.consume(name, name, auto_ack=True)

        for _ in range(3 + int(4 * slow)):
            await asyncio.gather(ask(one), ask(two))
    for partition in range(6):
        assert await committed(kafka, name, name, partition) == 3


async def test_metadata_of_another_tool_that_reads_as_acks_skips_nothing_that_it_cannot_mean(
    kafka: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Ranges beyond the end, or at the offset, are not ours. What is skipped is logged."""
    caplog.set_level("INFO", "pixy.engine")
    kafka.create_topic(name)
    await asyncio.to_thread(write, kafka, name, 5)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0)
    wanted = {(0, offset) for offset in range(1, 5)}
    async with serving(config) as daemon:
        for metadata, skipped in (("BK", ()), ("AB", ()), ("BBHB", ()), ("BB", (2,))):
            group = f"{name}-{metadata}"
            body = f'[{{"partition":0,"offset":1,"metadata":"{metadata}"}}]'
            assert (await daemon.post(f"/topics/{name}/offsets?group={group}", body)).status == 200
            left = wanted - {(0, offset) for offset in skipped}
            assert await take(daemon, name, group, left) == sorted(left)
    assert [each.getMessage().partition(": ")[2] for each in caplog.records if "so not" in each.message] == [
        "acknowledged, so not delivered: offsets 2-2"
    ]


async def test_sparse_acks_hold_when_retention_has_passed_the_committed_offset(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), long_polling_timeout=1.0, drain_timeout=0.2)
    async with serving(config) as daemon:
        await asyncio.to_thread(write, kafka, name, 60)
        got = [await consume(daemon, name, name, no_ack=True) for _ in range(50)]
        for message in got[5:]:
            await daemon.ack(name, name, message)
    assert await committed(kafka, name, name) == 0
    await asyncio.to_thread(kafka.delete_records, name, 0, 3)
    async with serving(config) as daemon:
        wanted = [(0, offset) for offset in (3, 4, *range(50, 60))]
        assert await take(daemon, name, name, set(wanted)) == wanted
        await eventually(lambda: committed(kafka, name, name), lambda offset: offset == 60)


async def test_a_living_group_goes_on_at_the_oldest_message_that_retention_has_left(
    kafka: Cluster, name: str
) -> None:
    """Flow control holds the rest back at the broker, where it is deleted."""
    kafka.create_topic(name)
    config = make_config(
        kafka.bootstrap(), long_polling_timeout=1.0, prefetch_max_messages=2, fetch_max_bytes=1024
    )
    config.proxies["default"].consumer.prefetch_max_bytes = 1_048_576
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for _ in range(30):
        producer.produce(name, b"x" * 100_000)
        producer.flush(30)
    async with serving(config) as daemon:
        assert (await consume(daemon, name, name)).offset == 0
        await asyncio.to_thread(kafka.delete_records, name, 0, 28)
        found = await take(daemon, name, name, {(0, 28), (0, 29)})
        assert found == sorted(found)
        await eventually(lambda: committed(kafka, name, name), lambda offset: offset == 30)


# -- ends without messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["commit", "abort", "abort alone"])
async def test_markers_of_transactions_at_the_end_leave_no_lag(
    kafka: Cluster, name: str, outcome: str
) -> None:
    kafka.create_topic(name)
    if outcome != "abort alone":
        await asyncio.to_thread(write, kafka, name, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0], "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(name, b"transaction")
    producer.flush(30)
    if outcome == "commit":
        producer.commit_transaction()
    else:
        producer.abort_transaction()
    messages, end = {"commit": (5, 6), "abort": (2, 6), "abort alone": (0, 4)}[outcome]
    async with serving(make_config(kafka.bootstrap(), long_polling_timeout=1.0)) as daemon:
        await take(daemon, name, name, {(0, offset) for offset in range(messages)})
        if not messages:
            with pytest.raises(grpc.RpcError):
                await daemon.consume(name, name, auto_ack=True)
        found = await eventually(lambda: daemon.offsets(name, name), lambda found: found[0].offset == end)
        assert found[0].lag == 0
        await daemon.produce(name, b"after")
        assert (await consume(daemon, name, name)).offset == end


# -- leaving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_the_only_topic_that_expires_while_a_missing_one_is_asked_for_is_given_up(
    kafka: Cluster, name: str, protocol: str
) -> None:
    """Else the other daemon would wait for the partitions until the session times out."""
    kafka.create_topic(name, 2)
    config = make_config(
        kafka.bootstrap(),
        group_protocol=protocol,
        long_polling_timeout=0.5,
        subscription_timeout=1.0,
        session_timeout=300.0,
    )
    async with serving(config) as one, serving(config) as two:
        await asyncio.to_thread(write, kafka, name, 3)
        assert (await consume(one, name, name)).offset == 0
        stop = asyncio.Event()

        async def ask_for_a_missing_topic() -> None:
            while not stop.is_set():
                with pytest.raises(grpc.RpcError):
                    await one.consume(f"{name}-missing", name, auto_ack=True)

        async def owned() -> set[int]:
            return one.owned(name, name)

        asking = asyncio.create_task(ask_for_a_missing_topic())
        try:
            await eventually(owned, lambda owned: not owned)
            assert await take(two, name, name, {(0, 1), (0, 2)}) == [(0, 1), (0, 2)]
        finally:
            stop.set()
            await asking


@pytest.mark.timeout(180)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_topic_whose_leaders_had_changed_is_read_when_it_is_made_again(
    kafka3: Cluster, name: str, protocol: str
) -> None:
    """librdkafka knows higher leader epochs than the new topic has, and fetches nothing, for ever, until it is made anew."""
    kafka3.create_topic(name, 3)
    kafka3.kill(1)  # the partitions that it led get their second leader
    try:
        await eventually(
            lambda: asyncio.to_thread(_leaders, kafka3, name), lambda leaders: not {1, -1} & set(leaders)
        )
    finally:
        kafka3.start(1)
        await asyncio.to_thread(kafka3.wait_ready)
    config = make_config(kafka3.bootstrap(), group_protocol=protocol, long_polling_timeout=1.0)
    async with serving(config) as daemon:
        instance = Instance(daemon, f"{name}-instances")
        await instance.create(auto_commit_enable=False)
        await instance.subscribe(name)
        for part in range(3):
            await asyncio.to_thread(write, kafka3, name, 2, part)
        await take(daemon, name, name, {(part, offset) for part in range(3) for offset in range(2)})
        assert len(await read(instance, 6)) == 6
        await asyncio.to_thread(make_again, kafka3, name, 3)
        for part in range(3):
            await asyncio.to_thread(write, kafka3, name, 5, part)
        await take(daemon, name, name, {(part, offset) for part in range(3) for offset in range(5)})
        for part in range(3):
            await eventually(
                lambda part=part: committed(kafka3, name, name, part), lambda offset: offset == 5
            )
        found: list[bytes] = []
        async with asyncio.timeout(60):
            while not all(found.count(b"%d" % number) >= 3 for number in range(5)):
                try:
                    found += await instance.values("?timeout=1000")
                except AssertionError as error:
                    assert "the consumer instance is restarting, try again" in str(error)


def _leaders(cluster: Cluster, topic: str) -> list[int]:
    return [each.leader for each in cluster.admin().list_topics(topic).topics[topic].partitions.values()]
