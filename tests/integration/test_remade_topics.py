"""A topic that is made again, and has other leaders then, is written to, and read from by offset, by the same daemon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from pixy.errors import UnknownPartition
from pixy.kafka.delivery_thread import DeliveryThread
from pixy.wire.client import PartitionClient
from tests.chaos.new_topics import Record, change_leaders, elect, leaders, read
from tests.integration.restv1.support import BINARY_V2, ask, b64, fetch
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving
from tests.unit.kafka.fatal_errors import make_fatal

PARTITIONS = 3


def remake(cluster: Cluster, topic: str) -> None:
    """Delete a topic and make it again; each partition gets another leader than it has."""
    before = leaders(cluster, topic)
    cluster.admin().delete_topics([topic])[topic].result(30)
    replicas = [[before[at] % 3 + 1] for at in range(PARTITIONS)]
    wanted = NewTopic(topic, PARTITIONS, replica_assignment=replicas, config={"min.insync.replicas": "1"})
    while not cluster.made(wanted):
        pass


async def with_elections(cluster: Cluster, topic: str) -> None:
    """Make a topic whose leaders have changed, so that its leader epochs are above those of one made again."""
    await asyncio.to_thread(cluster.create_topic, topic, PARTITIONS)
    before = leaders(cluster, topic)
    with PartitionClient(cluster.bootstrap(), topic, 0) as broker:
        await asyncio.to_thread(change_leaders, cluster, broker, topic)

        def elected() -> dict[int, int]:
            elect(broker, topic, list(before))  # a replica that is not in sync yet is not elected
            return leaders(cluster, topic)

        await eventually(
            lambda: asyncio.to_thread(elected),
            lambda now: all(now[at] not in (before[at], -1) for at in before),
            within=60.0,  # the brokers' own time, until the replicas are in sync
        )


async def write(daemon: Daemon, topic: str, value: bytes) -> list[tuple[int, int]]:
    """Write a record to each partition, in one batch; return their partitions and offsets."""
    written = await daemon.engine.cluster().produce_many(
        topic, [Record(value, at) for at in range(PARTITIONS)]
    )
    return [(partition, offset) for partition, offset in written]  # type: ignore[misc]


def cluster_actor(daemon: Daemon) -> Any:
    """The actor of the daemon's only cluster."""
    found: Any = next(ref for ref in daemon.engine._service._cell.children.values() if ref.name == "default")
    return found.actor


async def known(daemon: Daemon, topic: str) -> bool:
    """Whether the producer knows the topic's id."""
    cluster: Any = next(
        ref for ref in daemon.engine._service._cell.children.values() if ref.name == "default"
    )
    return topic in cluster.actor._clients._first._watch.topics._ids


@pytest.mark.timeout(180)
async def test_messages_for_a_topic_that_is_made_again_are_written(kafka3: Cluster, name: str) -> None:
    """librdkafka sends to the old leaders until the messages time out, 70 s later; only a new producer helps."""
    other = await asyncio.to_thread(kafka3.create_topic, f"{name}-other")
    await with_elections(kafka3, name)
    async with serving(make_config(kafka3.bootstrap())) as daemon:
        for value in (b"a", b"b"):
            await write(daemon, name, value)
            await daemon.produce(other, value)
        await eventually(lambda: known(daemon, name))
        await asyncio.to_thread(remake, kafka3, name)

        together = asyncio.create_task(write(daemon, name, b"together"))
        alone = [asyncio.create_task(daemon.produce(name, b"%d" % at, b"%d" % at)) for at in range(30)]
        later = [await daemon.post(f"/topics/{name}/messages", b"later") for _ in range(3)]
        elsewhere = [(await daemon.produce(other, b"%d" % at))[1] for at in range(100)]
        assert elsewhere == list(range(2, 102)), "the other topic goes on, in order"
        placed = await together + await asyncio.gather(*alone)
        assert len(set(placed)) == PARTITIONS + 30
        assert {answer.status for answer in later} == {200}
        expected = [b"together"] * PARTITIONS + [b"later"] * 3 + [b"%d" % at for at in range(30)]
        partitions = [TopicPartition(name, at) for at in range(PARTITIONS)]

        async def written() -> list[bytes]:
            return sorted(value for log in await asyncio.to_thread(read, kafka3, partitions) for value in log)

        await eventually(written, lambda values: len(values) >= len(expected))
        assert await written() == sorted(expected), "each once"


@pytest.mark.timeout(180)
async def test_a_topic_that_is_made_again_with_fewer_partitions_takes_all_messages_that_ask_for_none(
    kafka: Cluster, name: str
) -> None:
    """The old producer had chosen partitions for those that wait, and the gates of the new one know partitions that are gone."""
    await asyncio.to_thread(kafka.create_topic, name, 4)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        client = cluster_actor(daemon)._clients._first
        await asyncio.gather(*[daemon.produce(name, b"old", b"%d" % at) for at in range(20)])
        await asyncio.to_thread(lambda: kafka.admin().delete_topics([name])[name].result(30))
        waiting = [asyncio.create_task(daemon.produce(name, b"new", b"%d" % at)) for at in range(20)]
        asked = asyncio.create_task(daemon.engine.cluster().produce_many(name, [Record(b"x", 3)]))
        await eventually(lambda: more(client._thread.producer, 20))
        await eventually(lambda: asyncio.to_thread(kafka.made, NewTopic(name, 1)))
        client._replace()
        assert {partition for partition, _ in await asyncio.gather(*waiting)} == {0}
        [refused] = await asked
        assert isinstance(refused, UnknownPartition), "its caller asked for a partition that does not exist"
        later = await asyncio.gather(*[daemon.produce(name, b"new") for _ in range(40)])
        assert {partition for partition, _ in later} == {0}
        await eventually(lambda: without_gates(client))
    [log] = await asyncio.to_thread(read, kafka, [TopicPartition(name, 0)])
    assert log == [b"new"] * 60, "each once"


async def without_gates(client: Any) -> bool:
    return not client._gated._topics


async def test_a_producer_is_replaced_under_load_and_nothing_is_lost_doubled_or_disordered(
    kafka3: Cluster, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Five times while 200 callers write: what is queued moves to the new producer, what is in flight is waited for.

    Every second time because of a fatal error, which costs the cluster's other actors nothing.
    """
    await asyncio.to_thread(kafka3.create_topic, name, PARTITIONS)
    answers: dict[bytes, tuple[int, int]] = {}
    async with serving(make_config(kafka3.bootstrap())) as daemon:
        client = cluster_actor(daemon)._clients._first
        cluster = daemon.engine.cluster()
        done = asyncio.Event()

        async def caller(number: int) -> None:
            at = 0
            while not done.is_set():
                values = [b"%d %d" % (number, at + more) for more in range(1 + number % 3)]
                at += len(values)
                if len(values) == 1:
                    answers[values[0]] = await daemon.produce(name, values[0], b"%d" % number)
                    continue
                written = await cluster.produce_many(
                    name, [Record(value, number % PARTITIONS) for value in values]
                )
                answers.update(zip(values, written, strict=True))  # type: ignore[arg-type]

        callers = [asyncio.create_task(caller(number)) for number in range(200)]
        for number in range(5):
            old, count = client._thread.producer, len(answers)
            if number % 2:
                make_fatal(old)
            else:
                client._replace()
            await eventually(lambda was=old: different(client, was))
            await eventually(lambda count=count: more(answers, count + 1000))
        done.set()
        await asyncio.gather(*callers)
        assert cluster_actor(daemon)._clients._first is client, (
            "the cluster goes on, with its groups and instances"
        )
    logs = await asyncio.to_thread(read, kafka3, [TopicPartition(name, at) for at in range(PARTITIONS)])
    assert {value: (part, at) for part, log in enumerate(logs) for at, value in enumerate(log)} == answers
    assert sum(map(len, logs)) == len(answers), "each once"
    for log in logs:
        last: dict[bytes, int] = {}
        for value in log:
            number, at = value.split()
            assert int(at) == last.get(number, -1) + 1
            last[number] = int(at)


async def different(client: Any, producer: Any) -> bool:
    return client._thread.producer is not producer and not client._replacing


async def more(found: Any, count: int) -> bool:
    return len(found) > count


@pytest.fixture
def old_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let producers refuse messages as soon as they hear that a topic is gone, as they do if they have known it for 30 s."""

    def new(thread: Any) -> Producer:
        settings = {**thread._settings, "topic.metadata.propagation.max.ms": 1}
        return Producer({**settings, "error_cb": thread._error})

    monkeypatch.setattr(DeliveryThread, "_new", new)


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("old_topics")
async def test_no_message_that_is_accepted_after_its_topic_was_made_again_is_lost(
    kafka3: Cluster, name: str
) -> None:
    """The Kafka client has heard that the topic is gone, and does not hear of the new one until it is asked for it."""
    await asyncio.to_thread(kafka3.create_topic, name, PARTITIONS)
    accepted: list[bytes] = []
    async with serving(make_config(kafka3.bootstrap())) as daemon:
        cluster, client = daemon.engine.cluster(), cluster_actor(daemon)._clients._first
        done = asyncio.Event()

        async def sender(number: int) -> None:
            at = 0
            while not done.is_set():
                at += 1
                value, begun = b"%d %d %d" % (number, at, life // 2), life
                await cluster.produce_async(name, value, b"%d" % number)
                if begun == life:
                    accepted.append(value)
                await asyncio.sleep(0.002)

        def hears() -> bool:
            return client._thread.producer.list_topics(name, timeout=10).topics[name].error is not None

        async def log() -> list[bytes]:
            return (await asyncio.to_thread(read, kafka3, [TopicPartition(name, 0)]))[0]

        for round_ in range(3):
            life, accepted[:] = 2 * round_, []
            done.clear()
            senders = [asyncio.create_task(sender(number)) for number in range(8)]
            await eventually(lambda: more(accepted, 100))
            life += 1
            await asyncio.to_thread(lambda: kafka3.admin().delete_topics([name])[name].result(30))
            await eventually(lambda: asyncio.to_thread(hears))
            await eventually(lambda: asyncio.to_thread(kafka3.made, NewTopic(name, 1)))
            life, accepted[:] = life + 1, []
            synchronous = await daemon.produce(name, b"synchronous")
            await eventually(lambda: more(accepted, 200))
            done.set()
            await asyncio.gather(*senders)
            expected = {*accepted, b"synchronous"}
            written = await eventually(log, lambda found, wanted=expected: wanted <= set(found))
            assert synchronous[0] == 0 and len(written) == len(set(written)), "each once"
            for number in range(8):
                of_one = [int(each.split()[1]) for each in written if each.startswith(b"%d " % number)]
                assert of_one == sorted(of_one)
            await asyncio.to_thread(lambda: kafka3.admin().delete_topics([name])[name].result(30))
            await eventually(lambda: asyncio.to_thread(kafka3.made, NewTopic(name, 1)))


@pytest.mark.timeout(180)
@pytest.mark.usefixtures("old_topics")
async def test_a_producer_that_takes_a_topic_for_gone_sends_what_comes_once_it_was_made_again(
    kafka: Cluster, name: str
) -> None:
    await asyncio.to_thread(kafka.create_topic, name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        producer = cluster_actor(daemon)._clients._first._thread.producer
        await daemon.produce(name, b"old")

        def hears() -> bool:
            return producer.list_topics(name, timeout=10).topics[name].error is not None

        await asyncio.to_thread(lambda: kafka.admin().delete_topics([name])[name].result(30))
        await eventually(lambda: asyncio.to_thread(hears))
        await asyncio.to_thread(kafka.made, NewTopic(name, 1))
        expected = [b"%d" % at for at in range(20)]
        for value in expected:
            assert (await daemon.post(f"/topics/{name}/messages", value)).status == 200
        together = await daemon.engine.cluster().produce_many(name, [Record(b"x", None), Record(b"y", None)])
        assert together == [(0, 20), (0, 21)]
        assert await daemon.produce(name, b"z") == (0, 22)
    [log] = await asyncio.to_thread(read, kafka, [TopicPartition(name, 0)])
    assert log == [*expected, b"x", b"y", b"z"]


@pytest.mark.timeout(180)
async def test_a_topic_that_is_made_again_is_read_by_offset(kafka3: Cluster, name: str) -> None:
    """A consumer that knows the old leaders fails once, and is not used again."""
    await with_elections(kafka3, name)
    async with serving(make_config(kafka3.bootstrap())) as daemon:
        await write(daemon, name, b"old")
        await eventually(lambda: known(daemon, name))
        for at in range(PARTITIONS):
            assert [b64(b"old")] == [each["value"] for each in await fetch(daemon, name, at, 0)]
        await asyncio.to_thread(remake, kafka3, name)
        await write(daemon, name, b"new")

        async def first(partition: int) -> list[str]:
            path = f"/topics/{name}/partitions/{partition}/records?offset=0"
            answer = await ask(daemon, "GET", path, accept=BINARY_V2)
            return [each["value"] for each in answer.json] if answer.status == 200 else []

        for at in range(PARTITIONS):
            await eventually(lambda at=at: first(at), lambda found: found == [b64(b"new")], 60.0)
