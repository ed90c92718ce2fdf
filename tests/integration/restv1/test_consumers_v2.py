"""Consumer instances of v2: every call with its status, codes and body."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.integration.restv1.consumers import Instance, fill
from tests.integration.restv1.support import BINARY_V2, JSON_V2, V2, ask, error, produce
from tests.kafka.cluster import Cluster
from tests.support import eventually, make_config, serving


async def test_subscription(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-2")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"a")
        await fill(daemon, f"{name}-2", b"b")
        instance = Instance(daemon, name)
        await instance.create()
        assert (await instance.at("GET", "/subscription")).json == {"topics": []}
        await instance.subscribe(name)
        await instance.subscribe(name)
        assert (await instance.at("GET", "/subscription")).json == {"topics": [name]}
        assert await instance.values() == [b"a"]
        await instance.subscribe(name, f"{name}-2")
        assert (await instance.at("GET", "/subscription")).json == {"topics": [name, f"{name}-2"]}
        assert await instance.values("?timeout=10000") == [b"b"], "the first topic continues at its position"
        answer = await instance.at("DELETE", "/subscription")
        assert (answer.status, answer.body) == (204, b"")
        assert (await instance.at("GET", "/subscription")).json == {"topics": []}
        assert (await instance.at("GET", "/assignments")).json == {"partitions": []}
        found = error(await instance.at("GET", "/records", accept=BINARY_V2))
        assert found[:2] == (409, 40903) and found[2].startswith("Illegal state: ")


async def test_a_pattern_matches_whole_names_and_new_topics(kafka: Cluster, name: str) -> None:
    for end in ("-a1", "-b", "-a1-more"):
        kafka.create_topic(name + end)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for end in ("-a1", "-b", "-a1-more"):
            await fill(daemon, name + end, end.encode())
        instance = Instance(daemon, name)
        await instance.create()
        assert (
            await instance.at("POST", "/subscription", {"topic_pattern": rf"{name}-(?:a)\d"})
        ).status == 204
        assert await instance.values() == [b"-a1"]
        assert (await instance.at("GET", "/subscription")).json == {"topics": [f"{name}-a1"]}
        kafka.create_topic(f"{name}-a2")
        await fill(daemon, f"{name}-a2", b"-a2")
        await eventually(lambda: instance.values("?timeout=2000"), lambda found: found == [b"-a2"], within=40)


async def test_assignments(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 3)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for number in range(3):
            await fill(daemon, name, b"%d" % number, partition=number)
        one, two = Instance(daemon, name, "one"), Instance(daemon, name, "two")
        for instance in (one, two):
            await instance.create()
            wanted = {"partitions": [{"topic": name, "partition": 2}, {"topic": name, "partition": 0}]}
            assert (await instance.at("POST", "/assignments", wanted)).status == 204
            assert (await instance.at("GET", "/assignments")).json == {
                "partitions": [{"topic": name, "partition": 0}, {"topic": name, "partition": 2}]
            }
            found: list[bytes] = []
            while len(found) < 2:
                found += await instance.values()
            assert sorted(found) == [b"0", b"2"], "even though the other instance consumes them too"
        unknown = {"partitions": [{"topic": name, "partition": 3}]}
        assert error(await one.at("POST", "/assignments", unknown))[:2] == (404, 40402)
        found_error = error(await one.at("POST", "/subscription", {"topics": [name]}))
        assert found_error == (
            409,
            40903,
            "Illegal state: Subscription to topics, partitions and pattern are mutually exclusive",
        )
        assert (await one.at("POST", "/assignments", {"partitions": []})).status == 204
        assert (await one.at("POST", "/subscription", {"topics": [name]})).status == 204


async def test_commit_and_committed(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"v"] * 10)
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)
        assert len(await instance.records("?max_bytes=3")) == 3
        answer = await instance.at("POST", "/offsets")
        assert (answer.status, answer.body) == (200, b"[]")
        assert await instance.committed(name, 2) == {0: 3}, (
            "partition 1 has no committed offset and is left out"
        )
        place = {"topic": name, "partition": 0, "offset": 6, "metadata": "mine"}
        answer = await instance.at("POST", "/offsets", {"offsets": [place]})
        assert (answer.status, answer.body) == (200, b"[]")
        answer = await instance.at("GET", "/offsets", {"partitions": [{"topic": name, "partition": 0}]})
        assert answer.json == {"offsets": [{"topic": name, "partition": 0, "offset": 7, "metadata": "mine"}]}
        for body in (None, b"", b"{}"):
            assert error(await ask(daemon, "GET", f"{instance.base}/offsets", body, content_type=V2)) == (
                404,
                40402,
                "Partition not found.",
            )


async def test_a_commit_can_be_answered_204(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.commit_status = 204
    async with serving(config) as daemon:
        instance = Instance(daemon, name)
        await instance.create()
        answer = await instance.at("POST", "/offsets")
        assert (answer.status, answer.body) == (204, b"")


async def test_positions(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for at in range(10):
        producer.produce(name, b"%d" % at, timestamp=1_000_000 + at * 1000)
    producer.flush()
    partition = {"topic": name, "partition": 0}
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)

        async def seek(path: str, body: Any) -> list[bytes]:
            answer = await instance.at("POST", f"/positions{path}", body)
            assert (answer.status, answer.body) == (204, b""), answer
            return await instance.values("?timeout=2000")

        everything = [b"%d" % at for at in range(10)]
        assert await seek("", {"offsets": [{**partition, "offset": 7, "metadata": ""}]}) == everything[7:]
        assert await seek("/beginning", {"partitions": [partition]}) == everything
        for time_ in (
            datetime.fromtimestamp(1004, UTC).isoformat(),
            "1970-01-01T00:16:44Z",
            1_003_001,
            "1003001",
        ):
            assert await seek("", {"timestamps": [{**partition, "timestamp": time_}]}) == everything[4:]
        assert await seek("", {"timestamps": [{**partition, "timestamp": "2999-01-01T00:00:00Z"}]}) == []
        assert await seek("/end", {"partitions": [partition]}) == []
        await fill(daemon, name, b"new")
        assert await instance.values("?timeout=2000") == [b"new"]
        for path, body, status, code in (
            ("", {"offsets": [{**partition, "partition": 5, "offset": 1}]}, 409, 40903),
            ("/beginning", {"partitions": [{"topic": f"{name}x", "partition": 0}]}, 409, 40903),
            ("", {"offsets": [{**partition, "offset": -1}]}, 422, 422),
            ("", {"timestamps": [{**partition, "timestamp": "yesterday"}]}, 422, 422),
            ("/end", {"partitions": [{"topic": name}]}, 422, 422),
        ):
            found = error(await instance.at("POST", f"/positions{path}", body))
            assert found[:2] == (status, code), (path, body, found)


async def test_a_seek_right_after_the_subscription_counts_in_every_partition(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name, partitions=100)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for at in range(200):
        producer.produce(name, b"%d" % at, partition=at % 100)
    producer.flush()
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)
        offsets = [{"topic": name, "partition": number, "offset": 1} for number in range(100)]
        assert (await instance.at("POST", "/positions", {"offsets": offsets})).status == 204
        found: list[dict[str, Any]] = []
        while len(found) < 100:
            found += await instance.records("?timeout=5000")
        assert {(each["partition"], each["offset"]) for each in found} == {
            (number, 1) for number in range(100)
        }


async def test_unknown_instances_and_bad_bodies(kafka: Cluster, name: str) -> None:
    gone = (404, 40403, "Consumer instance not found.")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        part = {"partitions": [{"topic": "t", "partition": 0}]}
        calls: list[tuple[str, str, Any]] = [
            ("POST", "/subscription", {"topics": ["t"]}),
            ("GET", "/subscription", None),
            ("DELETE", "/subscription", None),
            ("POST", "/assignments", part),
            ("GET", "/assignments", None),
            ("GET", "/records", None),
            ("POST", "/offsets", None),
            ("GET", "/offsets", part),
            ("POST", "/positions", {"offsets": [{"topic": "t", "partition": 0, "offset": 1}]}),
            ("POST", "/positions/beginning", part),
            ("POST", "/positions/end", part),
            ("POST", "/subscription", {}),
            ("POST", "/assignments", {}),
            ("POST", "/offsets", [1]),
            ("DELETE", "", None),
        ]
        for method, path, body in calls:
            assert error(await instance.at(method, path, body)) == gone, (method, path)
        await instance.create()
        for path, body, status, text in (
            ("/subscription", {}, 422, "topics or topic_pattern must be given"),
            ("/subscription", {"topics": "t"}, 422, "topics: "),
            ("/subscription", {"topics": ["a b"]}, 422, "bad topic: 'a b'"),
            ("/subscription", {"topic_pattern": "("}, 422, "topic_pattern: missing ): ("),
            ("/subscription", {"topic_pattern": "x(?=y)"}, 422, "topic_pattern: invalid perl operator: (?="),
            ("/assignments", {}, 422, "partitions"),
            (
                "/assignments",
                {"partitions": [{"topic": "t", "partition": -1}]},
                422,
                "partitions[0].partition",
            ),
            ("/offsets", {"offsets": [{"topic": "t", "partition": 0}]}, 422, "offsets[0]"),
            ("/offsets", [1], 400, "the body"),
        ):
            found = error(await instance.at("POST", path, body))
            assert found[0] == status and text in found[2], (path, body, found)
        both = error(await instance.at("POST", "/subscription", {"topics": ["t"], "topic_pattern": "t"}))
        assert both[:2] == (409, 40903)


async def test_formats(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    values: list[Any] = [0, False, "", None, {}, [], {"a": [1, 2.50]}, "text", 12345678901234567890]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        records = [{"key": value, "value": value} for value in values]
        assert (await produce(daemon, name, records, JSON_V2)).status == 200
        await fill(daemon, name, b"\xff\x00")
        await produce(daemon, name, [{"value": "after"}], JSON_V2)
        as_json = Instance(daemon, name, "json")
        await as_json.create(format="json")
        await as_json.subscribe(name)
        for accept in (BINARY_V2, "application/vnd.kafka.binary.v1+json"):
            answer = await ask(daemon, "GET", f"{as_json.base}/records", accept=accept)
            assert error(answer)[:2] == (406, 40601)
        found = await as_json.records(accept=JSON_V2)
        assert [record["value"] for record in found[: len(values)]] == values
        assert [record["key"] for record in found[: len(values)]] == values
        bad, after = found[len(values) :]
        assert (bad["error_code"], bad["value"], bad["raw_value"], bad["offset"]) == (
            40801,
            None,
            "/wA=",
            len(values),
        )
        assert "the record's value is not JSON" in bad["error"] and after["value"] == "after"
        binary = Instance(daemon, f"{name}-b")
        await binary.create()
        await binary.subscribe(name)
        answer = await binary.at("GET", "/records")
        assert answer.headers["Content-Type"] == V2, "the type that the client accepts"
        stored = [record["value"] for record in answer.json]
        assert (
            stored[:6] == ["MA==", "ZmFsc2U=", "IiI=", None, "e30=", "W10="] and stored[len(values)] == "/wA="
        )


async def test_headers_and_timestamps_are_returned(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, **{"retention.ms": "-1"})  # the record is from 1970
    record = {
        "value": "dg==",
        "timestamp": 1234567,
        "headers": [{"key": "h", "value": "dw=="}, {"key": "n", "value": None}],
    }
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(daemon, name, [record])
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)
        [found] = await instance.records()
        assert (found["timestamp"], found["headers"]) == (1234567, record["headers"])


async def test_automatic_commit(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        daemon.engine.config.proxies["default"].instances.auto_commit_interval = 0.2  # type: ignore[assignment]
        await fill(daemon, name, *[b"v"] * 9)
        instance = Instance(daemon, name)
        await instance.create()  # it is the default
        await instance.subscribe(name)
        await instance.records("?max_bytes=4")
        await instance.records("?max_bytes=2")
        await eventually(lambda: instance.committed(name), lambda found: found == {0: 4})
        await instance.delete()
        again = Instance(daemon, name)
        await again.create()
        assert await again.committed(name) == {0: 6}, "a delete commits, but only records handed out"


async def test_two_instances_share_the_partitions(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 4)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.session_timeout = 60.0  # type: ignore[assignment]
    async with serving(config) as daemon:
        one, two = Instance(daemon, name, "one"), Instance(daemon, name, "two")
        for instance in (one, two):
            await instance.create(auto_commit_enable=True)
            await instance.subscribe(name)

        async def share() -> list[int]:
            await asyncio.gather(one.records("?timeout=100"), two.records("?timeout=100"))
            return [len((await each.at("GET", "/assignments")).json["partitions"]) for each in (one, two)]

        await eventually(share, lambda found: found == [2, 2])
        for number in range(4):
            await fill(daemon, name, *[b"%d-%d" % (number, at) for at in range(20)], partition=number)
        found: list[bytes] = []
        while len(found) < 80:
            for part in await asyncio.gather(one.values("?timeout=300"), two.values("?timeout=300")):
                found += part
        assert len(set(found)) == 80
        await one.delete()
        await eventually(
            lambda: two.at("GET", "/assignments"),
            lambda answer: len(answer.json["partitions"]) == 4,
            within=8,  # "one" has left the group; the broker does not wait for its session timeout
        )
        assert await two.values("?timeout=300") == [], "no record comes twice"


async def test_a_stopping_service_commits_its_instances_positions(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"v"] * 5)
        instance = Instance(daemon, name)
        await instance.create(auto_commit_enable=True)
        await instance.subscribe(name)
        assert len(await instance.records()) == 5
        reading = asyncio.ensure_future(ask(daemon, "GET", f"{instance.base}/records?timeout=30000"))
        await instance.reads_wait(1)
        await daemon.engine.cluster()._refs._cluster.ask(_drain(), block=False)
        answer = await reading
        assert (answer.status, json.loads(answer.body)["error_code"]) == (503, 503)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        again = Instance(daemon, name)
        await again.create()
        assert await again.committed(name) == {0: 5}


def _drain() -> Any:
    from pixy.engine.cluster_messages import DrainCluster

    return DrainCluster()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_both_group_protocols(kafka: Cluster, name: str, protocol: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap(), group_protocol=protocol)
    async with serving(config) as daemon:
        await fill(daemon, name, b"a")
        instance = Instance(daemon, name)
        await instance.create()
        await instance.subscribe(name)
        assert await instance.values("?timeout=5000") == [b"a"]
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 1}
        assert (await instance.delete()).status == 204
