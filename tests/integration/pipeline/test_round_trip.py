"""Archive, replay, archive again: every record comes back byte for byte."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow.parquet as pq
import pytest

from pixy.pipeline.archive.optimize import Optimizer
from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.selection import Selection
from pixy.pipeline.replay.job import ReplayJob
from pixy.pipeline.replay.on_executors import ExecutorWriter
from pixy.pipeline.replay.request import ReplayRequest
from pixy.pipeline.replay.state import PLAN, ReplayState
from tests.integration.pipeline import oddities
from tests.integration.pipeline.support import World, assert_sound, contents

pytestmark = pytest.mark.timeout(900)


def replay(
    world: World,
    topic: str,
    to: str,
    *,
    state: str = "",
    find: Any = None,
    executors: Any = None,
    **fields: Any,
) -> Any:
    selection = fields.pop("selection", Selection())
    return ReplayJob(
        world.lake(),
        ReplayRequest(topic, to, selection, create=True, **fields),
        world.proxy,
        world.view,
        ReplayState(str(world.folder / (state or to))),
        find,
        executors=executors,
    ).run()


def test_odd_records_come_back(world: World, name: str) -> None:
    makers = (oddities.everything, oddities.appended, oddities.compacted)
    topics = [f"{name}-{make.__name__}" for make in makers]
    for make, topic in zip(makers, topics, strict=True):
        make(world, topic)
    progress = world.archive(*topics)
    lake = world.lake()
    assert_sound(lake)
    state = lake.state()
    for topic in topics:
        if "compacted" in topic:  # the cleaner may continue, so Kafka may have fewer records by now
            assert state.partition_stats(topic)[0].count < state.ranges[topic, 0][-1].range.end
        else:
            assert state.partition_stats(topic) == world.truth(topic), topic
    assert progress.records == sum(
        stats.count for topic in topics for stats in state.partition_stats(topic).values()
    )
    # Aborted records are left out; the range covers their offsets.
    everything = state.ranges[topics[0], 2][-1].range
    assert everything.end - everything.start > everything.stats.count + len(oddities.RECORDS)

    for topic in topics:
        again = replay(world, topic, f"{topic}-again")
        assert again.progress.records == sum(s.count for s in state.partition_stats(topic).values())
    world.archive(*[f"{topic}-again" for topic in topics], lake="again")
    for topic in topics:
        assert contents(lake, topic) == contents(world.lake("again"), f"{topic}-again"), topic
    # The files keep null, empty and repeated headers apart.
    assert any(
        [(each["key"], each["value"]) for each in row] == [("h", None), ("h", b""), ("h", b"1"), ("h", None)]
        for file in world.lake("again").state().select(f"{topics[0]}-again")
        for row in pq.read_table(world.lake("again").path(file.path)).column("headers").to_pylist()
        if row
    )

    # optimize changes only files. A second batch gives a day several files.
    oddities.more(world, topics[1])
    world.archive(*topics)
    before = {topic: contents(lake, topic) for topic in topics}
    live = len(lake.state().files)
    done = Optimizer(world.spark, lake).run("2099-01-01")
    assert done.files_after < done.files_before
    assert len(lake.vacuum(0, dry_run=False)) >= done.files_before
    assert len(lake.state().files) == live - done.files_before + done.files_after
    assert {topic: contents(lake, topic) for topic in topics} == before
    assert_sound(lake)


def test_executors_write_each_record_once(world: World, name: str) -> None:
    world.kafka.create_topic(name, 3)
    world.produce(name, 300, 3)
    world.archive(name)
    to, executors = f"{name}-again", partial(ExecutorWriter, world.spark)
    # Each record is small enough for this topic; a hundred of them in a batch are not.
    world.kafka.create_topic(to, 3, **{"max.message.bytes": "1000"})
    assert replay(world, name, to, executors=executors).progress.records == 300
    # As a kill leaves it: the plan is not done, and the map lacks records that Kafka has.
    folder = world.folder / to
    plan = json.loads((folder / PLAN).read_text())
    (folder / PLAN).write_text(json.dumps({**plan, "finished": False}))
    for part in (folder / "map").glob("part-of-1-*.parquet"):
        part.unlink()
    done = replay(world, name, to, executors=executors).progress
    assert (done.records, done.found, done.skipped) == (0, 100, 200)
    assert len(ReplayState(str(folder)).map()) == 300
    source, target = world.truth(name), world.truth(to)
    assert {number: each.count for number, each in target.items()} == dict.fromkeys(range(3), 100)
    assert [target[n].content_checksum for n in range(3)] == [source[n].content_checksum for n in range(3)]
    with pytest.raises(PipelineError, match="does not see"):
        replay(world, name, to, state="other", executors=lambda *what: Elsewhere(world.spark, *what))


class Elsewhere(ExecutorWriter):
    """Its tasks have another folder under the name of the driver's."""

    def __init__(self, *what: Any) -> None:
        super().__init__(*what)
        self._tasks = [replace(each, folder=f"{each.folder}-elsewhere") for each in self._tasks]


def test_selections_offset_map_and_groups(world: World, name: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    from pixy.pipeline.spark.predicate import find

    world.kafka.create_topic(name, 2)
    world.produce(name, 100, 2)
    world.archive(name)
    client = Consumer({"bootstrap.servers": world.kafka.bootstrap()[0], "group.id": name})
    client.commit(offsets=[TopicPartition(name, 0, 10), TopicPartition(name, 1, 45)], asynchronous=False)
    client.close()

    where = replay(
        world,
        name,
        f"{name}-where",
        selection=Selection(where="cast(value as string) like 'value 7%'"),
        find=lambda files, sql, typed: find(world.spark, files, sql, typed),
        executors=partial(ExecutorWriter, world.spark),
    )
    assert where.progress.records == 11
    some = replay(
        world,
        name,
        f"{name}-some",
        selection=Selection(offsets={1: (5, 60)}, keys=(b"key 11", b"key 99", b"key 3")),
    )
    assert some.progress.records == 2  # key 3 is offset 1
    moved = replay(
        world, name, f"{name}-moved", partitioner="murmur2_random", groups=((name, f"{name}-new"),)
    )
    assert moved.progress.records == 100

    kept = replay(
        world,
        name,
        f"{name}-kept",
        selection=Selection(offsets={0: (5, 40), 1: (5, 40)}),
        groups=((name, name),),
    )
    rows = ReplayState(str(world.folder / f"{name}-kept")).map().to_pylist()
    assert {(row["partition"], row["offset"], row["new_partition"], row["new_offset"]) for row in rows} == {
        (number, offset, number, offset - 5) for number in (0, 1) for offset in range(5, 40)
    }
    # Offset 10 is now 5; 45 is after the replayed records, so the group is at the end.
    assert {row["partition"]: (row["offset"], row["lag"]) for row in kept.groups} == {0: (5, 30), 1: (35, 0)}
    found = world.view.committed(name, [(f"{name}-kept", 0), (f"{name}-kept", 1)])
    assert [found[f"{name}-kept", number][0] for number in (0, 1)] == [5, 35]
    # With another partitioner no unprocessed record is before the group's new offsets.
    todo = {(0, offset) for offset in range(10, 50)} | {(1, offset) for offset in range(45, 50)}
    at = {row["partition"]: row["offset"] for row in moved.groups}
    for row in ReplayState(str(world.folder / f"{name}-moved")).map().to_pylist():
        if (row["partition"], row["offset"]) in todo:
            assert row["new_offset"] >= at[row["new_partition"]]
    # Running it again writes nothing.
    again = replay(world, name, f"{name}-moved", partitioner="murmur2_random")
    assert (again.ended, again.progress.records) == ("done before", 0)
    assert sum(stats.count for stats in world.truth(f"{name}-moved").values()) == 100
