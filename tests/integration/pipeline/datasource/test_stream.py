"""Streams of ``format("pixy")`` read every offset once, with limits, restarts, kills and deleted topics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.pipeline.datasource.queries import caught_up, ended, error_of, stopped_when, until
from tests.integration.pipeline.datasource.reading import given
from tests.integration.pipeline.support import FAST_START, World
from tests.support import ROOT

pytestmark = pytest.mark.timeout(300)


class Stream:
    """A query that records (batch, partition, offset) of each row; its checkpoint survives restarts."""

    def __init__(self, world: World, topic: str, **options: Any) -> None:
        self.world, self.topic, self.options = world, topic, options
        self.checkpoint = str(world.folder / "checkpoint")
        self.seen: list[tuple[int, int, int]] = []
        self.fail_in: int | None = None

    def run(self, **more: Any) -> list[tuple[int, int, int]]:
        """Run the query once and return its rows; Spark reads one batch, up to the limit."""
        before = len(self.seen)
        ended(lambda: self.query(**more))
        return self.seen[before:]

    def endless(self) -> Any:
        """Start a query that goes on until it is stopped."""
        return self.query(trigger={"processingTime": "0 seconds"})

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


def test_a_stream_continues_at_its_checkpoint_and_obeys_its_limit(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 400, 2)
    stream = Stream(world, name, maxOffsetsPerTrigger=100)

    def committed() -> bool:
        # A batch that is stopped before Spark commits it is read again.
        return len(stream.seen) >= 400 and Path(stream.checkpoint, f"commits/{stream.seen[-1][0]}").exists()

    stopped_when(stream.endless, committed, "records are missing, or the last batch was not committed")
    sizes: dict[int, int] = {}
    for number, _, _ in stream.seen:
        sizes[number] = sizes.get(number, 0) + 1
    assert set(sizes.values()) == {100}, sizes
    assert stream.offsets() == every(2, 400)
    world.produce(name, 30, 2)
    assert len(stream.run()) == 30
    assert stream.offsets() == every(2, 430)
    assert stream.run() == [], "there are no new records"


def test_partitions_added_later_are_read_from_their_beginning(world: World, name: str) -> None:
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


def test_a_failed_first_batch_is_repeated_with_the_same_offsets(world: World, name: str) -> None:
    """``latest`` has moved after a restart; the offsets of the planned first batch must still be read."""
    world.kafka.create_topic(name, 2)
    world.produce(name, 40, 2)
    stream = Stream(world, name, startingOffsets="latest")
    stream.fail_in = 0
    assert "planted" in error_of(stream.query)
    world.produce(name, 20, 2)
    assert stream.run() == [], "the first batch is repeated, and was empty"
    assert len(stream.run()) == 20

    # The same with a batch that is not empty, killed between its plan and its commit.
    from pixy.pipeline.datasource import options, source

    reader = source.PixyStreamReader(
        options.parse(given(world, name, {"startingOffsets": "latest"}), streaming=True), ("offset",)
    )
    first = reader.initialOffset()
    world.produce(name, 20, 2)
    planned = reader.latestOffset()
    world.produce(name, 60, 2)
    # A new process knows only the planned end.
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


def test_a_failed_batch_is_repeated_with_the_same_offsets(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2)
    world.produce(name, 100, 2)
    stream = Stream(world, name, maxOffsetsPerTrigger=30)
    stream.fail_in = 0
    assert "planted" in error_of(stream.query)
    world.produce(name, 100, 2)
    first = stream.run()
    assert {number for number, _, _ in first} <= {0, 1}
    assert sorted((partition, offset) for number, partition, offset in first if number == 0) == [
        (number, offset) for number in (0, 1) for offset in range(15)
    ]
    stopped_when(stream.endless, lambda: len(stream.seen) >= 200, "records are missing")
    assert stream.offsets() == every(2, 200)


def test_both_isolation_levels_read_what_sparks_source_reads(world: World, everything: str) -> None:
    from tests.integration.pipeline.datasource.reading import jvm

    name = everything
    for level in ("read_committed", "read_uncommitted"):
        stream = Stream(world, name, isolationLevel=level, maxOffsetsPerTrigger=50)
        stream.checkpoint = str(world.folder / level)
        want = sorted(
            (row.partition, row.offset)
            for row in jvm(world, name, **{"kafka.isolation.level": level})
            .select("partition", "offset")
            .collect()
        )
        stopped_when(
            stream.endless,
            lambda stream=stream, want=want: len(stream.seen) >= len(want),
            "records are missing",
        )
        assert stream.offsets() == want


def test_a_deleted_or_recreated_topic_is_an_error(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1)
    world.produce(name, 50)
    stream = Stream(world, name)
    assert len(stream.run()) == 50
    world.kafka.admin().delete_topics([name])[name].result(30)
    until(lambda: name not in world.view.topics(), "the topic is not deleted")
    assert f"topic {name} no longer exists" in error_of(stream.query)
    world.kafka.create_topic(name, 1)
    world.produce(name, 80)  # more than before, so offsets alone do not show it
    error = error_of(stream.query)
    assert f"topic {name} was deleted and created again: the checkpoint has id" in error
    assert len(stream.seen) == 50
    assert len(stream.run(failOnDataLoss="false")) == 80, "the new topic is read from its beginning"


def test_deleted_offsets_are_an_error_or_left_out(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1)
    world.produce(name, 50)
    stream = Stream(world, name)
    stream.run()
    world.produce(name, 50)
    world.kafka.delete_records(name, 0, 70)
    error = error_of(stream.query)
    assert f"{name}/0: offsets 50 to 69 are out of range: they were deleted" in error
    assert [offset for _, _, offset in stream.run(failOnDataLoss="false")] == list(range(70, 100))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "option endingOffsets: a stream has no end"),
        (
            {"startingOffsets": "earliest", "subscribe": "TOPIC-not-there"},
            "topic TOPIC-not-there does not exist",
        ),
        ({"maxOffsetsPerTrigger": "many"}, "option maxOffsetsPerTrigger: 'many' is not a whole number"),
    ],
)
def test_a_wrong_query_is_an_error_that_names_the_option(
    world: World, ten_records: str, options: dict[str, str], message: str
) -> None:
    name = ten_records
    chosen = {key: value.replace("TOPIC", name) for key, value in options.items()}
    error = error_of(lambda: Stream(world, name).query(**chosen))
    assert message.replace("TOPIC", name) in error


PROGRAM = """
import sys
from pixy.pipeline.spark.session import open_session
from tests.integration.pipeline.datasource.queries import ended
from tests.integration.pipeline.datasource.test_stream import write_files
spark = open_session("killed", "local[2]", settings=["spark.driver.memory=512m"])
ended(lambda: write_files(spark, *sys.argv[1:]))
"""


def write_files(spark: Any, bootstrap: str, topic: str, folder: str) -> Any:
    """Start a query that writes a topic's records to the folder ``out``."""
    from pixy.pipeline.datasource import register

    register(spark)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format("pixy").options(**options, maxOffsetsPerTrigger="1000").load()
    return (
        frame.select("partition", "offset", "value")
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="0 seconds")
        .start()
    )


def test_every_record_is_written_once_when_spark_is_killed(world: World, name: str, tmp_path: Path) -> None:
    """Kill -9 of a process; its query goes on in the tests' session, which knows only the checkpoint."""
    world.kafka.create_topic(name, 2)
    world.produce(name, 4000, 2)
    arguments = (world.kafka.bootstrap()[0], name, str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=ROOT,
        start_new_session=True,
        env={**os.environ, **FAST_START, "PYTHONPATH": str(ROOT)},
    )

    def commits() -> int:
        return len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*")))

    try:
        until(lambda: process.poll() is not None or commits() >= 2, "no batches were committed")
        assert process.poll() is None, "the program ended by itself"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    world.produce(name, 4000, 2)
    caught_up(lambda: write_files(world.spark, *arguments))
    assert sorted(committed(world, tmp_path)) == every(2, 8000)


def committed(world: World, folder: Path) -> list[tuple[int, int]]:
    """Return the rows of the files that the sink's log lists."""
    if not list((folder / "out" / "_spark_metadata").glob("[0-9]*")):
        return []
    frame = world.spark.read.schema("partition int, offset long").parquet(str(folder / "out"))
    return [(row.partition, row.offset) for row in frame.collect()]
