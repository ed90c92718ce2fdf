"""Groups whose offsets an unclean election has given to other messages (KIP-320), away or alive."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import grpc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from pixy.membership.kafka.fetching_session import FetchingSession
from pixy.wire.client import GroupClient
from tests.integration.test_historic_bugs import consume_all, quick
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, serving


async def write(daemon: Daemon, topic: str, values: range) -> None:
    for at in values:
        await eventually(lambda at=at: _written(daemon, topic, at), within=60)


async def _written(daemon: Daemon, topic: str, at: int) -> bool:
    return (await daemon.post(f"/topics/{topic}/messages?sync", f"{at}")).status == 200


def wanted(values: range) -> set[bytes]:
    return {b"%d" % at for at in values}


async def create(kafka: Cluster, *topics: str) -> None:
    """Create topics with one partition, on the brokers 1 and 2, whose leader may be one that lacks messages."""
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    made = [NewTopic(each, 1, replica_assignment=[[1, 2]], config=config) for each in topics]
    for future in kafka.admin().create_topics(made).values():
        await asyncio.to_thread(future.result, 30)


async def outlive(kafka: Cluster, *topics: str) -> None:
    """Kill broker 2, and wait until broker 1 alone has all that comes."""
    kafka.kill(2)

    async def alone() -> bool:
        found = (await asyncio.to_thread(kafka.admin().list_topics, timeout=10)).topics
        return all(found[each].partitions[0].isrs == [1] for each in topics)

    await eventually(alone, within=60)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_messages_that_have_taken_committed_offsets_are_delivered(
    kafka3: Cluster, name: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    await create(kafka3, name)
    app = quick(kafka3, group_protocol=protocol)
    async with serving(app) as daemon:
        await write(daemon, name, range(20))
        kafka3.kill(2)  # node 1 stays the leader; what it writes from here on it alone has
        await write(daemon, name, range(20, 60))
        await consume_all(daemon, name, wanted(range(60)))
    with GroupClient(kafka3.bootstrap()[:1], "g") as group:
        found = await asyncio.to_thread(group.fetch_offset, name, 0)
    assert found.offset == 60
    assert found.leader_epoch >= 0, "the commit names no leader epoch"

    kafka3.kill(1)
    kafka3.start(2)
    async with serving(app) as daemon:
        await write(daemon, name, range(100, 160))
        assert (await daemon.offsets(name, "g"))[0].end == 20 + 60, "beyond the committed offset"
        kafka3.start(1)
        await asyncio.to_thread(kafka3.wait_ready)
        await consume_all(daemon, name, wanted(range(100, 160)))
    assert f"{name}/0 was truncated at 20, below the committed offset 60" in caplog.text


def transact(kafka: Cluster, topic: str, values: Iterable[int]) -> None:
    producer = Producer({"bootstrap.servers": ",".join(kafka.bootstrap()), "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for at in values:
        producer.produce(topic, b"%d" % at, partition=0)
    producer.commit_transaction(60)


async def consume(daemon: Daemon, topic: str, count: int, *, held: int = -1) -> None:
    """Consume so many messages, and acknowledge all but one."""
    for _ in range(count):
        message = await daemon.consume(topic, "g", no_ack=True)
        if message.offset != held:
            await daemon.ack(topic, "g", message)


@pytest.mark.timeout(300)
async def test_a_truncation_is_found_whatever_was_committed(kafka3: Cluster, name: str) -> None:
    """Acks beyond the offset, an offset behind the marker of a transaction, and one at which the group has begun, with no message."""
    sparse, marked, begun = topics = [f"{name}-{each}" for each in ("sparse", "marked", "begun")]
    await create(kafka3, *topics)
    app = quick(kafka3, long_polling_timeout=20.0, ack_timeout=60.0)
    newest = quick(kafka3, initial_offset="newest")
    async with serving(app) as daemon, serving(newest) as beginner:
        for topic in topics:
            await write(daemon, topic, range(5))
        await outlive(kafka3, *topics)
        for topic in (sparse, begun):
            await write(daemon, topic, range(5, 10))
        await asyncio.to_thread(transact, kafka3, marked, range(5, 10))
        await consume(daemon, sparse, 10, held=2)
        await consume(daemon, marked, 10)
        with pytest.raises(grpc.RpcError):
            await beginner.consume(begun, "g", no_ack=True)
    with GroupClient(kafka3.bootstrap()[:1], "g") as group:
        found = [await asyncio.to_thread(group.fetch_offset, topic, 0) for topic in topics]
    assert [each.offset for each in found] == [2, 11, 10]

    kafka3.kill(1)
    kafka3.start(2)
    async with serving(app) as daemon:
        for topic in topics:
            await write(daemon, topic, range(100, 112))
        kafka3.start(1)
        await asyncio.to_thread(kafka3.wait_ready)
        for topic in topics:
            await consume_all(daemon, topic, wanted(range(100, 112)))


@pytest.mark.timeout(300)
async def test_a_living_group_whose_log_outgrows_its_position_before_it_notices(
    kafka3: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka tells of the truncation, but when the log is looked up its end is beyond the position again."""
    awake, step = threading.Event(), FetchingSession._step

    def when_awake(session: FetchingSession) -> None:
        awake.wait(100)
        step(session)

    monkeypatch.setattr(FetchingSession, "_step", when_awake)
    awake.set()
    await create(kafka3, name)
    async with serving(quick(kafka3, session_timeout=45.0)) as daemon:
        await write(daemon, name, range(5))
        await outlive(kafka3, name)
        await write(daemon, name, range(5, 10))
        await consume_all(daemon, name, wanted(range(10)))
        awake.clear()
        kafka3.kill(1)
        kafka3.start(2)
        await write(daemon, name, range(100, 112))
        kafka3.start(1)
        awake.set()
        await asyncio.to_thread(kafka3.wait_ready)
        await consume_all(daemon, name, wanted(range(100, 112)))
