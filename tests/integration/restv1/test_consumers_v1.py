"""Consumer instances of KIP-80 and v1: the KIP's examples, the tables of options and errors, clients' habits."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from tests.integration.restv1.consumers import Instance, fill
from tests.integration.restv1.support import BINARY_V1, JSON_V1, V1, ask, error
from tests.kafka.cluster import Cluster
from tests.support import make_config, serving

CREATE = b"""{

 "name": "Instance1",

 "format": "binary",

 "auto.offset.reset": "smallest",

 "auto.commit.enable": "false"

}
"""
ACCEPT = "application/vnd.kafka.v1+json, application/vnd.kafka+json, application/json"


async def test_kip80_example_post_consumers_group(kafka: Cluster, name: str) -> None:
    config = make_config(kafka.bootstrap())
    config.allowed_hosts = ["kafkarest1.com"]
    async with serving(config) as daemon:
        answer = await ask(
            daemon, "POST", f"/consumers/{name}/", CREATE, accept=ACCEPT, Host="kafkarest1.com"
        )
    assert (answer.status, answer.headers["Content-Type"]) == (200, V1)
    url = f"http://kafkarest1.com/consumers/{name}/instances/Instance1"
    assert answer.json == {"id": "Instance1", "url": url, "instance_id": "Instance1", "base_uri": url}


async def test_kip80_example_get_consumers_group_instance1_topic(kafka: Cluster, name: str) -> None:
    """The example creates ``Instance1`` and reads from ``instance1``."""
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await ask(daemon, "POST", f"/consumers/{name}/", CREATE, accept=ACCEPT)
        record = {"key": "a2V5", "value": "dmFsdWU="}
        await ask(
            daemon, "POST", f"/topics/{name}/partitions/1", {"records": [record] * 2}, content_type=BINARY_V1
        )
        answer = await ask(daemon, "GET", f"/consumers/{name}/instance1/{name}", accept=BINARY_V1)
        assert (answer.status, answer.headers["Content-Type"]) == (200, BINARY_V1)
        keys = ("key", "value", "partition", "offset")
        assert [{key: found[key] for key in keys} for found in answer.json] == [
            {**record, "partition": 1, "offset": offset} for offset in (0, 1)
        ]
        assert {found["topic"] for found in answer.json} == {name}


async def test_kip80_example_post_consumers_group_instance1_offsets(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 3)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await ask(daemon, "POST", f"/consumers/{name}/", CREATE, accept=ACCEPT)
        await fill(daemon, name, *[b"v"] * 4, partition=1)
        await fill(daemon, name, *[b"v"] * 9, partition=2)
        got = 0
        while got < 13:
            answer = await ask(daemon, "GET", f"/consumers/{name}/instance1/{name}", accept=BINARY_V1)
            got += len(answer.json)
        answer = await ask(daemon, "POST", f"/consumers/{name}/instance1/offsets", accept=V1)
        assert (answer.status, answer.headers["Content-Type"]) == (200, V1)
        # The answer has the last record's offset; the committed offset is the next one.
        assert answer.json == [
            {"topic": name, "partition": 1, "consumed": 3, "committed": 3},
            {"topic": name, "partition": 2, "consumed": 8, "committed": 8},
        ]
        stored = await daemon.offsets(name, name)
        assert {number: stored[number].offset for number in (1, 2)} == {1: 4, 2: 9}
        assert (await ask(daemon, "DELETE", f"/consumers/{name}/instance1")).status == 204


async def test_v1_create_read_commit_delete(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"a", b"b", b"c")
        instance = Instance(daemon, name)
        await instance.create(v1=True, auto_offset_reset="smallest")
        answer = await instance.at("GET", f"/topics/{name}", accept=BINARY_V1)
        assert [(record["value"], record["offset"]) for record in answer.json] == [
            ("YQ==", 0),
            ("Yg==", 1),
            ("Yw==", 2),
        ]
        assert answer.headers["Content-Type"] == BINARY_V1
        answer = await instance.at("POST", "/offsets", accept=V1)
        assert answer.json == [{"topic": name, "partition": 0, "consumed": 2, "committed": 2}]
        assert (await instance.delete()).status == 204
        again = Instance(daemon, name)
        await again.create(v1=True, auto_offset_reset="smallest")
        assert (await again.at("GET", f"/topics/{name}", accept=BINARY_V1)).json == [], (
            "the group continues after the committed record"
        )


async def test_v1_answers_binary_without_an_accept(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"a")
        await Instance(daemon, name).create()
        for accept in (None, "*/*"):
            answer = await ask(daemon, "GET", f"/consumers/{name}/instances/c/topics/{name}", accept=accept)
            assert (answer.status, answer.headers["Content-Type"]) == (200, BINARY_V1)


RESETS = [("smallest", 2), ("earliest", 2), ("largest", 0), ("latest", 0), ("EARLIEST", 2)]


@pytest.mark.parametrize(("word", "records"), RESETS)
async def test_the_values_of_auto_offset_reset(kafka: Cluster, name: str, word: str, records: int) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"a", b"b")
        instance = Instance(daemon, name)
        await instance.create(auto_offset_reset=word)
        await instance.subscribe(name)
        assert len(await instance.records("?timeout=200")) == records


async def test_a_body_may_be_absent_and_a_name_is_generated(kafka: Cluster, name: str) -> None:
    config = make_config(kafka.bootstrap())
    config.rest.node_id = "node-7"
    async with serving(config) as daemon:
        found = set()
        for body in (None, b"", b"{}", b'""', b'{"name": null}', b'{"name": ""}'):
            answer = await ask(daemon, "POST", f"/consumers/{name}", body, accept=V1)
            assert answer.status == 200, answer
            assert re.fullmatch(r"rest-consumer-node-7-[0-9a-f-]{36}", answer.json["id"])
            found.add(answer.json["id"])
        assert len(found) == 6


CREATIONS: list[tuple[Any, int, int, str]] = [
    ({"name": "instances"}, 422, 422, "bad instance name: 'instances' is reserved"),
    ({"name": ".."}, 422, 422, "bad instance name: '..' is reserved"),
    ({"name": "a\nb"}, 422, 422, "bad instance name: must not contain control characters"),
    ({"name": "x" * 256}, 422, 422, "bad instance name: must be 1 to 255 characters"),
    ({"name": 7}, 422, 422, "name: 7 is not text"),
    ({"format": "avro"}, 422, 422, "Invalid format type: avro"),
    ({"format": "xml"}, 422, 422, "Invalid format type: xml"),
    ({"auto.offset.reset": "never"}, 422, 42204, "Invalid value never for configuration auto.offset.reset"),
    ({"responseMinBytes": "many"}, 422, 40001, "Invalid value many for configuration fetch.min.bytes"),
    ({"requestWaitMs": -1}, 422, 40001, "for configuration consumer.request.timeout.ms"),
    (
        {"auto.commit.enable": "perhaps"},
        422,
        40001,
        "Invalid value perhaps for configuration auto.commit.enable",
    ),
    ({"auto.commit.enable": 1}, 422, 40001, "Invalid value 1 for configuration auto.commit.enable"),
    ({"fetch.min.bytes": -5}, 422, 40001, "Invalid value -5 for configuration fetch.min.bytes"),
    (
        {"fetch.min.bytes": "10000001"},
        422,
        40001,
        "for configuration fetch.min.bytes: must be a number from -1",
    ),
    ({"fetch.min.bytes": "many"}, 422, 40001, "Invalid value many for configuration fetch.min.bytes"),
    ({"consumer.request.timeout.ms": "1s"}, 422, 40001, "for configuration consumer.request.timeout.ms"),
    ({"max.poll.records": 0}, 422, 40001, "Invalid value 0 for configuration max.poll.records"),
    ({"isolation.level": "dirty"}, 422, 40001, "Invalid value dirty for configuration isolation.level"),
    ([1], 400, 400, "the body: "),
    (b"{", 400, 400, "the body is not JSON"),
]


@pytest.mark.parametrize(
    ("body", "status", "code", "text"), CREATIONS, ids=[str(row[0])[:40] for row in CREATIONS]
)
async def test_bad_options_of_a_new_instance(
    kafka: Cluster, name: str, body: Any, status: int, code: int, text: str
) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        found = error(await ask(daemon, "POST", f"/consumers/{name}", body, accept=V1, content_type=V1))
        assert found[:2] == (status, code) and text in found[2]


ACCEPTED: list[dict[str, Any]] = [
    {"auto.commit.enable": "true", "fetch.min.bytes": "-1", "consumer.request.timeout.ms": "1000"},
    {
        "auto.commit.enable": True,
        "fetch.min.bytes": 10,
        "consumer.request.timeout.ms": 100,
        "max.poll.records": "7",
    },
    {"enable.auto.commit": False, "isolation.level": "read_uncommitted", "unknown.option": {"a": 1}},
    {"name": None, "id": "older", "format": "JSON", "auto.offset.reset": None},
]


@pytest.mark.parametrize("body", ACCEPTED)
async def test_good_options_of_a_new_instance(kafka: Cluster, name: str, body: dict[str, Any]) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        answer = await ask(daemon, "POST", f"/consumers/{name}", body, accept=V1, content_type=V1)
        assert answer.status == 200, answer
        assert body.get("id", answer.json["id"]) == answer.json["id"]


async def test_errors_of_v1_instances(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-2")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        base = f"/consumers/{name}/instances/c"
        gone = (404, 40403, "Consumer instance not found.")
        for method, path in (
            ("GET", f"{base}/topics/{name}"),
            ("POST", f"{base}/offsets"),
            ("DELETE", base),
            ("GET", f"/consumers/{name}/c/{name}"),
            ("POST", f"/consumers/{name}/c/offsets"),
            ("DELETE", f"/consumers/{name}/c"),
        ):
            assert error(await ask(daemon, method, path, accept=V1)) == gone, (method, path)
        instance = Instance(daemon, name)
        await instance.create()
        assert error(
            await ask(daemon, "POST", f"/consumers/{name}", {"name": "c"}, accept=V1, content_type=V1)
        ) == (
            409,
            40902,
            "Consumer with specified consumer ID already exists in the specified consumer group.",
        )
        read = f"{base}/topics/{name}"
        assert error(await ask(daemon, "GET", f"{base}/topics/{name}-0", accept=V1))[:2] == (404, 40401)
        assert error(await ask(daemon, "GET", read, accept=JSON_V1))[:2] == (406, 40601)
        assert error(await ask(daemon, "GET", read, accept="image/png"))[:2] == (406, 406)
        assert error(await ask(daemon, "GET", f"{read}?max_bytes=x", accept=V1)) == (
            422,
            422,
            "max_bytes: 'x' is not a number",
        )
        assert (await ask(daemon, "GET", read, accept=V1)).status == 200
        found = error(await ask(daemon, "GET", f"{base}/topics/{name}-2", accept=V1))
        assert found == (
            409,
            40901,
            "Consumer cannot subscribe the the specified target because it has already subscribed to other topics.",
        )
        assert error(
            await ask(daemon, "POST", f"/consumers/{name}", accept=V1, content_type="text/xml", body=b"<a/>")
        )[:2] == (415, 415)


async def test_a_topic_named_offsets(kafka: Cluster, name: str) -> None:
    kafka.create_topic("offsets")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, "offsets", b"a")
        await Instance(daemon, name).create()
        answer = await ask(daemon, "GET", f"/consumers/{name}/c/offsets", accept=BINARY_V1)
        assert [record["topic"] for record in answer.json][:1] == ["offsets"]


async def test_the_habits_of_existing_clients(kafka: Cluster, name: str) -> None:
    """``{}`` or an empty string as a body, no Accept, trailing slashes, chunks, Content-Length 0."""
    kafka.create_topic(name)

    async def chunked() -> Any:
        for part in (b'{"name":', b'"c","auto.offset', b'.reset":"smallest"}'):
            yield part
            await asyncio.sleep(0)

    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"a")
        base = f"/consumers/{name}/instances/c"
        gone = await ask(daemon, "DELETE", f"{base}/", b"{}", accept=None, content_type=V1)
        assert gone.status == 404, "delete before create"
        made = await daemon.call(
            "POST", f"/consumers/{name}/", data=chunked(), headers={"Content-Type": V1, "Accept": V1}
        )
        assert made.status == 200, made
        weighed = (
            "application/vnd.kafka.binary.v1+json, application/vnd.kafka+json; q=0.9, application/json; q=0.8"
        )
        answer = await ask(daemon, "GET", f"{base}/topics/{name}/", b"{}", accept=weighed, content_type=V1)
        assert (answer.status, len(answer.json), answer.headers["Content-Type"]) == (200, 1, BINARY_V1)
        for body in (b"", None, b"{}", b'""'):
            answer = await ask(
                daemon,
                "POST",
                f"{base}/offsets/",
                body,
                accept=V1,
                content_type=V1,
                Content_Length=str(len(body or b"")),
            )
            assert (answer.status, answer.json) == (
                200,
                [{"topic": name, "partition": 0, "consumed": 0, "committed": 0}],
            )
        assert (await ask(daemon, "DELETE", f"{base}/", b'""', accept=None)).status == 204
        assert (
            await ask(daemon, "POST", f"/consumers/{name}", {"name": "c"}, accept=V1, content_type=V1)
        ).status == 200


FORWARDED = [
    ({"Host": "a.example"}, "http://a.example"),
    ({"Host": "a.example:8082"}, "http://a.example:8082"),
    ({"X-Forwarded-Host": "lb.example", "X-Forwarded-Proto": "https"}, "https://lb.example"),
    (
        {
            "X-Forwarded-Host": "lb.example, inner",
            "X-Forwarded-Proto": "https,http",
            "X-Forwarded-Port": "8443",
        },
        "https://lb.example:8443",
    ),
    (
        {"X-Forwarded-Host": "lb.example", "X-Forwarded-Proto": "https", "X-Forwarded-Port": "443"},
        "https://lb.example",
    ),
    ({"X-Forwarded-Host": "lb.example", "X-Forwarded-Prefix": "/kafka/"}, "http://lb.example/kafka"),
    ({"X-Forwarded-Host": "lb.example", "X-Forwarded-Proto": "mqtt"}, "http://lb.example"),
    ({"Forwarded": "proto=javascript;host=lb.example"}, "http://lb.example"),
    (
        {"X-Forwarded-Host": "lb.example", "X-Forwarded-Path": "/app/rest/consumers/g"},
        "http://lb.example/app",
    ),
    ({"X-Forwarded-Host": "lb.example", "X-Forwarded-Path": "/app/rest/"}, "http://lb.example/app"),
    ({"Forwarded": 'for=1.2.3.4;proto=https;host="lb.example:444"'}, "https://lb.example:444"),
    ({"Forwarded": "for=1.2.3.4;host=lb.example", "X-Forwarded-Host": "not.this"}, "http://lb.example"),
]


@pytest.mark.parametrize(("headers", "origin"), FORWARDED, ids=[json.dumps(row[0])[:60] for row in FORWARDED])
async def test_base_uri_is_the_address_that_the_client_used(
    kafka: Cluster, name: str, headers: dict[str, str], origin: str
) -> None:
    config = make_config(kafka.bootstrap())
    config.allowed_hosts, config.trusted_proxies = ["here", "a.example"], ["127.0.0.1"]
    async with serving(config) as daemon:
        sent = {"Accept": V1, "Content-Type": V1, "Host": "here", **headers}
        answer = await daemon.call("POST", f"/rest/consumers/{name}", data=b'{"name":"a/b c"}', headers=sent)
        assert answer.json["base_uri"] == f"{origin}/rest/consumers/{name}/instances/a%2Fb%20c"
        assert answer.json["id"] == "a/b c"
        again = await daemon.call(
            "DELETE", f"/rest/consumers/{name}/instances/a%2Fb%20c", headers={"Accept": V1}
        )
        assert again.status == 204, "base_uri leads to the instance"


async def test_base_uri_is_the_advertised_url_if_configured(kafka: Cluster, name: str) -> None:
    config = make_config(kafka.bootstrap())
    config.rest.advertised_url = "https://kafka.example/"
    async with serving(config) as daemon:
        answer = await ask(
            daemon, "POST", f"/clusters/default/consumers/{name}", {"name": "c"}, accept=V1, content_type=V1
        )
        assert answer.json["url"] == f"https://kafka.example/clusters/default/consumers/{name}/instances/c"
