"""``readStream.format("pixy")``: every offset once, whatever is killed, deleted or limited. Real Kafka, real Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pipeline.datasource.reading import given
from tests.integration.pipeline.support import FAST_START, World
from tests.support import ROOT

pytestmark = pytest.mark.timeout(300)


class Stream:
    """A query that keeps (batch, partition, offset) of what it got; its checkpoint outlives it."""

    def __init__(self, world: World, topic: str, **options: Any) -> None:
        self.world, self.topic, self.options = world, topic, options
        self.checkpoint = str(world.folder / "checkpoint")
        self.seen: list[tuple[int, int, int]] = []
        self.fail_in: int | None = None

    def run(self, **more: Any) -> list[tuple[int, int, int]]:
        """What one run of all that is there brings; Spark makes one batch of it, of the size allowed."""
        before = len(self.seen)
        self.query(**more).awaitTermination(120)
        return self.seen[before:]

    def query(self, trigger: dict[str, Any] | None = None, **more: Any) -> Any:
        from pixy.pipeline.datasource import register

        register(self.world.spark)
        options = given(self.world, self.topic, {"startingOffsets": "earliest", **self.options, **more})
        frame = self.world.spark.readStream.format("pixy").options(**options).load()
        return (
            frame.writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", self.checkpoint)
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def _batch(self, frame: Any, number: int) -> None:
        rows = [(number, row.partition, row.offset) for row in frame.select("partition", "offset").collect()]
        if number == self.fail_in:
            self.fail_in = None
            raise RuntimeError("planted")
        self.seen += rows

    def offsets(self) -> list[tuple[int, int]]:
        return sorted((partition, offset) for _, partition, offset in self.seen)


def every(partitions: int, count: int) -> list[tuple[int, int]]:
    return [(number, offset) for number in range(partitions) for offset in range(count // partitions)]


def error_of(query: Any) -> str:
    with pytest.raises(Exception) as caught:
        query.awaitTermination(120)
    return str(caught.value)


def until(check: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not check():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_a_stream_goes_on_where_it_was_and_obeys_its_limit(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 400, 2)
    stream = Stream(world, name, maxOffsetsPerTrigger=100)
    query = stream.query(trigger={"processingTime": "0 seconds"})
    until(lambda: len(stream.seen) >= 400, "not everything came")
    # A batch that is stopped before Spark has noted its end comes again.
    last = Path(stream.checkpoint, "commits", str(stream.seen[-1][0]))
    until(last.exists, "the last batch was not committed")
    query.stop()
    sizes: dict[int, int] = {}
    for number, _, _ in stream.seen:
        sizes[number] = sizes.get(number, 0) + 1
    assert set(sizes.values()) == {100}, sizes
    assert stream.offsets() == every(2, 400)
    world.produce(name, 30, 2)
    assert len(stream.run()) == 30
    assert stream.offsets() == every(2, 430)
    assert stream.run() == [], "nothing is new"


def test_partitions_that_come_later_are_read_from_their_beginning(world: World, name: str) -> None:
    from confluent_kafka.admin import NewPartitions

    world.kafka.create_topic(f"{name}-a", 1)
    world.produce(f"{name}-a", 10)
    stream = Stream(world, name, subscribePattern=f"{name}-.*", startingOffsets="latest")
    assert stream.run() == []
    world.produce(f"{name}-a", 5)
    world.kafka.admin().create_partitions([NewPartitions(f"{name}-a", 2)])[f"{name}-a"].result(30)
    world.kafka.create_topic(f"{name}-b", 3)
    until(lambda: world.view.topics().get(f"{name}-a") == 2, "no second partition")
    world.produce(f"{name}-b", 9, 3)
    world.produce(f"{name}-a", 8, 2)
    assert len(stream.run()) == 5 + 8 + 9
    assert stream.run() == []


def test_a_first_batch_that_failed_is_planned_the_same_again(world: World, name: str) -> None:
    """``latest`` is another one after a restart: what the first batch had planned must still be read."""
    world.kafka.create_topic(name, 2)
    world.produce(name, 40, 2)
    stream = Stream(world, name, startingOffsets="latest")
    stream.fail_in = 0
    assert "planted" in error_of(stream.query())
    world.produce(name, 20, 2)
    assert stream.run() == [], "the first batch, as it was: there was nothing in it"
    assert len(stream.run()) == 20

    # With something in it, as a kill between its plan and its commit leaves it.
    from pixy.pipeline.datasource import options, source

    reader = source.PixyStreamReader(
        options.parse(given(world, name, {"startingOffsets": "latest"}), streaming=True), ("offset",)
    )
    first = reader.initialOffset()
    world.produce(name, 20, 2)
    planned = reader.latestOffset()
    world.produce(name, 60, 2)
    # A new process: it knows nothing but the end that was planned.
    restarted = source.PixyStreamReader(
        options.parse(given(world, name, {"startingOffsets": "latest"}), streaming=True), ("offset",)
    )
    assert restarted.partitions(planned, planned) == []
    assert restarted.partitions(restarted.initialOffset(), planned) == reader.partitions(first, planned)
    assert [(each.partition, each.start, each.end) for each in reader.partitions(first, planned)] == [
        (0, 30, 40),
        (1, 30, 40),
    ]
    then = restarted.latestOffset()
    assert [(each.partition, each.start, each.end) for each in restarted.partitions(planned, then)] == [
        (0, 40, 70),
        (1, 40, 70),
    ]


def test_a_batch_that_failed_is_the_same_again(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 100, 2)
    stream = Stream(world, name, maxOffsetsPerTrigger=30)
    stream.fail_in = 0
    assert "planted" in error_of(stream.query())
    world.produce(name, 100, 2)
    first = stream.run()
    assert {number for number, _, _ in first} <= {0, 1}
    assert sorted((partition, offset) for number, partition, offset in first if number == 0) == [
        (number, offset) for number in (0, 1) for offset in range(15)
    ]
    while stream.run():
        pass
    assert stream.offsets() == every(2, 200)


def test_transactions_both_ways(world: World, name: str) -> None:
    from tests.integration.pipeline import oddities
    from tests.integration.pipeline.datasource.reading import jvm

    oddities.everything(world, name)
    for level in ("read_committed", "read_uncommitted"):
        stream = Stream(world, name, isolationLevel=level, maxOffsetsPerTrigger=50)
        stream.checkpoint = str(world.folder / level)
        query = stream.query(trigger={"processingTime": "0 seconds"})
        want = sorted(
            (row.partition, row.offset)
            for row in jvm(world, name, **{"kafka.isolation.level": level})
            .select("partition", "offset")
            .collect()
        )
        until(lambda stream=stream, want=want: len(stream.seen) >= len(want), "not everything came")
        query.stop()
        assert stream.offsets() == want


def test_a_topic_made_anew_or_cut_is_named(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1)
    world.produce(name, 50)
    stream = Stream(world, name)
    assert len(stream.run()) == 50
    world.kafka.admin().delete_topics([name])[name].result(30)
    until(lambda: name not in world.view.topics(), "the topic is not deleted")
    assert f"topic {name} does not exist any more" in error_of(stream.query())
    world.kafka.create_topic(name, 1)
    world.produce(name, 80)  # more than before: offsets alone do not tell
    told = error_of(stream.query())
    assert f"topic {name} was deleted and created again: the checkpoint has id" in told
    assert len(stream.seen) == 50
    assert len(stream.run(failOnDataLoss="false")) == 80, "from the beginning of the new one"


def test_offsets_that_expired_are_named(world: World, name: str) -> None:
    from confluent_kafka import TopicPartition

    world.kafka.create_topic(name, 1)
    world.produce(name, 50)
    stream = Stream(world, name)
    stream.run()
    world.produce(name, 50)
    place = TopicPartition(name, 0, 70)
    world.kafka.admin().delete_records([place])[place].result(30)
    told = error_of(stream.query())
    assert f"{name}/0: offsets 50 to 69 are out of range: they were deleted" in told
    assert [offset for _, _, offset in stream.run(failOnDataLoss="false")] == list(range(70, 100))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        (
            {"startingOffsets": "earliest", "subscribe": "TOPIC-not-there"},
            "topic TOPIC-not-there does not exist",
        ),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger: 'many' is not a whole number"),
    ],
)
def test_what_can_not_be_is_named(world: World, name: str, options: dict[str, str], told: str) -> None:
    world.kafka.create_topic(name, 1)
    with pytest.raises(Exception) as caught:
        Stream(world, name).query(
            **{key: value.replace("TOPIC", name) for key, value in options.items()}
        ).awaitTermination(60)
    assert told.replace("TOPIC", name) in str(caught.value)


PROGRAM = """
import sys
from pixy.pipeline.datasource import register
from pixy.pipeline.spark.session import open_session
bootstrap, topic, folder = sys.argv[1:]
spark = open_session("killed", "local[2]", settings=["spark.driver.memory=512m"])
register(spark)
frame = (
    spark.readStream.format("pixy").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "1000").load()
)
frame.select("partition", "offset", "value").writeStream.format("parquet").option("path", folder + "/out").option(
    "checkpointLocation", folder + "/checkpoint"
).trigger(processingTime="0 seconds").start().awaitTermination()
"""


def test_killed_and_started_again_nothing_is_lost_or_twice(world: World, name: str, tmp_path: Path) -> None:
    world.kafka.create_topic(name, 2)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def commits() -> int:
        return len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))

    def run_until(check: Callable[[], bool]) -> None:
        process = subprocess.Popen(
            [sys.executable, str(program), world.kafka.bootstrap()[0], name, str(tmp_path)],
            cwd=ROOT,
            start_new_session=True,
            env={**os.environ, **FAST_START, "PYTHONPATH": str(ROOT)},
        )
        try:
            until(lambda: process.poll() is not None or check(), "nothing comes")
            assert process.poll() is None, "it ended by itself"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    world.produce(name, 4000, 2)
    run_until(lambda: commits() >= 2)
    world.produce(name, 4000, 2)
    run_until(lambda: len(committed(world, tmp_path)) >= 8000)
    assert sorted(committed(world, tmp_path)) == every(2, 8000)


def committed(world: World, folder: Path) -> list[tuple[int, int]]:
    """What readers of the sink see: what its log lists."""
    if not list((folder / "out" / "_spark_metadata").glob("[0-9]*")):
        return []
    frame = world.spark.read.schema("partition int, offset long").parquet(str(folder / "out"))
    return [(row.partition, row.offset) for row in frame.collect()]
