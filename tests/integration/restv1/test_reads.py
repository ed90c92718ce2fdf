"""Read partitions by offset, and metadata, on a real Kafka."""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from datetime import datetime, timedelta, timezone

import pytest

from tests.integration.restv1.support import (
    BINARY_V1,
    BINARY_V2,
    JSON_V2,
    V1,
    V2,
    ask,
    b64,
    error,
    fetch,
    produce,
    under_way,
)
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving


async def fill(daemon: Daemon, topic: str, count: int, size: int = 1) -> None:
    answer = await produce(daemon, topic, [{"value": b64(b"%d" % at * size)} for at in range(count)])
    assert answer.status == 200, answer


async def test_the_forms_of_a_read(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, 10)
        base = f"/topics/{name}/partitions/0"
        for path, offsets in (
            (f"{base}?offset=7", [7, 8, 9]),
            (f"{base}?offset=7&count=2", [7, 8]),
            (f"{base}/?offset=9", [9]),
            (f"{base}/messages?offset=3", [3]),
            (f"{base}/messages/?offset=3&count=4", [3, 4, 5, 6]),
            (f"{base}/records?offset=8&timeout=1000&max_bytes=100000", [8, 9]),
            (f"/consume/{name}/partitions/0?offset=9", [9]),
            (f"{base}/messages?timestamp=0&count=2", [0, 1]),
            (f"{base}?timestamp=2001-01-01T00:00:00Z&count=1", [0]),
            (f"/clusters/default{base}/messages?offset=1", [1]),
            (f"/rest{base}/messages?offset=1", [1]),
        ):
            answer = await ask(daemon, "GET", path, accept=BINARY_V2)
            assert answer.status == 200, (path, answer)
            assert [record["offset"] for record in answer.json] == offsets, path
            assert answer.headers["Content-Type"] == BINARY_V2
            assert all(record["topic"] == name and record["key"] is None for record in answer.json)


async def test_a_read_from_a_time(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    base = int(time.time()) - 100  # within the topic's retention

    def iso(seconds: int, hours: int = 0) -> str:
        zone = timezone(timedelta(hours=hours))
        return datetime.fromtimestamp(base + seconds, zone).isoformat()

    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(daemon, name, [{"value": "", "timestamp": (base + at) * 1000} for at in range(5)])
        path = f"/topics/{name}/partitions/0/messages?count=9&timeout=50&timestamp="
        for timestamp, offsets in (
            (f"{base + 2}000", [2, 3, 4]),
            (f"{base + 2}001", [3, 4]),
            (iso(3).replace("+00:00", "Z"), [3, 4]),
            (iso(4, 2), [4]),
            ("2100-01-01", []),
            ("0", [0, 1, 2, 3, 4]),
        ):
            answer = await ask(daemon, "GET", path + timestamp)
            assert [record["offset"] for record in answer.json] == offsets, timestamp


async def test_peers_defect_a_read_returns_as_soon_as_there_is_a_record(kafka: Cluster, name: str) -> None:
    """Others wait out a whole second, or 10, with records ready, or poll in steps. Here both reads end
    before an empty one with a wait of 10 s that began earlier.
    """
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-e")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, 9)
        await fetch(daemon, name, 0, 0)
        ten_seconds = asyncio.create_task(fetch(daemon, f"{name}-e", 0, 0, query="&timeout=10000"))
        assert len(await fetch(daemon, name, 0, 0, query="&timeout=20000")) == 9
        waiting = asyncio.create_task(fetch(daemon, name, 0, 9, query="&timeout=20000"))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done, "there is nothing yet"
        await fill(daemon, name, 1)
        assert [record["offset"] for record in await waiting] == [9]
        assert not ten_seconds.done()
        ten_seconds.cancel()


async def test_peers_defect_the_first_read_is_not_empty(kafka: Cluster, name: str) -> None:
    """Elsewhere the first read finds nothing because it is still connecting."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, 1)
        assert len(await fetch(daemon, name, 0, 0, query="&timeout=0")) == 1


async def test_an_empty_read_takes_its_timeout_and_no_longer(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fetch(daemon, name, 0, 0, query="&timeout=10")
        five_seconds = asyncio.create_task(fetch(daemon, name, 0, 0, query="&timeout=5000"))
        loop = asyncio.get_running_loop()
        begun = loop.time()
        assert await fetch(daemon, name, 0, 0, query="&timeout=500") == []
        assert loop.time() - begun >= 0.5 and not five_seconds.done()
        five_seconds.cancel()


async def test_peers_defect_a_record_larger_than_max_bytes_is_returned(kafka: Cluster, name: str) -> None:
    """Elsewhere such a record is never returned, and every read returns []."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(daemon, name, [{"value": b64(b"x" * 300_000)}, {"value": b64(b"y" * 300_000)}])
        for at in (0, 1):
            for max_bytes in (0, 1, 1000):
                found = await fetch(daemon, name, 0, at, query=f"&max_bytes={max_bytes}")
                assert [record["offset"] for record in found] == [at]


async def test_peers_defect_a_read_bounded_by_max_bytes_loses_nothing(kafka: Cluster, name: str) -> None:
    """One peer takes one record too many and drops it: 12 of 200,000 were never returned."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for _ in range(4):
            await fill(daemon, name, 1000, size=20)
        found, reads = [], 0
        while len(found) < 4000:
            batch = await fetch(daemon, name, 0, len(found), query="&max_bytes=5000")
            assert batch and sum(len(b64decode(record["value"])) for record in batch) <= 5000
            found += [record["offset"] for record in batch]
            reads += 1
        assert found == list(range(4000)) and reads > 20


async def test_one_undecodable_record_is_an_entry(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(
            daemon,
            name,
            [{"value": b64(b'{"a":1}')}, {"value": b64(b"\xff"), "key": "YQ=="}, {"value": b64(b"2")}],
        )
        found = await fetch(daemon, name, 0, 0, JSON_V2)
        assert [record["value"] for record in found] == [{"a": 1}, None, 2]
        assert (
            found[1]["error_code"] == 40801
            and found[1]["raw_value"] == "/w=="
            and found[1]["raw_key"] == "YQ=="
        )
        assert "error" not in found[0] and "error" not in found[2]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ("", 422, "exactly one of offset and timestamp must be given"),
        ("?offset=1&timestamp=1", 422, "exactly one of offset and timestamp must be given"),
        ("?offset=x", 422, "offset: 'x' is not a number"),
        ("?offset=-1", 422, "offset: -1 must be 0 to 9223372036854775807"),
        ("?offset=0&count=0", 422, "count: 0 must be 1 to 9223372036854775807"),
        ("?offset=0&timeout=soon", 422, "timeout: 'soon' is not a number"),
        ("?offset=0&max_bytes=1.5", 422, "max_bytes: '1.5' is not a number"),
        (
            "?timestamp=yesterday",
            422,
            "timestamp: 'yesterday' is neither milliseconds since 1970 nor a time as in ISO 8601",
        ),
        ("?offset=4", 422, "bad offset: 4 is out of range, the partition holds 0 to 3"),
    ],
)
async def test_bad_reads_name_the_parameter(
    kafka: Cluster, name: str, query: str, status: int, text: str
) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, 3)
        answer = await ask(daemon, "GET", f"/topics/{name}/partitions/0/messages{query}")
        assert error(answer) == (status, status, text)


async def test_a_busy_pool_is_503_with_the_literal_text(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    proxy = config.proxies["default"]
    proxy.max_fetches, proxy.max_waiting_fetches, proxy.fetch_pool_timeout = 2, 1, 0.3
    async with serving(config) as daemon:
        await fetch(daemon, name, 0, 0, query="&timeout=1")
        path = f"/topics/{name}/partitions/0/messages?offset=0&timeout=3000"
        answers = await asyncio.gather(*[ask(daemon, "GET", path) for _ in range(5)])
        assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503]
        refused = next(answer for answer in answers if answer.status == 503)
        assert error(refused)[1:] == (
            50301,
            (
                "No SimpleConsumer is available at the time in the pool. The request can be retried. You can increase the "
                "pool size or the pool timeout to avoid this error in the future."
            ),
        )
        assert refused.headers["Retry-After"] == "1"


async def test_peers_defect_waiting_reads_do_not_block_other_requests(kafka: Cluster, name: str) -> None:
    """Elsewhere six long polls block every other consumer call, and metadata blocks the loop."""
    for topic in (name, f"{name}-p"):
        kafka.create_topic(topic)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].max_fetches = 12  # of which one caller may have nine
    async with serving(config) as daemon:
        await produce(daemon, name, [{"value": ""}])
        reads = [asyncio.create_task(fetch(daemon, name, 0, 1, query="&timeout=4000")) for _ in range(8)]
        await under_way(daemon, 8)
        for _ in range(20):
            assert (await produce(daemon, f"{name}-p", [{"key": "YQ==", "value": None}])).status == 200
            assert (await ask(daemon, "GET", f"/topics/{name}")).status == 200
        assert not any(read.done() for read in reads), "twenty rounds of calls take less than 4 s"
        await produce(daemon, name, [{"value": ""}])
        assert all(await asyncio.gather(*reads))


async def test_a_client_that_has_gone_frees_its_consumer(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].max_fetches = 1
    config.proxies["default"].fetch_pool_timeout = 15
    async with serving(config) as daemon:
        gone = asyncio.create_task(fetch(daemon, name, 0, 0, query="&timeout=30000"))
        await asyncio.wait([gone], timeout=0.5)
        gone.cancel()
        # A consumer was free within fetch_pool_timeout, before the end of the abandoned read.
        assert await fetch(daemon, name, 0, 0, query="&timeout=10") == []


# -- metadata -------------------------------------------------------------------------------------


async def test_the_shapes_of_metadata(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    partitions = [
        {"partition": number, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
        for number in (0, 1)
    ]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(daemon, name, [{"value": "", "partition": 1}] * 3)
        for path, document in (
            ("/", {}),
            ("/brokers", {"brokers": [1]}),
            (f"/topics/{name}/partitions", partitions),
            (f"/topics/{name}", {"name": name, "configs": {}, "partitions": partitions}),
            (f"/topics/{name}/partitions/1", partitions[1]),
            (f"/topics/{name}/partitions/1/offsets", {"beginning_offset": 0, "end_offset": 3}),
            (f"/topics/{name}/partitions/0/offsets", {"beginning_offset": 0, "end_offset": 0}),
        ):
            for form in (path, path + "/", "/rest" + path, "/clusters/default" + path):
                answer = await ask(daemon, "GET", form.replace("//", "/"), accept=V2)
                assert (answer.status, answer.json) == (200, document), form
                assert answer.headers["Content-Type"] == V2
        assert (await ask(daemon, "POST", "/", b"{}", accept=V1)).json == {}
        names = (await ask(daemon, "GET", "/topics", accept=V1)).json
        assert name in names and names == sorted(names)


async def test_unknown_paths_topics_and_partitions_are_404(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for path, code in (
            (f"/topics/{name}x", 40401),
            (f"/topics/{name}x/partitions", 40401),
            (f"/topics/{name}x/partitions/0", 40401),
            (f"/topics/{name}x/partitions/0/offsets", 40401),
            (f"/topics/{name}/partitions/1", 40402),
            (f"/topics/{name}/partitions/1/offsets", 40402),
            (f"/topics/{name}/partitions/one", 40402),
            (f"/clusters/nowhere/topics/{name}", 404),
            (f"/topics/{name}/nothing", 404),
            ("/clusters/default/healthy", 404),
        ):
            assert error(await ask(daemon, "GET", path))[:2] == (404, code), path
        refused = await ask(daemon, "DELETE", f"/topics/{name}")
        assert error(refused)[:2] == (405, 405) and refused.headers["Allow"] == "GET, POST"


async def test_peers_defect_metadata_is_not_cached(kafka: Cluster, name: str) -> None:
    """Others cache the whole cluster's metadata for 5 s."""
    async with serving(make_config(kafka.bootstrap())) as daemon:
        assert (await ask(daemon, "GET", f"/topics/{name}")).status == 404
        kafka.create_topic(name, 3)

        async def partitions() -> object:
            return (await ask(daemon, "GET", f"/topics/{name}/partitions")).status

        await eventually(partitions, lambda status: status == 200, within=5)


async def test_old_kafka(old_kafka: Cluster, name: str) -> None:
    old_kafka.create_topic(name, 2)
    async with serving(make_config(old_kafka.bootstrap())) as daemon:
        answer = await produce(daemon, name, [{"value": "YQ==", "partition": 1}])
        assert answer.json["offsets"][0]["offset"] == 0
        assert [record["value"] for record in await fetch(daemon, name, 1, 0, BINARY_V1)] == ["YQ=="]
        assert (await ask(daemon, "GET", "/brokers")).status == 200
        assert (await ask(daemon, "GET", f"/topics/{name}/partitions/1/offsets")).json["end_offset"] == 1
