"""Odd records on a real Kafka, through every API: none stops a consumer, ends the process, or loses what it holds."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from base64 import b64decode
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer

from pixy.kafka import settings
from pixy.kafka.bulk import read_range
from pixy.kafka.record_headers import HeaderReader
from pixy.proto import kafkapixy_pb2 as pb
from pixy.wire.batch import Builder
from pixy.wire.client import PartitionProducer
from tests.integration.restv1.consumers import Instance
from tests.integration.restv1.support import BINARY_V1, BINARY_V2, JSON_V2, ask, b64, error, fetch, produce
from tests.kafka.cluster import Cluster
from tests.support import ROOT, eventually, make_config, serving, status_of

Headers = list[tuple[str, bytes | None]]

HEADERS: list[Headers] = [
    [("", b"no name"), ("", None)],
    [("null", None), ("empty", b"")],
    [("twice", b"1"), ("twice", b"2"), ("twice", b"1")],
    [(f"h{n}", b"%d" % n) for n in range(1000)],
    [("huge", b"x" * 900_000)],
    [("ok", b"1"), ("b\udcffd", b"\xff\x00"), ("\udcc3", None), ("ключ", b"2")],
    [("any", bytes(range(256)))],
    [("\udcff", b"last")],
]
"""Names with bytes that are not UTF-8 as surrogates (PEP 383)."""


def shown(headers: Headers, null: bytes | None = None) -> Headers:
    """The headers as an answer has them; ``null`` stands for a null value."""
    return [
        (name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), null if value is None else value)
        for name, value in headers
    ]


def write(kafka: Cluster, topic: str, *records: Headers) -> None:
    """Write records with these headers by our wire library, each in a batch of its own."""
    with PartitionProducer(kafka.bootstrap(), topic, 0) as producer:
        for at, headers in enumerate(records):
            batch = Builder().add(b'"k"', b"%d" % at, headers).build()
            assert producer.produce(batch).error_code == 0


async def test_odd_headers_in_group_consumption(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    write(kafka, name, *HEADERS)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for at, headers in enumerate(HEADERS):
            message = await daemon.consume(name, "grpc", auto_ack=True)
            assert (message.offset, message.message) == (at, b"%d" % at)
            assert [(each.key, each.value) for each in message.headers] == shown(headers, b"")
        for at, headers in enumerate(HEADERS):
            answer = await daemon.get(f"/topics/{name}/messages?group=rest")
            assert answer.json["offset"] == at
            assert [
                (each["key"], b64decode(each["value"] or "")) for each in answer.json["headers"]
            ] == shown(headers, b"")


async def test_a_message_with_odd_headers_is_delivered_again_with_them(kafka: Cluster, name: str) -> None:
    """The second call of ``headers()`` on one message crashed the process."""
    kafka.create_topic(name)
    write(kafka, name, HEADERS[5])
    async with serving(make_config(kafka.bootstrap(), ack_timeout=0.3)) as daemon:
        for _ in range(3):
            message = await daemon.consume(name, "g", no_ack=True)
            assert [(each.key, each.value) for each in message.headers] == shown(HEADERS[5], b"")


async def test_odd_headers_in_reads_of_many_records(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    write(kafka, name, *HEADERS)
    wanted = [shown(headers) for headers in HEADERS]

    def check(records: list[dict[str, Any]]) -> None:
        assert [record["offset"] for record in records] == list(range(len(HEADERS)))
        for record, headers in zip(records, wanted, strict=True):
            assert "error" not in record, record
            found = [
                (each["key"], None if each["value"] is None else b64decode(each["value"]))
                for each in record["headers"]
            ]
            assert found == headers

    async with serving(make_config(kafka.bootstrap())) as daemon:
        for accept in (BINARY_V1, BINARY_V2, JSON_V2):
            check(await fetch(daemon, name, 0, 0, accept, "&max_bytes=5000000&timeout=5000"))
        instance = Instance(daemon, name)
        await instance.create(auto_commit_enable=False)
        await instance.subscribe(name)
        found: list[dict[str, Any]] = []
        while len(found) < len(HEADERS):
            found += await instance.records("?timeout=5000")
        check(found)


async def test_headers_that_cannot_be_read_again_are_left_out(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_args: Any) -> None:
        raise OSError("no route to the broker")

    monkeypatch.setattr(HeaderReader, "_open", refuse)
    kafka.create_topic(name)
    write(kafka, name, [("fine", b"1")], HEADERS[5], [("fine", b"2")])
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for at in range(3):
            message = await daemon.consume(name, "g", auto_ack=True)
            assert message.offset == at and len(message.headers) == (at != 1)
        records = await fetch(daemon, name, 0, 0)
        assert [(each["offset"], each.get("error_code"), each["value"]) for each in records] == [
            (0, None, b64(b"0")),
            (1, 40801, b64(b"1")),
            (2, None, b64(b"2")),
        ]
    assert f"{name}/0: delivering 1 messages, from offset 1 on, without their headers" in caplog.text
    assert "no route to the broker" in caplog.text


async def test_a_batch_program_reads_odd_headers(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    write(kafka, name, *HEADERS)
    proxy = make_config(kafka.bootstrap()).proxies["default"]
    made = settings.common(proxy)
    found = await asyncio.to_thread(lambda: list(read_range(made, name, 0, 0, len(HEADERS))))
    assert [list(each.headers or ()) for each in found] == [shown(headers) for headers in HEADERS]


async def test_a_client_writes_odd_headers(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    wanted = [headers for headers in HEADERS if headers == shown(headers)]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for headers in wanted:
            await daemon.stub.Produce(
                pb.ProdRq(
                    topic=name, headers=[pb.RecordHeader(key=key, value=value) for key, value in headers]
                )
            )
            views = [{"key": key, "value": None if value is None else b64(value)} for key, value in headers]
            answer = await produce(daemon, name, [{"value": "", "headers": views}])
            assert answer.json["offsets"][0]["error"] is None
        for headers in wanted:
            for null in (b"", None):  # protobuf has no null
                message = await daemon.consume(name, "g", auto_ack=True)
                assert [(each.key, each.value) for each in message.headers] == shown(headers, b"")
                read = await fetch(daemon, name, 0, message.offset, query="&max_bytes=0")
                assert [(each["key"], each["value"]) for each in read[0]["headers"]] == [
                    (key, None if value is None else b64(value)) for key, value in shown(headers, null)
                ]


async def test_header_names_that_cannot_be_read_back_are_refused(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        nul = pb.ProdRq(topic=name, headers=[pb.RecordHeader(key="a\0b", value=b"v")])
        code, text = await status_of(daemon.stub.Produce(nul))
        assert code is grpc.StatusCode.INVALID_ARGUMENT and "must not contain NUL" in text
        raw = nul.SerializeToString().replace(b"a\0b", b"a\xffb")
        async with grpc.aio.insecure_channel(daemon.engine.addresses["grpc"]) as channel:
            code, text = await status_of(channel.unary_unary("/KafkaPixy/Produce")(raw))
        assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "malformed request: not a ProdRq")

        odd = {"value": "", "headers": [{"key": "a\0b", "value": ""}]}
        refused = error(await produce(daemon, name, [odd]))
        assert refused == (422, 422, "bad header name: 'a\\x00b' must not contain NUL")
        answer = await produce(daemon, name, [odd, {"value": ""}])
        assert [each["error_code"] for each in answer.json["offsets"]] == [422, None]
        for bad in (b"\\ud800", b"\xff"):
            body = json.dumps({"records": [{"value": "", "headers": [{"key": "@", "value": ""}]}]}).encode()
            answer = await ask(
                daemon, "POST", f"/topics/{name}", body.replace(b"@", bad), content_type=BINARY_V2
            )
            assert error(answer)[:2] == (400, 400)
        large = {"value": "", "headers": [{"key": "h", "value": b64(b"x" * 2_000_000)}]}
        assert error(await produce(daemon, name, [large]))[:2] == (413, 413)


_FREED = """
import gc, sys
from confluent_kafka import Consumer, TopicPartition
from pixy.kafka.record_headers import UNREADABLE, headers_of
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "g"})
consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
seen = 0
while seen < 10_000:  # often enough for specialized calls
    for message in consumer.consume(500, 1.0):
        assert message.error() is None, message.error()
        assert headers_of(message) is UNREADABLE and headers_of(message) is UNREADABLE
        message.set_headers([("a", b"1")])
        assert headers_of(message) == [("a", b"1")]
        seen += 1
    gc.collect()
consumer.close()
print(seen, UNREADABLE)
"""


def test_messages_with_unreadable_headers_are_freed_without_a_crash(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    with PartitionProducer(kafka.bootstrap(), name, 0) as producer:
        for _ in range(10):
            builder = Builder()
            for _ in range(1000):
                builder.add(
                    b"k", b"v", [("ok", b"1"), ("\udcff", b"2"), ("ok", None), ("\udcfe\udcff", None)]
                )
            assert producer.produce(builder.build()).error_code == 0
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", _FREED, kafka.bootstrap()[0], name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout) == (0, "10000 []\n"), ended.stderr


LARGE = b"x" * 990_000
ODD: list[tuple[bytes | None, bytes | None]] = [
    (None, None),
    (b"", b""),
    (b"k", None),
    (None, b""),
    (b"", None),
    (b"\xff\x00", b"\x00"),
    (b"k", LARGE),
]
"""Keys and values."""


async def test_odd_keys_values_and_timestamps(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    with PartitionProducer(kafka.bootstrap(), name, 0) as producer:
        for key, value in ODD:
            assert producer.produce(Builder().add(key, value, timestamp=-1).build()).error_code == 0
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for key, value in ODD:
            message = await daemon.consume(name, "grpc", auto_ack=True)
            assert (message.key_undefined, message.key_value) == (key is None, key or b"")
            assert message.message == (value or b""), "protobuf has no null"
            answer = await daemon.get(f"/topics/{name}/messages?group=rest")
            assert (answer.json["key"], answer.json["value"]) == tuple(
                None if each is None else b64(each) for each in (key, value)
            )
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)
        read: list[dict[str, Any]] = []
        while len(read) < len(ODD):
            read += await instance.records("?timeout=5000&max_bytes=4000000")
        for records in (read, await fetch(daemon, name, 0, 0, query="&max_bytes=4000000&timeout=5000")):
            assert [(each["key"], each["value"]) for each in records] == [
                (None if key is None else b64(key), None if value is None else b64(value))
                for key, value in ODD
            ]
            assert not any("timestamp" in each for each in records), "they have none"


async def test_aborted_and_open_transactions(kafka: Cluster, name: str) -> None:
    """Records of aborted transactions are never delivered, those of open ones wait, and control records leave holes."""
    kafka.create_topic(name)

    def transactional(at: int) -> Producer:
        made = Producer(
            {"bootstrap.servers": kafka.bootstrap()[0], "transactional.id": f"{name}-{at}", "linger.ms": 0}
        )
        made.init_transactions(30)
        return made

    def prepare() -> Producer:
        first, second = transactional(1), transactional(2)
        for value, end in ((b"aborted", first.abort_transaction), (b"done", first.commit_transaction)):
            first.begin_transaction()
            first.produce(name, value, partition=0)
            first.flush(30)
            end(30)
        second.begin_transaction()
        second.produce(name, b"open", partition=0)
        second.flush(30)
        first.begin_transaction()
        first.produce(name, b"after", partition=0)
        first.commit_transaction(30)
        return second

    still_open = await asyncio.to_thread(prepare)
    async with serving(make_config(kafka.bootstrap(), long_polling_timeout=1.5)) as daemon:
        message = await daemon.consume(name, "g", auto_ack=True)
        assert (message.offset, message.message) == (2, b"done")
        code, _ = await status_of(daemon.consume(name, "g", auto_ack=True))
        assert code is grpc.StatusCode.NOT_FOUND, "an open transaction holds up what comes after it"
        by_level = {}
        for level, wanted in (
            ("read_committed", [b"done"]),
            ("read_uncommitted", [b"aborted", b"done", b"open", b"after"]),
        ):
            by_level[level] = instance = Instance(daemon, f"{name}-{level}")
            await instance.create(isolation_level=level)
            await instance.subscribe(name)
            assert await instance.values("?timeout=5000") == wanted
        assert [each["offset"] for each in await fetch(daemon, name, 0, 0)] == [2]
        await asyncio.to_thread(still_open.abort_transaction, 30)
        message = await daemon.consume(name, "g", auto_ack=True)
        assert (message.offset, message.message) == (5, b"after")
        assert await by_level["read_committed"].values("?timeout=5000") == [b"after"]
        assert await by_level["read_uncommitted"].values("?timeout=200") == []
        assert [each["offset"] for each in await fetch(daemon, name, 0, 0)] == [2, 5]


async def test_holes_of_compaction(kafka: Cluster, name: str) -> None:
    kafka.create_topic(
        name,
        **{
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.001",
            "delete.retention.ms": "0",
        },
    )
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for at in range(30):
            await daemon.produce(name, b"%d" % at, b"k%d" % (at % 3))

        async def offsets() -> list[int]:
            await daemon.produce(name, b"end", b"end")  # rolls the segment
            return [each["offset"] for each in await fetch(daemon, name, 0, 0)]

        left = await eventually(offsets, lambda found: found[0] >= 27, within=60)
        for at in left[:3]:
            message = await daemon.consume(name, "g", auto_ack=True)
            assert (message.offset, message.message) == (at, b"%d" % at)
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)
        assert (await instance.values("?timeout=5000"))[:3] == [b"27", b"28", b"29"]
        assert (await instance.at("POST", "/offsets")).status == 200
