"""Requests that are small and would cost the daemon much: each is refused with a clear answer, and holds up nobody."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from pixy.proto import kafkapixy_pb2 as pb
from tests.integration.restv1.consumers import Instance
from tests.integration.restv1.support import BINARY_V2, JSON_V2, ask, b64, error, produce
from tests.kafka.cluster import Cluster
from tests.support import Daemon, make_config, serving, status_of

MOST = 0.2
"""Seconds of processor that a refused request may take in the loop's thread, the parsing of its bytes included."""


@asynccontextmanager
async def cheap() -> AsyncIterator[None]:
    """What happens inside costs this thread, in which the daemon's loop runs, little processor time."""
    begun = time.thread_time()
    yield
    assert time.thread_time() - begun < MOST


@pytest.fixture
async def daemon(kafka: Cluster) -> AsyncIterator[Daemon]:
    async with serving(make_config(kafka.bootstrap())) as made:
        yield made


async def test_a_pattern_that_explodes_is_refused(daemon: Daemon, name: str) -> None:
    instance = Instance(daemon, name)
    await instance.create()
    pattern = "((((a{0,30}){0,30}){0,30}){0,30}){0,30}x"
    async with cheap():
        answer = await instance.at("POST", "/subscription", {"topic_pattern": pattern})
    assert error(answer)[:2] == (422, 422) and "topic_pattern" in error(answer)[2]


@pytest.mark.parametrize("kind", [BINARY_V2, JSON_V2])
async def test_a_bomb_of_records_is_refused(daemon: Daemon, name: str, kind: str) -> None:
    body = gzip.compress(b'{"records": [' + b"{}," * 1_000_000 + b"{}]}")
    assert len(body) < 10_000
    async with cheap():
        answer = await daemon.call(
            "POST",
            f"/topics/{name}",
            data=body,
            headers={"Content-Type": kind, "Content-Encoding": "gzip"},
        )
    assert error(answer)[:2] == (413, 413) and "rest.max_gzip_ratio" in error(answer)[2]
    async with cheap():
        plain = b'{"records": [' + b"{}," * 1_000_000 + b"{}]}"
        answer = await ask(daemon, "POST", f"/topics/{name}", plain, content_type=kind)
    assert error(answer)[:2] == (413, 413) and "rest.max_request_records" in error(answer)[2]


async def test_the_most_records_are_taken_and_one_more_is_not(
    daemon: Daemon, kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    most = daemon.engine.config.rest.max_request_records
    answer = await produce(daemon, name, [{"value": b64(b"x")}] * (most + 1))
    assert error(answer)[:2] == (413, 413) and f"at most {most} records" in error(answer)[2]
    answer = await produce(daemon, name, [{"value": b64(b"x")}] * most)
    assert [each["offset"] for each in answer.json["offsets"]] == list(range(most)), (
        "and nothing was written before"
    )


async def test_documents_of_empty_objects_are_refused(daemon: Daemon, name: str) -> None:
    many = b'{"partitions": [' + b"{}," * 1_300_000 + b"{}]}"
    instance = Instance(daemon, name)
    await instance.create()
    async with cheap():
        answer = await ask(
            daemon,
            "POST",
            f"/consumers/{name}/instances/c/assignments",
            many,
            content_type="application/vnd.kafka.v2+json",
        )
    assert answer.status in (404, 413), answer
    body = b"[" + b"{}," * 1_300_000 + b"{}]"
    async with cheap():
        answer = await daemon.post(f"/topics/{name}/offsets?group=g", body[: 4 << 20])
    assert answer.status == 400 and "more than 10000 objects" in answer.error
    offsets = [pb.PartitionOffset(partition=0)] * 20_000
    async with cheap():
        request = pb.SetOffsetsRq(topic=name, group="g", offsets=offsets)
        status, text = await status_of(daemon.stub.SetOffsets(request))
    assert status is grpc.StatusCode.INVALID_ARGUMENT and "too many offsets" in text


LONG = "/consumers/{name}/instances/c"


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        (LONG + "/subscription", b'{"topics": [' + b'"",' * 2_000_000 + b'""]}', "too many elements"),
        (LONG + "/subscription", b'{"topics": [' + b'"t",' * 1_000 + b'"t"]}', "a request may have 1000"),
        (LONG + "/assignments", b'{"partitions": [' + b"null," * 900_000 + b"null]}", "too many elements"),
        (
            LONG + "/positions",
            b'{"offsets": ['
            + b'{"topic":"t","partition":0,"offset":0},' * 10_000
            + b'{"topic":"t","partition":0,"offset":0}]}',
            "a request may have 10000",
        ),
        ("/consumers/{name}", b'{"format": [' + b"[]," * 2_500_000 + b"[]]}", "is not text"),
        (
            "/topics/{name}",
            b'{"records": [' + b'{"value":1},' * 99_000 + b'{"value":1}]}',
            "rest.max_request_records",
        ),
    ],
    ids=["topics", "a topic more", "partitions", "offsets", "option", "records"],
)
async def test_lists_of_many_elements_are_refused(
    daemon: Daemon, name: str, path: str, body: bytes, said: str
) -> None:
    await Instance(daemon, name).create()
    kind = JSON_V2 if "records" in said else "application/vnd.kafka.v2+json"
    path = path.format(name=name)
    async with cheap():
        answer = await ask(daemon, "POST", path, body, content_type=kind)
    assert answer.status in (413, 422) and said in answer.json["message"], answer


async def test_an_option_that_nobody_knows_may_be_anything(daemon: Daemon, name: str) -> None:
    body = b'{"x": [' + b"[]," * 2_500_000 + b'[]], "format": "json", "fetch.min.bytes": 7}'
    async with cheap():
        answer = await ask(
            daemon, "POST", f"/consumers/{name}", body, content_type="application/vnd.kafka.v2+json"
        )
    assert answer.status == 200, answer


async def test_offsets_without_number_are_refused(daemon: Daemon, name: str) -> None:
    for element in (b"null", b"[]", b"1"):
        body = b"[" + (element + b",") * (840_000 if element == b"null" else 1_300_000)
        async with cheap():
            answer = await daemon.post(f"/topics/{name}/offsets?group=g", body[: (4 << 20) - 10] + b"1]")
        assert answer.status == 400 and "more than 10000 objects" in answer.error
    body = b"[" + b"null," * 10_000 + b"null]"
    answer = await daemon.post(f"/topics/{name}/offsets?group=g", body)
    assert answer.status == 400 and "more than 10000 objects" in answer.error
    body = b'[{"metadata": "' + b"x" * (3 << 20) + b'"} x'
    async with cheap():
        answer = await daemon.post(f"/topics/{name}/offsets?group=g", body)
    assert answer.status == 400 and "invalid character 'x' after array element" in answer.error


async def test_a_query_of_many_parameters_is_refused(daemon: Daemon, name: str) -> None:
    path = f"/topics/{name}/partitions/0/records?" + "a&" * 30_000
    async with cheap():
        answer = await ask(daemon, "GET", path, content_type=BINARY_V2)
    assert error(answer)[:2] == (422, 422) and "at most 1000 are read" in error(answer)[2]


async def test_a_form_of_many_parameters_is_refused(daemon: Daemon, name: str) -> None:
    form = b"msg=x&" + b"a&" * 900_000
    async with cheap():
        answer = await daemon.post(
            f"/topics/{name}/messages?sync",
            form,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
    assert answer.status == 400 and answer.error == "too many parameters, at most 1000 are read"


async def test_a_message_with_many_headers_is_refused(daemon: Daemon, name: str) -> None:
    headers = [pb.RecordHeader(key="")] * 100_000
    request = pb.ProdRq(topic=name, message=b"x", headers=headers)
    async with cheap():
        status, text = await status_of(daemon.stub.Produce(request))
    assert status is grpc.StatusCode.INVALID_ARGUMENT and text == "too many headers, a message may have 1000"


async def test_promises_hold_no_room_and_end(kafka: Cluster, name: str) -> None:
    """Twenty connections that promise 16 MiB each, more than rest.max_buffered_bytes together."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.body_timeout = 3.0
    async with serving(config) as daemon:
        host, port = daemon.engine.addresses["rest"].rsplit(":", 1)
        promising = []
        for path in (f"/topics/{name}", f"/topics/{name}/messages?sync"):
            for _ in range(20):
                reader, writer = await asyncio.open_connection(host, int(port))
                kind = BINARY_V2 if path.endswith(name) else "text/plain"
                size = 16 << 20 if path.endswith(name) else 1 << 20
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n\r\n"
                writer.write(head.encode() + b"{")
                await writer.drain()
                promising.append((reader, writer))
        answer = await produce(daemon, name, [{"value": b64(b"x")}])
        assert answer.json["offsets"][0]["offset"] == 0
        for reader, writer in promising:
            status = await asyncio.wait_for(reader.readline(), 30)
            assert b" 400 " in status
            head = await asyncio.wait_for(reader.readuntil(b"}"), 30)
            assert b"it did not arrive within 3 s (`body_timeout`)" in head
            writer.close()
