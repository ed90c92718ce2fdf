"""Our batches are read by Kafka's Java consumer and librdkafka, and theirs by us, with every codec."""

from __future__ import annotations

import subprocess
import uuid
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from pixy.wire import batch, committed_offsets, compression, control, record_set
from pixy.wire.batch import Builder
from pixy.wire.compression import Codec
from pixy.wire.record import Record
from tests import class_archives
from tests.integration.wire import raw_broker
from tests.kafka.cluster import HERE, Cluster, libs

STAMP = 1_790_000_000_000
BIG = b"0123456789" * 20_000  # several blocks of lz4 and snappy
KEPT = {"retention.ms": "-1"}
"""A recent time: the broker would delete records with an old timestamp at once."""
CODECS = [codec.name.lower() for codec in Codec]


def sample(codec: str) -> Builder:
    return (
        Builder(now=lambda: STAMP)
        .add(None, f"null key {codec}".encode())
        .add(b"", b"empty key")
        .add(b"tombstone", None)
        .add(b"empty value", b"", (), STAMP + 5)
        .add(b"headers", b"h", (("a", b"1"), ("a", None), ("b", b"")), STAMP - 7)
        .add(b"big", BIG)
    )


def expected(first: int, codec: str) -> list[Record]:
    return [each._replace(offset=each.offset + first) for each in sample(codec).build().records()]


def java(main: str, *arguments: str, stdin: str = "") -> str:
    """Run a class of Kafka's jars, or a source file, in a JVM; return its output."""
    done = subprocess.run(
        [
            "java",
            "-Xmx128m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            *class_archives.use(class_archives.KAFKA),
            "-cp",
            f"{libs(4)}/*",
            main,
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        input=stdin,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_java_and_librdkafka_read_our_batches(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name, **KEPT)
    wanted: list[Record] = []
    for codec in CODECS:
        made = sample(codec).build().compress(compression.get(codec))
        first = raw_broker.produce(kafka, topic, made.marshal())
        assert first == len(wanted)
        wanted += expected(first, codec)

    shown = java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        kafka.bootstrap()[0],
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
        "--max-messages",
        str(len(wanted)),
        "--timeout-ms",
        "30000",
        "--property",
        "print.key=true",
        "--property",
        "print.headers=true",
        "--property",
        "print.timestamp=true",
        "--property",
        "null.literal=<null>",
        "--property",
        "key.separator=|",
        "--property",
        "headers.separator=,",
    )
    assert [line for line in shown.splitlines() if line.startswith("CreateTime:")] == [
        _as_java_shows(each) for each in wanted
    ]

    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": name, "check.crcs": True})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[Any] = []
        while len(found) < len(wanted):
            messages = consumer.consume(len(wanted) - len(found), 20)
            assert messages, f"only {len(found)} of {len(wanted)} messages came"
            found += messages
    finally:
        consumer.close()
    assert [_from_confluent(message) for message in found] == wanted


def _as_java_shows(record: Record) -> str:
    def text(data: bytes | None) -> str:
        return "<null>" if data is None else data.decode()

    headers = ",".join(f"{key}:{text(value)}" for key, value in record.headers) or "NO_HEADERS"
    return f"CreateTime:{record.timestamp}|{headers}|{text(record.key)}|{text(record.value)}"


def _from_confluent(message: Any) -> Record:
    assert message.error() is None
    return Record(
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_batches_of_librdkafka(kafka: Cluster, name: str, codec: str) -> None:
    topic = kafka.create_topic(name, **KEPT)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap()[0],
            "compression.codec": codec,
            "linger.ms": 200,
            "enable.idempotence": True,
        }
    )
    for each in expected(0, codec):
        producer.produce(topic, each.value, each.key, 0, timestamp=each.timestamp, headers=list(each.headers))
    assert producer.flush(30) == 0
    for data in (raw_broker.fetch(kafka, topic), raw_broker.segment(kafka, topic)):
        found = list(batch.iter_batches(data))
        assert {each.codec for each in found} == {Codec[codec.upper()]}
        assert all(each.producer_id >= 0 and each.base_sequence == each.base_offset for each in found)
        assert [record for each in found for record in each.records()] == expected(0, codec)
        assert b"".join(each.marshal() for each in found) == data  # byte for byte


ROWS = [
    ("a:1,a:2", "key", "value"),
    ("a:1", "", "empty key"),
    ("b:", "<null>", "null key"),
    ("a:1", "tombstone", "<null>"),
    ("a:1", "big", BIG.decode()),
]
"""Headers, key, value."""


@pytest.fixture(scope="module")
def written_by_java(kafka: Cluster) -> dict[str, str]:
    """Topics by codec, written by Kafka's Java producer, all in one JVM."""
    topics = {codec: kafka.create_topic(f"t{uuid.uuid4().hex[:12]}", **KEPT) for codec in CODECS}
    lines = ["\t".join((topic, codec, *row)) + "\n" for codec, topic in topics.items() for row in ROWS]
    java(str(HERE / "ProduceRecords.java"), kafka.bootstrap()[0], stdin="".join(lines))
    return topics


@pytest.mark.parametrize("codec", CODECS)
def test_we_read_batches_of_java(kafka: Cluster, written_by_java: dict[str, str], codec: str) -> None:
    topic = written_by_java[codec]
    data = raw_broker.fetch(kafka, topic)
    found = list(batch.iter_batches(data))
    assert {each.codec for each in found} == {Codec[codec.upper()]}
    null = {"<null>": None}
    assert [record[2:5] for each in found for record in each.records()] == [
        (
            null.get(key, key.encode()),
            null.get(value, value.encode()),
            tuple((pair.partition(":")[0], pair.partition(":")[2].encode()) for pair in headers.split(",")),
        )
        for headers, key, value in ROWS
    ]
    assert b"".join(each.marshal() for each in found) == data == raw_broker.segment(kafka, topic)


def test_a_fetch_that_truncates_a_batch(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name, **KEPT)
    made = Builder().add(None, b"x" * 1000).build().marshal()
    for _ in range(5):
        raw_broker.produce(kafka, topic, made)
    data = raw_broker.fetch(kafka, topic, 0, 2 * len(made) + 500)
    assert len(data) == 2 * len(made) + 500
    assert [header.base_offset for header in batch.scan(data)] == [0, 1]
    assert len(list(record_set.iter_records(data))) == 2


def test_a_transaction_of_librdkafka(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name, **KEPT)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0], "transactional.id": name})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        end(30)
    # The broker writes the marker after its answer: fetch until it is there.
    found: list[batch.Batch] = []
    while len(found) < 4:
        found = list(batch.iter_batches(raw_broker.fetch(kafka, topic)))
    assert [each.is_control for each in found] == [False, True, False, True]
    assert all(each.is_transactional for each in found)
    markers = [control.parse(each.records()[0]) for each in found[1::2]]
    assert [marker.type for marker in markers] == [control.ControlType.COMMIT, control.ControlType.ABORT]
    for each, marker in zip(found[1::2], markers, strict=True):
        assert marker.coordinator_epoch is not None
        again = control.transaction_marker(
            control.ControlType(marker.type),
            each.producer_id,
            each.producer_epoch,
            marker.coordinator_epoch,
            base_offset=each.base_offset,
            now=lambda stamp=each.base_timestamp: stamp,  # type: ignore[misc]
        )
        again.partition_leader_epoch = each.partition_leader_epoch
        assert again.marshal() == each.marshal()
    assert [record.value for record in record_set.iter_records(raw_broker.fetch(kafka, topic))] == [
        b"kept",
        b"dropped",
    ]


def test_log_append_time(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name, **KEPT, **{"message.timestamp.type": "LogAppendTime"})
    raw_broker.produce(kafka, topic, sample("zstd").build().compress(compression.get("zstd")).marshal())
    (found,) = batch.iter_batches(raw_broker.fetch(kafka, topic))
    assert found.is_log_append_time and found.codec == Codec.ZSTD
    assert {each.timestamp for each in found.records()} == {
        found.max_timestamp
    } and found.max_timestamp != STAMP


def test_committed_offsets_of_a_real_group(kafka: Cluster, name: str) -> None:
    topic = kafka.create_topic(name, **KEPT)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap()[0], "group.id": name})
    consumer.commit(offsets=[TopicPartition(topic, 0, 42, "some metadata")], asynchronous=False)
    consumer.close()
    found = []
    for path in kafka.folder.glob("data-1/__consumer_offsets-*/00000000000000000000.log"):
        for record in record_set.iter_records(path.read_bytes()):
            if record.key is None or record.value is None or record.key[:2] not in (b"\x00\x00", b"\x00\x01"):
                continue
            key, value = (
                committed_offsets.decode_key(record.key),
                committed_offsets.decode_value(record.value),
            )
            assert key.marshal() == record.key and value.marshal() == record.value
            if key.group == name:
                found.append((key.topic, key.partition, value.offset, value.metadata))
    assert found == [
        (topic, 0, 42, "some metadata\0")
    ]  # confluent-kafka includes the terminating null of the C string
