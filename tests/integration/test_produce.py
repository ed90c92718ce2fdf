"""Producing on a real Kafka, over both APIs."""

from __future__ import annotations

import asyncio
import base64
import json
import random

import grpc
import pytest
from confluent_kafka import Consumer, TopicPartition

from pixy.engine.engine import Engine
from pixy.engine.produce.partitioner import fnv1a_partition
from pixy.proto import kafkapixy_pb2 as pb
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving, status_of

TOO_LARGE = "kafka server: Message was too large, server rejected it to avoid allocation error."
NO_TOPIC = "kafka server: Request was for a topic or partition that does not exist on this broker."


def read_all(kafka: Cluster, topic: str, count: int) -> list:
    """The topic's messages as Kafka's own client sees them, until there are so many."""
    consumer = _at_the_beginning(kafka, topic)
    found = []
    while len(found) < count:
        message = consumer.poll(20)
        assert message is not None and message.error() is None, f"{len(found)} of {count}"
        found.append(message)
    consumer.close()
    return found


def read_to_the_end(kafka: Cluster, topic: str) -> list:
    """All messages that the topic has now."""
    consumer = _at_the_beginning(kafka, topic)
    ends = {each.partition: consumer.get_watermark_offsets(each, 20)[1] for each in consumer.assignment()}
    found = []
    while any(
        at.offset < ends[at.partition]
        for at in consumer.position(consumer.assignment())
        if ends[at.partition]
    ):
        message = consumer.poll(20)
        assert message is not None and message.error() is None, f"{len(found)} of {ends}"
        found.append(message)
    consumer.close()
    return found


def _at_the_beginning(kafka: Cluster, topic: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap()[0],
            "group.id": f"check-{topic}",
            "auto.offset.reset": "earliest",
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    return consumer


async def test_keys_values_and_headers_arrive_unchanged(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    encoded = base64.b64encode(b"\xff\x00").decode()
    async with serving(make_config(kafka.bootstrap())) as daemon:
        empty = await daemon.post(f"/topics/{name}/messages?sync&key=", "Превед")
        assert empty.status == 200 and empty.json["partition"] == 3
        keyed = await daemon.post(
            f"/topics/{name}/messages?sync&key=foo",
            b"\x00\xff",
            headers={"Content-Type": "application/octet-stream", "x-kafka-foo-BAR": encoded},
        )
        assert keyed.body == b'{\n  "partition": 1,\n  "offset": 0\n}'
        assert (await daemon.post(f"/topics/{name}/messages?sync", "")).status == 200
        form = await daemon.call(
            "POST",
            f"/topics/{name}/messages?sync&key=query",
            data={"msg": "hello form", "key": "bar"},
        )
        assert form.json["partition"] == 2
        answer = await daemon.stub.Produce(
            pb.ProdRq(topic=name, message=b"m", headers=[pb.RecordHeader(key="h", value=b"\xfe")])
        )
        assert answer.partition == 3, "an empty key is a key"
    found = {message.value(): message for message in await asyncio.to_thread(read_all, kafka, name, 5)}
    assert found["Превед".encode()].key() == b""
    assert found[b"\x00\xff"].headers() == [("Foo-Bar", b"\xff\x00")]
    assert found[b""].key() is None
    assert found[b"hello form"].key() == b"bar"
    assert found[b"m"].key() == b"" and found[b"m"].headers() == [("h", b"\xfe")]


async def test_asynchronous_messages_and_their_distribution(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for key in "12345":
            for _ in range(10):
                answer = await daemon.post(f"/topics/{name}/messages?key={key}", "x")
                assert answer.status == 200 and answer.body == b"{}"

        async def ends() -> list[int]:
            found = await daemon.offsets(name, "nobody")
            return [found[number].end for number in range(4)]

        await eventually(ends, lambda found: found == [20, 10, 10, 10])
        for _ in range(100):
            rs = await daemon.stub.Produce(
                pb.ProdRq(topic=name, message=b"y", key_undefined=True, async_mode=True)
            )
            assert (rs.partition, rs.offset) == (-1, -1)
        found = await eventually(ends, lambda found: sum(found) == 150)
        assert all(now > before for now, before in zip(found, [20, 10, 10, 10], strict=True))


@pytest.mark.parametrize("partitions", [4, 12, 64])
async def test_the_hash_partitioner_equals_the_go_original_s(
    kafka: Cluster, name: str, partitions: int
) -> None:
    kafka.create_topic(name, partitions)
    keys = ["", "1", "foo", "bar", "A", "Ключ", *map(str, range(40))]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for key in keys:
            found = await daemon.produce(name, b"x", key.encode())
            assert found[0] == fnv1a_partition(key.encode(), partitions), key


async def test_round_robin_and_random_partitioners(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    for partitioner in ("roundrobin", "random"):
        config = make_config(kafka.bootstrap())
        config.proxies["default"].producer.partitioner = partitioner
        async with serving(config) as daemon:
            found = [(await daemon.produce(name, b"x", b"same key"))[0] for _ in range(60)]
        if partitioner == "roundrobin":
            assert found == [0, 1, 2, 3] * 15
        else:
            assert set(found) == {0, 1, 2, 3}, "random even with a key"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["no_response", "wait_for_local", "wait_for_all"])
async def test_compression_and_required_acks(kafka: Cluster, name: str, compression: str, acks: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].producer.compression = compression
    config.proxies["default"].producer.required_acks = acks
    value = b"abcdefgh" * 500
    async with serving(config) as daemon:
        found = [await daemon.produce(name, value)]
        rest = await daemon.post(f"/topics/{name}/messages?sync", value)
        assert rest.status == 200
        found.append((rest.json["partition"], rest.json["offset"]))
        many = await daemon.stub.ProduceMany(pb.ProdManyRq(topic=name, records=[pb.Record(value=value)]))
        found += [(each.partition, each.offset) for each in many.results]
        v2 = await daemon.post(
            f"/topics/{name}",
            json.dumps({"records": [{"value": base64.b64encode(value).decode()}]}),
            headers={"Content-Type": "application/vnd.kafka.binary.v2+json"},
        )
        found += [(each["partition"], each["offset"]) for each in v2.json["offsets"]]
    # Without an acknowledgement no offset is known: the original's calls answer 0, as the original did.
    expected = [0, 0, -1, None] if acks == "no_response" else [0, 1, 2, 3]
    assert found == [(0, offset) for offset in expected]
    messages = await asyncio.to_thread(read_all, kafka, name, 4)
    assert [message.value() for message in messages] == [value] * 4


async def test_the_size_check(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        path = f"/topics/{name}/messages?sync&key=123"
        assert (await daemon.post(path, b"x" * (1_000_000 - 39))).status == 200
        answer = await daemon.post(path, b"x" * (1_000_000 - 38))
        assert (answer.status, answer.error) == (500, TOO_LARGE)
        header = {"Content-Type": "text/plain", "X-Kafka-A": base64.b64encode(b"12").decode()}
        fits = 1_000_000 - 39 - 13
        assert (await daemon.post(path, b"x" * fits, headers=header)).status == 200
        assert (await daemon.post(path, b"x" * (fits + 1), headers=header)).status == 500
        code, text = await status_of(daemon.stub.Produce(pb.ProdRq(topic=name, message=b"x" * 1_000_000)))
        assert (code, text) == (grpc.StatusCode.INTERNAL, TOO_LARGE)
        answer = await daemon.post(f"/topics/{name}/messages", b"x" * 1_000_001)
        assert (answer.status, answer.body) == (200, b"{}"), "asynchronous: only logged"


async def test_oversized_bodies_are_refused_without_reading_them(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        host, port = daemon.engine.addresses["rest"].split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST /topics/{name}/messages?sync HTTP/1.1\r\nHost: localhost\r\n"
            "Content-Type: text/plain\r\nContent-Length: 99999999\r\n\r\n".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        assert head.startswith(b"HTTP/1.1 413 ")
        writer.close()

        async def endless():  # type: ignore[no-untyped-def]
            for _ in range(64):
                yield b"x" * 65536

        answer = await daemon.call(
            "POST",
            f"/topics/{name}/messages?sync",
            data=endless(),
            headers={"Content-Type": "text/plain"},
        )
        assert answer.status == 413 and "too large" in answer.error


async def test_chunked_bodies_are_accepted(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)

    async def chunks():  # type: ignore[no-untyped-def]
        yield b"one "
        yield b"two"

    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await daemon.call(
            "POST",
            f"/topics/{name}/messages?sync",
            data=chunks(),
            headers={"Content-Type": "text/plain; charset=utf-8"},
        )
        assert answer.status == 200
    [message] = await asyncio.to_thread(read_all, kafka, name, 1)
    assert message.value() == b"one two"


async def test_unknown_topics(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await daemon.post(f"/topics/{name}/messages?sync", "x")
        assert (answer.status, answer.error) == (404, NO_TOPIC)
        answer = await daemon.post(f"/topics/{name}/messages", "x")
        assert (answer.status, answer.body) == (200, b"{}")
        assert await status_of(daemon.stub.Produce(pb.ProdRq(topic=name, message=b"x"))) == (
            grpc.StatusCode.INVALID_ARGUMENT,
            NO_TOPIC,
        )
        kafka.create_topic(name)
        assert (await daemon.post(f"/topics/{name}/messages?sync", "x")).status == 200


@pytest.mark.parametrize(
    ("path", "headers", "text"),
    [
        ("messages", {"Content-Type": "text/html"}, "unsupported content type text/html"),
        ("messages", {"Content-Type": ""}, "unsupported content type "),
        ("messages", {"Content-Type": "application/x-www-form-urlencoded"}, "empty message"),
        (
            "messages?sync",
            {"Content-Type": "text/plain", "X-Kafka-Foo": "?"},
            "Invalid base64 encoding for header: X-Kafka-Foo",
        ),
    ],
)
async def test_bad_requests(kafka: Cluster, name: str, path: str, headers: dict[str, str], text: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await daemon.post(f"/topics/{name}/{path}", "x", headers=headers)
        assert (answer.status, answer.error) == (400, text)


async def test_headers_need_kafka_0_11(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].kafka.version = "0.10.2.1"
    headers = {"Content-Type": "text/plain", "X-Kafka-A": "YQ=="}
    async with serving(config) as daemon:
        answer = await daemon.post(f"/topics/{name}/messages?sync", "x", headers=headers)
        assert answer.status == 400
        assert answer.error.startswith("headers are not supported with this version of Kafka. ")
        assert (await daemon.post(f"/topics/{name}/messages", "x", headers=headers)).status == 200
        code, _ = await status_of(
            daemon.stub.Produce(
                pb.ProdRq(topic=name, message=b"x", headers=[pb.RecordHeader(key="a", value=b"b")])
            )
        )
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert (await daemon.offsets(name, "g"))[0].end == 0


async def test_a_stop_flushes_accepted_messages(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await asyncio.gather(*[daemon.post(f"/topics/{name}/messages", f"{number}") for number in range(500)])
    found = await asyncio.to_thread(read_all, kafka, name, 500)
    assert sorted(int(message.value()) for message in found) == list(range(500))


async def test_a_stop_right_after_asynchronous_produces(kafka: Cluster, name: str) -> None:
    """The drain begins before any message has left the mailbox."""
    kafka.create_topic(name)
    engine = Engine(make_config(kafka.bootstrap()))
    await engine.start()
    cluster = engine.cluster()
    await cluster.produce(name, b"0")
    for number in range(1, 300):
        await cluster.produce_async(name, b"%d" % number)
    assert (await engine.stop()).clean
    found = await asyncio.to_thread(read_all, kafka, name, 300)
    assert sorted(int(message.value()) for message in found) == list(range(300))


async def test_many_callers_keep_order_per_caller(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:

        async def caller(number: int) -> None:
            for step in range(50):
                await daemon.produce(name, b"%d %d" % (number, step))

        await asyncio.gather(*[caller(number) for number in range(32)])
    found = await asyncio.to_thread(read_all, kafka, name, 1600)
    steps: dict[bytes, list[int]] = {}
    for message in found:
        number, step = message.value().split()
        steps.setdefault(number, []).append(int(step))
    assert all(seen == list(range(50)) for seen in steps.values()) and len(steps) == 32


OCTETS = {"Content-Type": "application/octet-stream"}
BINARY = {"Content-Type": "application/vnd.kafka.binary.v2+json"}


def _records(values: list[bytes], *, keyless: int = -1) -> str:
    """A body of the REST v2 API: one record without a key, at index ``keyless``."""
    records = [
        {"value": base64.b64encode(value).decode()} | ({"key": "aw=="} if at != keyless else {})
        for at, value in enumerate(values)
    ]
    return json.dumps({"records": records})


async def test_an_invalid_record_takes_no_other_message_along(kafka: Cluster, name: str) -> None:
    """Kafka refuses the whole batch: one without a key, of a compacted topic, among 200 of other callers."""
    kafka.create_topic(name, **{"cleanup.policy": "compact"})
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for at in range(201):
            key = "" if at == 100 else f"?key={at}"
            assert (await daemon.post(f"/topics/{name}/messages{key}", f"{at}")).status == 200
        answer = await daemon.post(
            f"/topics/{name}", _records([b"0", b"1", b"bad", b"3"], keyless=2), headers=BINARY
        )
        offsets = answer.json["offsets"]
        assert [at for at, each in enumerate(offsets) if each.get("error_code")] == [2], answer.body

        async def end() -> int:
            return (await daemon.offsets(name, "nobody"))[0].end

        await eventually(end, lambda found: found >= 203)
    found = await asyncio.to_thread(read_to_the_end, kafka, name)
    assert sorted(int(each.value()) for each in found) == sorted([*range(100), *range(101, 201), 0, 1, 3])
    assert {offset for each in offsets if (offset := each["offset"]) is not None} <= {
        each.offset() for each in found
    }


async def test_a_batch_larger_than_its_topic_takes_is_taken_apart(kafka: Cluster, name: str) -> None:
    """Each message is small enough; one that is not fails alone."""
    kafka.create_topic(name, **{"max.message.bytes": "20000"})
    noise = random.Random(7).randbytes  # a batch counts as it is compressed
    values = [b"%3d" % at + noise(25_000 if at == 50 else 1_400) for at in range(100)]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await daemon.post(f"/topics/{name}", _records(values), headers=BINARY)
        refused = [each for each in answer.json["offsets"] if each.get("error_code")]
        assert [each["error"] for each in refused] == [TOO_LARGE], answer.body
        sent = [daemon.post(f"/topics/{name}/messages", value, headers=OCTETS) for value in values]
        assert {each.status for each in await asyncio.gather(*sent)} == {200}
        found = await asyncio.to_thread(read_all, kafka, name, 2 * 99)
    alone = [value for at, value in enumerate(values) if at != 50]
    assert sorted(each.value() for each in found) == sorted(2 * alone)
