"""Produce batches through the v1/v2 API on a real Kafka."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.integration.restv1.support import (
    BINARY_V1,
    BINARY_V2,
    JSON_V1,
    JSON_V2,
    V1,
    ask,
    b64,
    error,
    fetch,
    produce,
)
from tests.integration.test_produce import read_all
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving


@pytest.mark.parametrize(
    "content_type",
    [
        BINARY_V1,
        V1,
        "application/vnd.kafka+json",
        BINARY_V2,
        "application/vnd.kafka.v2+json",
        "application/json",
    ],
)
async def test_binary_bodies(kafka: Cluster, name: str, content_type: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await produce(
            daemon,
            name,
            [
                {"key": "AP8=", "value": b64(b"a")},
                {"value": ""},
                {"key": None, "value": None, "partition": None},
            ],
            content_type,
        )
        assert answer.status == 200, answer
    found = await asyncio.to_thread(read_all, kafka, name, 3)
    assert [(message.key(), message.value()) for message in found] == [
        (b"\x00\xff", b"a"),
        (None, b""),
        (None, None),
    ]


@pytest.mark.parametrize("content_type", ["application/octet-stream", None])
async def test_content_types_that_v1_reads_as_binary(
    kafka: Cluster, name: str, content_type: str | None
) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for path in (f"/topics/{name}", f"/rest/topics/{name}"):
            answer = await ask(
                daemon, "POST", path, {"records": [{"value": "YQ=="}]}, content_type=content_type
            )
            assert answer.status == 200, answer


@pytest.mark.parametrize("content_type", [JSON_V1, JSON_V2])
async def test_peers_defect_json_values_and_tombstones_are_exact(
    kafka: Cluster, name: str, content_type: str
) -> None:
    """Others store null, 0, false, "", {} and [] as empty bytes or as the text null, or refuse them."""
    kafka.create_topic(name)
    texts = [
        "null",
        "0",
        "false",
        '""',
        "{}",
        "[]",
        "1.10",
        '{"b": 1, "a": "\\u00e9"}',
        "12345678901234567890123",
    ]
    body = '{"records":[' + ",".join(f'{{"key": {text}, "value" : {text}}}' for text in texts) + "]}"
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await ask(daemon, "POST", f"/topics/{name}", body.encode(), content_type=content_type)
        assert answer.status == 200, answer
        shown = await ask(daemon, "GET", f"/topics/{name}/partitions/0/records?offset=0", accept=content_type)
        assert shown.headers["Content-Type"] == content_type
    found = await asyncio.to_thread(read_all, kafka, name, len(texts))
    stored = [
        None if text == "null" else text.replace(": ", ":").replace(", ", ",").encode() for text in texts
    ]
    assert [message.value() for message in found] == stored == [message.key() for message in found]
    assert shown.json == [
        {
            "topic": name,
            "key": json.loads(text),
            "value": json.loads(text),
            "partition": 0,
            "offset": at,
            "timestamp": record["timestamp"],
        }
        for at, (text, record) in enumerate(zip(texts, shown.json, strict=True))
    ]
    assert b"12345678901234567890123" in shown.body and b"1.10" in shown.body, "numbers keep their digits"


async def test_headers_and_timestamps_are_written_and_read(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    then = round(time.time() * 1000) - 60_000  # within the topic's retention
    headers = [{"key": "a", "value": "/w=="}, {"key": "a", "value": None}, {"key": "b", "value": ""}]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for content_type, value in ((BINARY_V2, "YQ=="), (JSON_V1, {"x": 1})):
            answer = await produce(
                daemon,
                name,
                [{"value": value}, {"value": value, "headers": headers, "timestamp": then}],
                content_type,
            )
            assert answer.status == 200, answer
        found = await fetch(daemon, name, 0, 0)
    messages = await asyncio.to_thread(read_all, kafka, name, 4)
    for at in (1, 3):
        assert messages[at].headers() == [("a", b"\xff"), ("a", None), ("b", b"")]
        assert messages[at].timestamp()[1] == found[at]["timestamp"] == then
        assert found[at]["headers"] == headers
    assert "headers" not in found[0] and messages[0].headers() is None


async def test_a_record_goes_to_its_partition_and_order_is_kept(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    records = [{"value": b64(b"%d" % at), "partition": at % 4} for at in range(400)]
    mixed = [
        {"value": b64(b"m%d" % at), **({"partition": 2} if at % 2 else {"key": b64(b"D")})}
        for at in range(50)
    ]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await produce(daemon, name, records)
        assert [entry["partition"] for entry in answer.json["offsets"]] == [at % 4 for at in range(400)]
        offsets = [entry["offset"] for entry in answer.json["offsets"]]
        assert offsets == [at // 4 for at in range(400)]
        answer = await produce(daemon, name, mixed)
        by_partition: dict[int, list[int]] = {}
        for entry in answer.json["offsets"]:
            by_partition.setdefault(entry["partition"], []).append(entry["offset"])
        assert all(each == sorted(each) for each in by_partition.values()), "in the request's order"
        assert {entry["partition"] for entry in answer.json["offsets"][1::2]} == {2}


async def test_round_robin_of_a_batch(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].producer.partitioner = "roundrobin"
    async with serving(config) as daemon:
        answer = await produce(daemon, name, [{"value": ""}] * 8)
        assert [entry["partition"] for entry in answer.json["offsets"]] == [0, 1, 2, 3] * 2


async def test_a_bad_record_does_not_affect_the_others(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await produce(
            daemon,
            name,
            [
                {"value": "YQ=="},
                {"value": "not base64"},
                {"value": "Yg==", "partition": 7},
                {"value": b64(b"x" * 1_000_001)},
                {"value": "Yw=="},
            ],
            BINARY_V1,
        )
        assert answer.status == 200
        entries = answer.json["offsets"]
        assert [entry["error_code"] for entry in entries] == [None, 422, 40402, 50002, None]
        assert entries[1]["error"] == "Record value contains invalid base64 encoding"
        assert entries[2]["error"] == "Partition not found."
        assert "Message was too large" in entries[3]["error"]
        assert all(entry["offset"] is None and entry["partition"] is None for entry in entries[1:4])
    found = await asyncio.to_thread(read_all, kafka, name, 2)
    assert {message.value() for message in found} == {b"a", b"c"}


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b'{"records":[]}', BINARY_V1, (422, 422, "records may not be empty")),
        (b"{}", BINARY_V2, (422, 422, "records may not be empty")),
        (b"", BINARY_V2, (422, 422, "records may not be empty")),
        (b'""', JSON_V2, (422, 422, "records may not be empty")),
        (b'{"records":null}', JSON_V2, (422, 422, "records may not be empty")),
        (
            b'{"records":[{"value":"!"}]}',
            BINARY_V1,
            (422, 422, "Record value contains invalid base64 encoding"),
        ),
        (
            b'{"records":[{"key":"!","value":""}]}',
            BINARY_V1,
            (422, 422, "Record key contains invalid base64 encoding"),
        ),
        (b'{"records":[{"value":"!"}]}', BINARY_V2, (400, 400, 'data="!" is not a base64 string.')),
        (b'{"records":[{"value":17}]}', BINARY_V2, (400, 400, "data=17 is not a base64 string.")),
        (b'{"records":"x"}', BINARY_V2, (422, 422, "records: Expected `array | null`, got `str`")),
        (b'{"records":[1]}', BINARY_V2, (422, 422, "records[0]: Expected `object`, got `int`")),
        (
            b'{"records":[{"value":"","partition":"1"}]}',
            JSON_V2,
            (422, 422, "records[0].partition: Expected `int | null`, got `str`"),
        ),
        (
            b'{"records":[{"value":"","partition":-1}]}',
            BINARY_V2,
            (422, 422, "records[0].partition: Expected `int` >= 0"),
        ),
        (
            b'{"records":[{"value":"","headers":[{"value":""}]}]}',
            BINARY_V2,
            (422, 422, "records[0].headers[0]: Object missing required field `key`"),
        ),
        (
            b'{"records":[{"value":"","timestamp":true}]}',
            BINARY_V2,
            (422, 422, "records[0].timestamp: Expected `int | null`, got `bool`"),
        ),
        *[
            (
                b'{"records":[{"value":""},{"key":"","valeu":""}]}',
                content_type,
                (422, 422, "records[1]: Object contains unknown field `valeu`"),
            )
            for content_type in (BINARY_V1, BINARY_V2, JSON_V1, JSON_V2)
        ],
        (
            b'{"records":[{"value":"","headers":[{"key":"a","valeu":""}]}]}',
            BINARY_V2,
            (422, 422, "records[0].headers[0]: Object contains unknown field `valeu`"),
        ),
        (b"[]", BINARY_V2, (400, 400, "the body: Expected `object`, got `array`")),
    ],
)
async def test_bad_requests(
    kafka: Cluster, name: str, body: bytes, content_type: str, expected: tuple[int, int, str]
) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        assert (
            error(await ask(daemon, "POST", f"/topics/{name}", body, content_type=content_type)) == expected
        )


@pytest.mark.parametrize(
    "body", [b'{"records":', b"garbage", b"\xff\xfe", b'{"records":[{"value":"\xff"}]}', b"[" * 50_000]
)
@pytest.mark.parametrize("content_type", [BINARY_V2, JSON_V2])
async def test_malformed_json_is_400(kafka: Cluster, name: str, body: bytes, content_type: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await ask(daemon, "POST", f"/topics/{name}", body, content_type=content_type)
        assert error(answer)[:2] == (400, 400), answer


async def test_a_request_or_record_that_is_too_large_is_413(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.max_request_bytes = 3_000_000
    async with serving(config) as daemon:
        lone = await produce(daemon, name, [{"value": b64(b"x" * 1_000_001)}])
        assert error(lone)[:2] == (413, 413) and "Message was too large" in error(lone)[2]
        body = await produce(daemon, name, [{"value": b64(b"x" * 900_000)}] * 3)
        assert error(body)[:2] == (413, 413) and "rest.max_request_bytes" in error(body)[2]

        async def endless():  # type: ignore[no-untyped-def]
            for _ in range(100):
                yield b" " * 65536

        chunked = await daemon.call(
            "POST", f"/topics/{name}", data=endless(), headers={"Content-Type": BINARY_V2}
        )
        assert error(chunked)[:2] == (413, 413)


async def test_schema_formats_are_an_honest_415(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for kind in ("avro.v1", "avro.v2", "jsonschema.v2", "protobuf.v2"):
            answer = await produce(daemon, name, [{"value": 1}], f"application/vnd.kafka.{kind}+json")
            assert error(answer)[:2] == (415, 415) and "schema registry" in error(answer)[2]


async def test_peers_defect_a_produce_to_a_missing_topic_is_a_prompt_404(kafka: Cluster, name: str) -> None:
    """Others time out and answer 50003."""
    async with serving(make_config(kafka.bootstrap())) as daemon:
        async with asyncio.timeout(5):
            answer = await produce(daemon, name, [{"value": ""}])
        assert error(answer) == (404, 40401, "Topic not found.")
        assert error(await produce(daemon, "bad%20name", [{"value": ""}]))[0] == 422
        kafka.create_topic(name)
        assert (await produce(daemon, name, [{"value": ""}])).status == 200, (
            "and it is noticed when it is made"
        )
        path = f"/topics/{name}/partitions/"
        for partition in ("1", "x", "-1", "99999999999"):
            answer = await ask(
                daemon, "POST", path + partition, {"records": [{"value": ""}]}, content_type=BINARY_V2
            )
            assert error(answer) == (404, 40402, "Partition not found.")
        clash = await ask(
            daemon, "POST", path + "0", {"records": [{"value": "", "partition": 1}]}, content_type=BINARY_V2
        )
        assert error(clash)[0] == 422 and "records[0].partition" in error(clash)[2]


async def test_peers_defect_many_small_requests_share_batches(kafka: Cluster, name: str) -> None:
    """Others send each request as its own batch, 226 messages a second."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(daemon, name, [{"value": ""}])
        answers = await asyncio.gather(
            *[produce(daemon, name, [{"value": b64(b"%d" % at)}]) for at in range(200)]
        )
    assert {answer.status for answer in answers} == {200}
    offsets = sorted(answer.json["offsets"][0]["offset"] for answer in answers)
    assert offsets == list(range(1, 201)), "each record has its own offset"


async def test_a_full_producer_is_429_with_retry_after(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].producer.channel_buffer_size = 1
    async with serving(config) as daemon:
        answers = await asyncio.gather(*[produce(daemon, name, [{"value": ""}] * 50) for _ in range(50)])
        refused = [answer for answer in answers if answer.status != 200]
        assert refused and {answer.status for answer in refused} == {429}
        assert all(answer.headers["Retry-After"] == "1" for answer in refused)


async def test_no_permission_is_403_with_the_entries(kafka: Cluster, name: str) -> None:
    """The REST proxies' rule: an authorization error makes the status 403, and the entries show the failed records."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        from pixy.errors import KafkaError

        denied = KafkaError("kafka server: denied", 29, "TOPIC_AUTHORIZATION_FAILED")
        cluster = daemon.engine.cluster()

        async def partly_denied(topic: str, records: list[object]) -> list[object]:
            return [(0, 1), denied]

        cluster.produce_many = partly_denied  # type: ignore[method-assign, assignment]
        answer = await produce(daemon, name, [{"value": ""}] * 2)
        assert answer.status == 403
        assert [entry["error_code"] for entry in answer.json["offsets"]] == [None, 40301]
