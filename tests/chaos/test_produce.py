"""What a producer answers is in the log, also if a partition's leader is not ready when the first request comes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from pixy.engine.engine import Engine
from pixy.errors import KafkaError
from pixy.kafka import settings
from pixy.kafka.bulk import ANY, BulkProducer, bulk_settings
from pixy.kafka.partitioning import fnv1a_partition
from pixy.kafka.producer import ProducerClient
from pixy.kafka.producer_messages import Bulk
from tests.chaos.late_leader import LateLeader
from tests.chaos.new_topics import Record, read
from tests.kafka.cluster import Cluster
from tests.support import make_config


class Message:
    """A single message on its way."""

    def __init__(self, value: bytes) -> None:
        self.key, self.value, self.headers, self.timestamp = None, value, (), 0
        self.size = len(value)


def address(kafka: Cluster) -> tuple[str, int]:
    host, port = kafka.bootstrap()[0].split(":")
    return host, int(port)


@pytest.mark.parametrize("together", [False, True])
async def test_a_message_that_landed_without_an_offset_is_sent_again(
    kafka: Cluster, name: str, together: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a gate, librdkafka reports the first request as delivered, though it has reached no broker."""
    kafka.create_topic(name)
    leader = LateLeader(address(kafka))
    reports: list[Any] = []
    results: dict[bytes, tuple[int, int]] = {}
    async with leader.listening() as bootstrap:
        conf = settings.producer(make_config([bootstrap]).proxies["default"], "random")
        client = ProducerClient(conf, reports.extend, reports.append)
        try:
            await client.metadata(name, 10)
            for part in ((b"0", b"1"), (b"2", b"3")):
                if together:
                    records = [Record(value, 0) for value in part]
                    bulk = Bulk(records, 2, True)
                    assert client.send_bulk(name, bulk, [0, 0])
                else:
                    assert client.send(name, [Message(value) for value in part], [0, 0]) == (2, [])
                await until(lambda: (name, 0) in leader.first)
            await until(lambda: len(reports) == (2 if together else 4))
        finally:
            await client.close(10)
    for item, error, partition, offset in reports:
        assert error is None
        if isinstance(item, Bulk):
            results.update(zip([record.value for record in item.records], item.results, strict=True))
        else:
            results[item.value] = (partition, offset)
    assert leader.overtaken == {(name, 0)}, "a second request was in flight when the first failed"
    [log] = await asyncio.to_thread(read, kafka, [TopicPartition(name, 0)])
    assert sorted(log) == [b"0", b"1", b"2", b"3"]
    assert {log[offset]: (0, offset) for offset in range(4)} == results
    assert "landed without an offset and are sent again" in caplog.text


@pytest.mark.parametrize("kind", ["singles", "keys", "no keys", "partitions"])
async def test_the_first_records_of_a_partition_stay_in_order(kafka: Cluster, name: str, kind: str) -> None:
    """No second request is on its way to a partition until the first has its answer."""
    kafka.create_topic(name, 3)
    leader = LateLeader(address(kafka))
    async with leader.listening() as bootstrap, Engine(make_config([bootstrap])) as engine:
        cluster = engine.cluster()
        values = [b"%03d" % number for number in range(60)]
        if kind == "singles":
            written = await asyncio.gather(*[cluster.produce(name, value, value) for value in values])
        else:
            records = [
                Record(
                    value,
                    at % 3 if kind == "partitions" else None,
                    key=value if kind == "keys" else None,
                    headers=[("h", b"")] if at % 2 else None,
                )
                for at, value in enumerate(values)
            ]
            batches = [records[at : at + 12] for at in range(0, 60, 12)]
            answers = await asyncio.gather(*[cluster.produce_many(name, batch) for batch in batches])
            written = [each for answer in answers for each in answer]
    assert set(leader.first) == {(name, number) for number in range(3)} and leader.overtaken == set()
    logs = await asyncio.to_thread(read, kafka, [TopicPartition(name, number) for number in range(3)])
    assert [logs[partition][offset] for partition, offset in written] == values
    assert [log for log in logs if log != sorted(log) or not log] == []
    if kind in ("singles", "keys"):
        assert [partition for partition, _ in written] == [fnv1a_partition(value, 3) for value in values]


async def test_only_the_partition_without_an_answer_waits(kafka: Cluster, name: str) -> None:
    """A partition whose leader is not ready holds up neither the others, nor for ever what it holds itself."""
    kafka.create_topic(name, 2)
    leader = LateLeader(address(kafka))
    async with leader.listening() as bootstrap, Engine(make_config([bootstrap])) as engine:
        cluster = engine.cluster()
        await cluster.produce_many(name, [Record(b"", 1)])
        leader.stuck.add((name, 0))
        waiting = [asyncio.ensure_future(cluster.produce_many(name, [Record(b"", 0)])) for _ in range(3)]
        await until(lambda: (name, 0) in leader.first)
        assert await cluster.produce_many(name, [Record(b"", 1)] * 20) == [(1, at) for at in range(1, 21)]
        assert not any(each.done() for each in waiting)
        leader.stuck.clear()
        assert [await each for each in waiting] == [[(0, 0)], [(0, 1)], [(0, 2)]]


@contextlib.contextmanager
def frozen(kafka: Cluster) -> Iterator[Callable[[], None]]:
    """Freeze the broker until the end of the block, or until the function that this yields is called."""
    kafka.signal(1, signal.SIGSTOP)
    try:
        yield lambda: kafka.signal(1, signal.SIGCONT)
    finally:
        kafka.signal(1, signal.SIGCONT)


@pytest.mark.timeout(120)
async def test_asynchronous_messages_survive_an_outage_before_their_topic_is_known(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    async with Engine(make_config(kafka.bootstrap())) as engine:
        cluster = engine.cluster()
        with frozen(kafka):
            for number in range(5):
                await cluster.produce_async(name, b"%d" % number)
            with pytest.raises(KafkaError):
                await cluster.produce(name, b"waited for")
            await cluster.produce_async(name, b"5")
        assert await cluster.produce(name, b"6") == (0, 6)
    assert await asyncio.to_thread(read, kafka, [TopicPartition(name, 0)]) == [
        [b"%d" % at for at in range(7)]
    ]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("state", ["looked up", "full", "gated"])
async def test_a_stop_delivers_what_waits_for_kafka(kafka: Cluster, name: str, state: str) -> None:
    """The topic is looked up, the client is full, or a first message has no answer yet when the stop begins."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].producer.buffer_max_bytes = 1 << 20
    values = [b"%04d" % number + bytes(60_000) for number in range(30 if state == "full" else 16)]
    engine = Engine(config)
    await engine.start()
    cluster = engine.cluster()
    if state == "full":
        await cluster.produce(name, b"first")
    with frozen(kafka) as thaw:
        if state == "gated":
            thaw()
        for value in values:
            await cluster.produce_async(name, value)
        stopping = asyncio.ensure_future(engine.stop())
        await until(lambda: engine.stopping)
    assert (await stopping).clean
    [log] = await asyncio.to_thread(read, kafka, [TopicPartition(name, 0)])
    assert [value for value in log if value != b"first"] == values


@pytest.mark.timeout(120)
@pytest.mark.parametrize("known", [False, True])
async def test_a_stop_without_kafka_ends_and_counts_what_it_gives_up(
    kafka: Cluster, name: str, known: bool, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topic producers and the Kafka client have ``shutdown_timeout`` together, not one after the other."""
    left: list[float] = []
    close = ProducerClient.close

    async def note(client: ProducerClient, timeout: float) -> int:
        left.append(timeout)
        return await close(client, timeout)

    monkeypatch.setattr(ProducerClient, "close", note)
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].producer.shutdown_timeout = 0.5
    engine = Engine(config)
    await engine.start()
    cluster = engine.cluster()
    if known:
        await cluster.produce(name, b"first")
    with frozen(kafka):
        for number in range(20):
            await cluster.produce_async(name, b"%d" % number)
        result = await engine.stop()
    assert (result.lost_messages, result.drained, result.left) == (20, True, ())
    assert left[0] <= (0.5 if known else 0.01), "the look-up of the topic has used up all"
    assert caplog.text.count("an asynchronous message is lost") == 20


@pytest.mark.parametrize("partition", [0, ANY])
async def test_a_bulk_transfer_notes_no_record_that_is_not_in_the_log(
    kafka: Cluster, name: str, partition: int
) -> None:
    """Where the partition is known nothing is lost; else the transfer fails, and what it noted is right."""
    kafka.create_topic(name)
    leader = LateLeader(address(kafka))
    values = [b"%d" % number + bytes(600_000) for number in range(8)]
    landed: dict[int, int] = {}

    def transfer(bootstrap: str) -> KafkaError | None:
        conf = bulk_settings(settings.producer(make_config([bootstrap]).proxies["default"], "random"))
        producer = BulkProducer(
            conf, lambda _at, tokens, offsets: landed.update(zip(tokens, offsets, strict=True))
        )
        try:
            for token, value in enumerate(values):
                producer.send(name, partition, [(token, 0, None, value, None)])
            producer.flush()
        except KafkaError as error:
            return error
        return None

    async with leader.listening() as bootstrap:
        error = await asyncio.to_thread(transfer, bootstrap)
    [log] = await asyncio.to_thread(read, kafka, [TopicPartition(name, 0)])
    assert {token: log[offset] for token, offset in landed.items()} == {
        token: values[token] for token in landed
    }
    if partition == 0:
        assert (error, log, leader.overtaken) == (None, values, set())
    else:
        assert "acknowledged without an offset" in str(error)


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.005)
