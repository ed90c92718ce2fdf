"""Consumer instances and what happens to partitions: they are paused, come back, grow, expire, are made again."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from pixy.errors import Unavailable
from pixy.kafka import settings
from pixy.kafka.instance_consumer import InstanceConsumer
from pixy.kafka.partition_logs import PartitionLogs
from pixy.membership.kafka import instance_topics, unheard
from tests.integration.restv1.consumers import Instance, fill
from tests.integration.restv1.support import BINARY_V2
from tests.integration.restv1.test_consumer_defects import ready
from tests.kafka.cluster import Cluster
from tests.support import Daemon, eventually, make_config, serving


async def session_of(instance: Instance) -> Any:
    """The instance's session with Kafka."""
    ref = await instance.daemon.engine.cluster().instances.find(instance.group, instance.name)
    return ref._cell.actor._context.session


async def assigned(instance: Instance, count: int) -> None:
    """Wait until the group has assigned this many partitions to the instance."""

    async def found() -> int:
        answer = await instance.at("GET", "/assignments")
        return len(answer.json["partitions"])

    await eventually(found, lambda partitions: partitions == count)


async def paused(instance: Instance) -> Any:
    """Wait until the instance has stopped to fetch because nobody reads; return its session."""
    session = await session_of(instance)

    async def is_paused() -> bool:
        return bool(session._reads.paused)

    await eventually(is_paused)
    return session


async def read(instance: Instance, count: int) -> list[bytes]:
    """Read until this many values have come."""
    found: list[bytes] = []
    for _ in range(20):
        found += await instance.values("?timeout=1000")
        if len(found) >= count:
            break
    return found


async def test_a_partition_that_was_paused_and_comes_back_is_read(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.pause_after = 0.2
    async with serving(config) as daemon:
        first = await ready(daemon, name, name, "first")
        assert await first.values("?timeout=100") == []
        await assigned(first, 2)
        session = await paused(first)
        second = await ready(daemon, name, name, "second")
        await assigned(second, 1)
        await assigned(first, 1)
        session._reads.pause_after = 1e9  # from now on
        assert await first.values("?timeout=100") == []
        assert not session._reads.paused
        await second.delete()
        await assigned(first, 2)
        for number in range(2):
            await fill(daemon, name, b"%d" % number, partition=number)
        assert sorted(await read(first, 2)) == [b"0", b"1"]


async def test_a_paused_partition_that_is_sought_is_read_from_there(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name, 2)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.pause_after = 0.2
    async with serving(config) as daemon:
        for number in range(2):
            await fill(daemon, name, b"%d" % number, partition=number)
        for manually in (False, True):
            instance = Instance(daemon, name, f"c{manually}")
            await instance.create(auto_commit_enable=False)
            places = [{"topic": name, "partition": number} for number in range(2)]
            if manually:
                assert (await instance.at("POST", "/assignments", {"partitions": places})).status == 204
            else:
                await instance.subscribe(name)
            for _ in range(3):
                assert sorted(await read(instance, 2)) == [b"0", b"1"]
                await paused(instance)
                body = {"partitions": places}
                assert (await instance.at("POST", "/positions/beginning", body)).status == 204
            if manually:  # a new assignment of paused partitions
                assert (await instance.at("POST", "/assignments", {"partitions": places[:1]})).status == 204
                assert (await instance.at("POST", "/assignments", {"partitions": places})).status == 204
                assert sorted(await read(instance, 2)) == [b"0", b"1"]
            await instance.delete()


async def test_an_added_partition_is_read_from_its_beginning(kafka: Cluster, name: str) -> None:
    """Also with ``latest``: the reader has not seen, and has not skipped, what was written to it."""
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"old")
        instance = await ready(daemon, name, name, auto_offset_reset="latest")
        assert await instance.values("?timeout=100") == []

        await grow(kafka, name, 2)
        assert await read(instance, 1) == [b"first"]
        assert (await instance.at("POST", "/offsets")).status == 200
        await instance.delete()
        await grow(kafka, name, 3)
        instance = await ready(daemon, name, name, auto_offset_reset="latest")
        assert await read(instance, 1) == [b"first"]
        assert (await instance.at("GET", "/assignments")).json["partitions"][2]["partition"] == 2


async def grow(kafka: Cluster, topic: str, partitions: int) -> None:
    """Add partitions, and write a record to the last one; the daemon's producer would know it up to 10 s later."""
    kafka.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(30)

    def write() -> bool:
        producer = Producer({"bootstrap.servers": ",".join(kafka.bootstrap()), "log_level": 0})
        errors: list[Any] = []
        producer.produce(
            topic, b"first", partition=partitions - 1, on_delivery=lambda error, _: errors.append(error)
        )
        return producer.flush(10) == 0 and errors == [None]

    await eventually(lambda: asyncio.to_thread(write))


@pytest.fixture
def unaware(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Kafka clients of instances do not look for added partitions by themselves: else they do every 10 s."""
    made = settings.instance
    monkeypatch.setattr(
        settings, "instance", lambda *of: {**made(*of), "topic.metadata.refresh.interval.ms": 300_000}
    )


@pytest.mark.usefixtures("unaware")
async def test_a_partition_that_was_added_before_a_restart_is_read_from_its_beginning(
    kafka: Cluster, name: str
) -> None:
    """The session fails before it hears of the partition. And what it had fetched of the other one, of which nothing
    was read or committed, is read as well.
    """
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"old")
        instance = await ready(daemon, name, name, auto_offset_reset="latest", auto_commit_enable=False)
        assert await instance.values("?timeout=100") == []
        await assigned(instance, 1)
        session = await session_of(instance)
        await grow(kafka, name, 2)
        await fill(daemon, name, b"new")
        session._run_soon(lambda: session._give_up(Unavailable("on purpose")))
        found: list[bytes] = []
        async with asyncio.timeout(60):
            while len(found) < 2:
                answer = await instance.at("GET", "/records?timeout=1000", accept=BINARY_V2)
                assert answer.status in (200, 503), answer
                found += [base64.b64decode(each["value"]) for each in answer.json if answer.status == 200]
        assert sorted(found) == [b"first", b"new"]


@pytest.mark.usefixtures("unaware")
async def test_a_partition_that_a_new_topic_lacks_at_first_is_read_by_the_same_session(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member keeps it, and its Kafka client has to learn that it was added."""
    monkeypatch.setattr(unheard, "LOOK_AFTER", 0.1)
    monkeypatch.setattr(instance_topics, "_COMPARE_IDS", 0.2)
    kafka.create_topic(name, 2)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = await ready(daemon, name, name, auto_offset_reset="latest", auto_commit_enable=False)
        assert await instance.values("?timeout=100") == []
        await assigned(instance, 2)
        session = await session_of(instance)
        await _make_again(kafka, name)

        async def begun_anew() -> bool:
            # Long enough for the client to end its search for the leaders of the new topic.
            assert await instance.values("?timeout=1000") == []
            return (name, 1) in session._topics.silent

        # Before there is a record: one that is read before the session knows the new topic comes once more.
        await eventually(begun_anew)
        await eventually(lambda: _writable(daemon, name, 0))
        assert await read(instance, 1) == [b"first"]
        assert await instance.values("?timeout=1000") == []
        await grow(kafka, name, 2)
        assert await read(instance, 1) == [b"first"]
        assert await session_of(instance) is session


async def _writable(daemon: Daemon, topic: str, partition: int) -> bool:
    """Write the first record of an added partition, once the daemon's producer knows it."""
    try:
        await fill(daemon, topic, b"first", partition=partition)
    except AssertionError:
        return False
    return True


async def test_a_position_that_has_expired_continues_at_the_oldest_record(kafka: Cluster, name: str) -> None:
    """With ``latest``, too: nothing that is still there is skipped."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.pause_after = 0.2
    async with serving(config) as daemon:
        instance = await ready(daemon, name, name, auto_offset_reset="latest", max_poll_records=1)
        assert await instance.values("?timeout=100") == []
        await fill(daemon, name, *[b"%d" % at for at in range(10)])
        assert await read(instance, 1) == [b"0"]
        assert (await instance.at("POST", "/offsets")).status == 200
        await paused(instance)
        await asyncio.to_thread(kafka.delete_records, name, 0, 5)
        # One record had been kept when the fetching was paused.
        assert (await read(instance, 2))[-1] == b"5"
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 6}
        await instance.delete()
        await asyncio.to_thread(kafka.delete_records, name, 0, 8)
        instance = await ready(daemon, name, name, "d", auto_offset_reset="latest")
        assert await read(instance, 2) == [b"8", b"9"]


async def test_a_topic_that_is_made_again_is_read_from_its_beginning(kafka: Cluster, name: str) -> None:
    kafka.create_topic(name)
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, *[b"%d" % at for at in range(5)])
        instance = await ready(daemon, name, name)
        assert len(await read(instance, 5)) == 5
        await _make_again(kafka, name)
        await eventually(lambda: _writable(daemon, name, 0))
        assert await read(instance, 1) == [b"first"]
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 1}


@pytest.mark.parametrize("manually", [False, True])
async def test_a_topic_that_is_made_again_with_more_records_is_read_from_its_beginning(
    kafka: Cluster, name: str, manually: bool
) -> None:
    """The Kafka client goes on at the old position, which the new topic has as well, and says nothing."""
    kafka.create_topic(name)
    config = make_config(kafka.bootstrap())
    config.proxies["default"].instances.pause_after = 0.2
    async with serving(config) as daemon:
        await fill(daemon, name, *[b"%d" % at for at in range(3)])
        instance = Instance(daemon, name)
        await instance.create(auto_commit_enable=False)
        if manually:
            places = {"partitions": [{"topic": name, "partition": 0}]}
            assert (await instance.at("POST", "/assignments", places)).status == 204
        else:
            await instance.subscribe(name)
        assert len(await read(instance, 3)) == 3
        await paused(instance)  # so that the client does not see that the topic is gone meanwhile
        await _make_again(kafka, name)
        await eventually(lambda: _writable(daemon, name, 0))
        await fill(daemon, name, *[b"%d" % at for at in range(1, 6)])
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 0}, "nothing of the new topic was read"
        assert await read(instance, 6) == [b"first", b"1", b"2", b"3", b"4", b"5"]
        assert (await instance.at("POST", "/offsets")).status == 200
        assert await instance.committed(name) == {0: 6}

        await paused(instance)
        await _make_again(kafka, name)
        await eventually(lambda: _writable(daemon, name, 0))
        await fill(daemon, name, *[b"%d" % at for at in range(7)])
        seen: list[bytes] = []
        async with asyncio.timeout(60):  # without a commit it is noticed when records are looked for
            while b"first" not in seen or seen[-1] != b"6":
                seen += await instance.values("?timeout=1000")
        assert seen[-8:] == [b"first", *[b"%d" % at for at in range(7)]]


@pytest.mark.parametrize("manually", [False, True])
async def test_positions_are_committed_after_a_topic_was_made_again_with_fewer_partitions(
    kafka: Cluster, name: str, manually: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The positions of the partitions that are gone hold up no other commit, and once the topic has grown theirs are committed."""
    kafka.create_topic(name, 2)
    places = [{"topic": name, "partition": 0}, {"topic": name, "partition": 1}]
    async with serving(make_config(kafka.bootstrap())) as daemon:
        await fill(daemon, name, b"0")
        await fill(daemon, name, b"1", partition=1)
        instance = Instance(daemon, name)
        await instance.create(auto_commit_enable=False)
        if manually:
            assert (await instance.at("POST", "/assignments", {"partitions": places})).status == 204
        else:
            await instance.subscribe(name)
        assert sorted(await read(instance, 2)) == [b"0", b"1"]
        await _make_again(kafka, name)
        await eventually(lambda: _writable(daemon, name, 0))
        assert await read(instance, 1) == [b"first"]
        answer = await instance.at("POST", "/offsets")
        assert answer.status == 200, answer
        assert await instance.committed(name) == {0: 1}
        if manually:
            await grow(kafka, name, 2)
            assert await read(instance, 1) == [b"first"]
            assert (await instance.at("POST", "/offsets")).status == 200
            assert await instance.committed(name, 2) == {0: 1, 1: 1}
        assert (await instance.at("DELETE", "")).status == 204
    assert not [line for line in caplog.messages if "commit failed" in line]


async def test_a_partition_can_be_assigned_before_its_topic_exists(kafka: Cluster, name: str) -> None:
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        await instance.create(auto_offset_reset="latest")
        places = {"partitions": [{"topic": name, "partition": 0}]}
        assert (await instance.at("POST", "/assignments", places)).status == 204
        assert await instance.values("?timeout=100") == []
        await asyncio.to_thread(kafka.create_topic, name)
        await fill(daemon, name, b"0", b"1")
        assert await read(instance, 2) == [b"0", b"1"]


async def test_chosen_partitions_are_read_again_once_the_coordinator_answers(
    kafka: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session fails, and the next one gets no answer for a while. Meanwhile one of the topics is made again with fewer
    partitions: the others are read, and what it lacks is read when it is added.
    """
    monkeypatch.setattr(unheard, "LOOK_AFTER", 0.1)
    kafka.create_topic(name, 2)
    other = await asyncio.to_thread(kafka.create_topic, f"{name}-other")
    async with serving(make_config(kafka.bootstrap())) as daemon:
        instance = Instance(daemon, name)
        await instance.create(auto_offset_reset="latest", auto_commit_enable=False)
        places = [{"topic": name, "partition": 0}, {"topic": name, "partition": 1}]
        places.append({"topic": other, "partition": 0})
        assert (await instance.at("POST", "/assignments", {"partitions": places})).status == 204
        await fill(daemon, name, b"old")
        await fill(daemon, other, b"a")
        assert sorted(await read(instance, 2)) == [b"a", b"old"]

        answer, asked = without_coordinator(monkeypatch)
        session = await session_of(instance)
        session._run_soon(lambda: session._give_up(Unavailable("on purpose")))
        await _make_again(kafka, name)
        await eventually(lambda: _writable(daemon, name, 0))
        await fill(daemon, other, b"b")
        await eventually(asked)
        assert (await instance.at("GET", "/assignments")).json["partitions"] == []
        answer.set()
        assert sorted(await read(instance, 2)) == [b"b", b"first"]
        await grow(kafka, name, 2)
        assert await read(instance, 1) == [b"first"]
        assert (await instance.at("GET", "/assignments")).json["partitions"] == sorted(
            places, key=lambda each: (each["topic"], each["partition"])
        )


def without_coordinator(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, Any]:
    """Let no instance hear of topics' ids until the event is set; and whether one has asked twice."""
    answer, ids = threading.Event(), InstanceConsumer.topic_ids
    asked = []

    def topic_ids(*args: Any) -> Any:
        if answer.is_set():
            return ids(*args)
        asked.append(args)
        raise Unavailable("no coordinator")

    async def twice() -> bool:
        return len(asked) >= 2

    monkeypatch.setattr(InstanceConsumer, "topic_ids", topic_ids)
    return answer, twice


async def test_a_partition_without_a_leader_holds_up_no_other(
    kafka3: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is on one broker alone; one broker is dead when the instance joins. It is asked for the end of its partition
    after a record was written to it, which the instance gets.
    """
    topic = NewTopic(name, 3, replica_assignment=[[1], [2], [3]], config={"min.insync.replicas": "1"})
    kafka3.admin().create_topics([topic])[name].result(30)
    config = make_config(kafka3.bootstrap())
    async with serving(config) as daemon:
        for number in range(3):
            await eventually(lambda at=number: _writable(daemon, name, at))  # type: ignore[misc]
        await asyncio.to_thread(kafka3.kill, 3)
        earliest, latest, manual = (Instance(daemon, f"{name}-{at}") for at in range(3))
        await earliest.create(auto_offset_reset="earliest")
        await earliest.subscribe(name)
        await latest.create(auto_offset_reset="latest")
        await latest.subscribe(name)
        await manual.create(auto_offset_reset="latest")
        places = [{"topic": name, "partition": number} for number in range(3)]
        assert (await manual.at("POST", "/assignments", {"partitions": places})).status == 204
        assert sorted(await read(earliest, 2)) == [b"first", b"first"]
        for instance in (latest, manual):
            assert await instance.values("?timeout=100") == []
        await fill(daemon, name, b"next", partition=0)
        for instance in (earliest, latest, manual):
            assert await read(instance, 1) == [b"next"]
        written = hold_look_ups(monkeypatch)
        late = Producer({"bootstrap.servers": ",".join(kafka3.bootstrap()), "log_level": 0})
        late.produce(name, b"late", partition=2)  # with the leader's return
        await asyncio.to_thread(kafka3.start, 3)
        assert await asyncio.to_thread(late.flush, 60) == 0
        written.set()
        assert await read(earliest, 2) == [b"first", b"late"], "the rest begins with its leader"
        for instance in (latest, manual):
            assert await read(instance, 1) == [b"late"]
        await eventually(lambda: latest.committed(name, 3), lambda found: found[2] == 1)
        await asyncio.to_thread(kafka3.wait_ready, 3)


def hold_look_ups(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let no lookup of logs begin until the event is set."""
    go_on = threading.Event()
    look_up = PartitionLogs.look_up

    def held(*args: Any) -> None:
        assert go_on.wait(90)
        look_up(*args)

    monkeypatch.setattr(PartitionLogs, "look_up", held)
    return go_on


async def _make_again(kafka: Cluster, topic: str) -> None:
    kafka.admin().delete_topics([topic])[topic].result(30)

    async def gone() -> bool:
        return topic not in await asyncio.to_thread(lambda: kafka.admin().list_topics(timeout=10).topics)

    await eventually(gone)
    await asyncio.to_thread(kafka.create_topic, topic)


async def test_a_read_returns_the_records_of_all_partitions(kafka: Cluster, name: str) -> None:
    """Not of the one alone that answers first, after an assignment or a seek. Without the wait for the others it is
    so in half of the reads.
    """
    kafka.create_topic(name, 4)
    places = {"partitions": [{"topic": name, "partition": number} for number in range(4)]}
    async with serving(make_config(kafka.bootstrap())) as daemon:
        for number in range(4):
            await fill(daemon, name, b"%d" % number, partition=number)
        whole = 0
        for at in range(10):
            instance = await ready(daemon, f"{name}-{at}", name)
            for _ in range(3):
                found = len(await instance.records("?timeout=5000"))
                whole += found == 4
                while found < 4:
                    found += len(await instance.records("?timeout=5000"))
                assert (await instance.at("POST", "/positions/beginning", places)).status == 204
            await instance.delete()
        assert whole >= 25
