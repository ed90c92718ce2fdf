"""Defects of other servers, each with a test that this one does not have it."""

from __future__ import annotations

import asyncio
import json
import statistics
from typing import Any

from confluent_kafka import Producer

from tests.integration.restv1.consumers import Instance, fill
from tests.integration.restv1.support import BINARY_V2, JSON_V2, ask, error, fetch, produce
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving


async def ready(daemon: Daemon, group: str, topic: str, name: str = "c", **options: Any) -> Instance:
    """An instance with a subscription."""
    instance = Instance(daemon, group, name)
    await instance.create(**options)
    await instance.subscribe(topic)
    return instance


async def test_a_record_larger_than_max_bytes_is_returned(kafka: Cluster, name: str) -> None:
    """Elsewhere the instance returns [] for ever."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"x" * 100_000, b"small")
        instance = await ready(daemon, name, name)
        assert [len(value) for value in await instance.values("?max_bytes=10")] == [100_000]
        assert await instance.values("?max_bytes=0") == [b"small"]


async def test_a_read_of_ready_records_does_not_wait(kafka: Cluster, name: str) -> None:
    """Elsewhere a read of 9 records takes the whole second, 0.4 s or 10 s. Here it ends before an empty
    read with a wait of 0.5 s that began earlier.
    """
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-e")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = await ready(daemon, name, name)
        empty = await ready(daemon, f"{name}-e", f"{name}-e")
        for each in (instance, empty):
            await each.records("?timeout=100")
        for _ in range(3):
            await fill(daemon, name, *[b"v"] * 9)
            await instance.has_fetched_ahead()
            half_a_second = asyncio.ensure_future(empty.records("?timeout=500"))
            await empty.reads_wait(1)
            assert len(await instance.records("?timeout=10000")) == 9
            assert not half_a_second.done()
            assert await half_a_second == []


async def test_a_read_bounded_by_max_bytes_loses_no_record(kafka: Cluster, name: str) -> None:
    """Elsewhere 12 of 200,000 were never returned."""
    kafka.create_topic(name, 3)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0], "linger.ms": 20})
    for at in range(60_000):
        producer.produce(name, b"%d" % at + b"x" * (at % 37), partition=at % 3)
        if at % 10_000 == 0:
            producer.flush()
    producer.flush()
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = await ready(daemon, name, name)
        found: list[tuple[int, int]] = []
        reads = 0
        while len(found) < 60_000:
            batch = await instance.records("?max_bytes=65536&timeout=5000")
            assert batch, f"{len(found)} records came"
            reads += 1
            found += [(record["partition"], record["offset"]) for record in batch]
        assert reads >= 60_000 * 20 // 65536
        for number in range(3):
            assert [offset for partition, offset in found if partition == number] == list(range(20_000))


async def test_a_commit_without_a_body_commits_delivered_records_only(kafka: Cluster, name: str) -> None:
    """Elsewhere it commits records that the client has only buffered."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"v"] * 500)
        instance = await ready(daemon, name, name, max_poll_records=5)
        assert len(await instance.records()) == 5
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 5}


async def test_a_commit_that_kafka_refuses_is_an_error(kafka: Cluster, name: str) -> None:
    """Elsewhere a commit without a body is asynchronous, and its failure is ignored."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        await instance.create()
        place = {"topic": name, "partition": 9, "offset": 3}
        found = error(await instance.at("POST", "/offsets", {"offsets": [place]}))
        assert found[:2] == (404, 40401)
        place = {"topic": name, "partition": 0, "offset": 3, "metadata": "x" * 5000}
        found = error(await instance.at("POST", "/offsets", {"offsets": [place]}))
        assert found[:2] == (422, 422) and "metadata" in found[2]


async def test_many_waiting_reads_block_no_other_request(kafka: Cluster, name: str) -> None:
    """Elsewhere 6 long polls block every other call; here 24 wait."""
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-p")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instances = await asyncio.gather(*[ready(daemon, f"{name}-{at}", name) for at in range(24)])
        await asyncio.gather(*[instance.records("?timeout=0") for instance in instances])
        reads = [asyncio.ensure_future(instance.records("?timeout=8000")) for instance in instances]
        for instance in instances:
            await instance.reads_wait(1)
        for at, instance in enumerate(instances[:8]):
            place = {"topic": name, "partition": 0, "offset": 0}
            assert (await instance.at("POST", "/offsets", {"offsets": [place]})).status == 200
            other = Instance(daemon, name, f"x{at}")
            await other.create()
            assert (await other.delete()).status == 204
            await fill(daemon, f"{name}-p", b"v")
        assert not any(read.done() for read in reads), "eight rounds of calls take less than 8 s"
        await fill(daemon, name, b"v")
        assert [len(found) for found in await asyncio.gather(*reads)] == [1] * 24


async def test_commit_seek_and_delete_during_a_read(kafka: Cluster, name: str) -> None:
    """Elsewhere they wait up to 11 s for the read, or are answered 500."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"0", b"1", b"2")
        instance = await ready(daemon, name, name)
        assert len(await instance.records()) == 3
        read = asyncio.ensure_future(instance.values("?timeout=2500"))
        await instance.reads_wait(1)
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 3}
        assert not read.done()
        place = {"topic": name, "partition": 0, "offset": 1}
        assert (await instance.at("POST", "/positions", {"offsets": [place]})).status == 204
        assert await read == [b"1", b"2"], "the seek took effect before the end of the wait"
        reads = [
            asyncio.ensure_future(ask(daemon, "GET", f"{instance.base}/records?timeout=2500"))
            for _ in range(3)
        ]
        await instance.reads_wait(3)
        assert (await instance.delete()).status == 204
        for read_ in reads:
            assert error(await read_) == (404, 40403, "Consumer instance not found.")


async def test_concurrent_calls_on_one_instance(kafka: Cluster, name: str) -> None:
    """Elsewhere they are answered 500."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"%d" % at for at in range(200)])
        instance = await ready(daemon, name, name, max_poll_records=10)
        calls = [ask(daemon, "GET", f"{instance.base}/records", accept=BINARY_V2) for _ in range(20)]
        calls += [ask(daemon, "POST", f"{instance.base}/offsets") for _ in range(10)]
        answers = await asyncio.gather(*calls)
        assert {answer.status for answer in answers} == {200}
        offsets = [record["offset"] for answer in answers[:20] for record in answer.json]
        assert sorted(offsets) == list(range(200))


async def test_a_hundred_partitions_keep_their_committed_offsets(kafka: Cluster, name: str) -> None:
    """Elsewhere the committed offsets of partitions not polled yet are ignored, and all records come again."""
    count = 100
    kafka.create_topic(name, count)
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for number in range(count):
        for at in range(5):
            producer.produce(name, b"%d" % at, partition=number)
    producer.flush()
    async with serving(make_config(kafka.bootstrap())) as daemon:
        first = Instance(daemon, name, "first")
        await first.create()
        places = [{"topic": name, "partition": number, "offset": 3} for number in range(count)]
        assert (await first.at("POST", "/offsets", {"offsets": places})).status == 200
        await first.delete()
        instance = await ready(daemon, name, name)
        found: list[tuple[int, int]] = []
        while batch := await instance.records("?timeout=2000"):
            found += [(record["partition"], record["offset"]) for record in batch]
        assert sorted(found) == [(number, 4) for number in range(count)]


async def test_a_commit_before_any_read_is_not_a_500(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        await instance.create()
        for _ in range(2):
            answer = await instance.at("POST", "/offsets")
            assert (answer.status, answer.json) == (200, [])
            await instance.subscribe(name)


async def test_one_undecodable_record_does_not_affect_the_rest_of_the_read(kafka: Cluster, name: str) -> None:
    """Elsewhere the batch is answered 422 or 500, once after the position has moved, or for ever."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await produce(daemon, name, [{"value": 1}], JSON_V2)
        await fill(daemon, name, b"{broken", b"NaN", b"", b'"\xff"')
        await produce(daemon, name, [{"value": 2}], JSON_V2)
        instance = await ready(daemon, name, name, format="json")
        found = await instance.records(accept=JSON_V2)
        assert [record.get("error_code") for record in found] == [None, 40801, 40801, 40801, 40801, None]
        assert [found[0]["value"], found[-1]["value"]] == [1, 2]


async def test_the_first_read_is_not_empty_because_the_group_is_still_joining(
    creating_kafka: Cluster, name: str
) -> None:
    """The broker's default delay of the first rebalance is 3 s; the read's wait is 1 s."""
    creating_kafka.create_topic(name)
    async with serving(make_config(creating_kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"a")
        loop = asyncio.get_running_loop()
        begun = loop.time()
        instance = await ready(daemon, name, name)
        assert await instance.values() == [b"a"]
        assert loop.time() - begun > 2.5, "the broker did delay the rebalance"


async def test_an_idle_instance_ends_and_its_partitions_go_to_others(kafka: Cluster, name: str) -> None:
    """Elsewhere it never ends by default, and keeps its partitions."""
    kafka.create_topic(name, 2)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.idle_timeout = 1.5  # type: ignore[assignment]
    async with serving(config) as daemon:
        left = await ready(daemon, name, name, "left")
        await left.records("?timeout=100")
        stays = await ready(daemon, name, name, "stays")

        async def partitions() -> int:
            await stays.records("?timeout=200")
            return len((await stays.at("GET", "/assignments")).json["partitions"])

        await eventually(partitions, lambda count: count == 2, within=30)
        assert error(await left.at("GET", "/records"))[:2] == (404, 40403)
        assert await daemon.engine.cluster().instances.count() == {"waiting": 0, "idle": 1, "unused": 0}


async def test_too_many_instances_are_refused_with_the_name_of_the_limit(kafka: Cluster, name: str) -> None:
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.max_instances = 2
    async with serving(config) as daemon:
        for at in range(2):
            await Instance(daemon, name, f"c{at}").create()
        answer = await ask(daemon, "POST", f"/consumers/{name}", {"name": "one-more"})
        assert error(answer)[:2] == (429, 429) and "instances.max_instances" in error(answer)[2]
        assert answer.headers["Retry-After"]
        await Instance(daemon, name, "c0").delete()
        assert (await ask(daemon, "POST", f"/consumers/{name}", {"name": "one-more"})).status == 200


async def test_a_read_that_does_not_fit_the_budget_is_503_and_loses_nothing(
    kafka: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.rest.max_buffered_bytes = 1_048_576
    async with serving(config) as daemon:
        await fill(daemon, name, *[b"x" * 50_000] * 8)
        instance = await ready(daemon, name, name)
        other = config.rest.max_buffered_bytes - 200_000
        with _budget(daemon).share() as share:
            share.take(other)
            answer = await ask(daemon, "GET", f"{instance.base}/records?timeout=5000", accept=BINARY_V2)
            assert error(answer)[:2] == (503, 503) and "rest.max_buffered_bytes" in error(answer)[2]
            assert answer.headers["Retry-After"]
        found: list[int] = []
        while len(found) < 8:
            found += [record["offset"] for record in await instance.records("?timeout=5000&max_bytes=150000")]
        assert found == list(range(8))
        assert _budget(daemon).held == 0


def _budget(daemon: Daemon) -> Any:
    listener = next(ref for ref in daemon.engine._service._cell.children.values() if ref.name == "rest")
    return listener.actor._rest_v1.budget


async def test_a_client_that_goes_away_loses_no_record(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = await ready(daemon, name, name)
        await instance.records("?timeout=0")
        for at in range(5):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", int(daemon.engine.addresses["rest"].rpartition(":")[2])
            )
            writer.write(
                f"GET {instance.base}/records?timeout=20000 HTTP/1.1\r\nHost: localhost\r\nAccept: {BINARY_V2}\r\n\r\n".encode()
            )
            await writer.drain()
            await instance.reads_wait(1)
            writer.close()
            await writer.wait_closed()
            await instance.reads_wait(0)
            assert reader is not None
            await fill(daemon, name, b"%d" % at)
            # The next read gets the record that the abandoned one would have got.
            assert await instance.values("?timeout=10000") == [b"%d" % at]


async def test_the_next_read_after_a_pause_is_quick(kafka: Cluster, name: str) -> None:
    """Fetching is paused meanwhile, to cost nothing. Resuming it takes milliseconds, not a second; the control
    is a read by offset, which fetches the same record with a consumer that was not in use either.
    """
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.pause_after = 0.2  # type: ignore[assignment]
    async with serving(config) as daemon:
        await fill(daemon, name, b"0")
        instance = await ready(daemon, name, name)
        assert await instance.values("?timeout=5000") == [b"0"]
        loop = asyncio.get_running_loop()
        resumed, control = [], []
        for at in range(1, 4):
            await asyncio.sleep(1.7)  # fetching pauses, and librdkafka's broker threads fall asleep
            await fill(daemon, name, b"%d" % at)
            begun = loop.time()
            assert await instance.values("?timeout=5000") == [b"%d" % at]
            resumed.append(loop.time() - begun)
            begun = loop.time()
            assert len(await fetch(daemon, name, 0, at, query="&timeout=5000")) == 1
            control.append(loop.time() - begun)
        assert statistics.median(resumed) < 20 * statistics.median(control), (resumed, control)


async def test_a_json_document_keeps_every_digit(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    text = b'{"a":1.10,"b":123456789012345678901234567890,"c":"\\u00e9","d":[1e2]}'
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, text)
        instance = await ready(daemon, name, name, format="json")
        answer = await instance.at("GET", "/records", accept=JSON_V2)
        assert text in answer.body and json.loads(answer.body)[0]["value"]["d"] == [100.0]
