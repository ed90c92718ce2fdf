"""A stream's batches start and end correctly while the cluster changes. No Kafka, no Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pixy.pipeline.datasource import options
from pixy.pipeline.datasource.cluster import Topic
from pixy.pipeline.datasource.positions import EARLIEST, LATEST, Position
from pixy.pipeline.datasource.stream import StreamPlanner
from pixy.pipeline.errors import CheckpointError, SourceError
from pixy.wire.types import TopicPartition
from tests.effort import examples


@dataclass
class FakeCluster:
    """The planner's view of a cluster."""

    bounds_: dict[TopicPartition, tuple[int, int]]
    ids: dict[str, str] = field(default_factory=dict)

    def topics(self, _selection: object) -> dict[str, Topic]:
        names = sorted({topic for topic, _ in self.bounds_})
        return {
            name: Topic(
                self.ids.get(name, f"id-{name}"),
                tuple(sorted(number for topic, number in self.bounds_ if topic == name)),
            )
            for name in names
        }

    def offsets(self, wanted: Mapping[TopicPartition, int], *, committed: bool) -> dict[TopicPartition, int]:
        return {tp: self.bounds_[tp][{EARLIEST: 0, LATEST: 1}[asked]] for tp, asked in wanted.items()}

    def resolve(
        self, position: Position, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        wanted = position.wanted(partitions)
        return {
            tp: self.offsets({tp: asked}, committed=committed)[tp] if asked < 0 else asked
            for tp, asked in wanted.items()
        }


def planner(cluster: FakeCluster, **more: str) -> StreamPlanner:
    given_ = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", **more}
    if "subscribePattern" in more:
        given_.pop("subscribe")
    return StreamPlanner(options.parse(given_, streaming=True), cluster)  # type: ignore[arg-type]


def spans(found: list[Any]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in found]


def test_an_end_is_returned_again_until_its_batch_is_planned() -> None:
    cluster = FakeCluster({("t", 0): (0, 1000), ("t", 1): (0, 10)})
    stream = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="100")
    start, end = stream.initial(), stream.latest()
    cluster.bounds_[("t", 1)] = (0, 100_000)  # now its share would be another one
    assert stream.latest() == end, "Spark may have recorded the end, so it must not move backwards"
    assert spans(stream.ranges(start, end)) == [(0, 0, 99), (1, 0, 1)]
    then = stream.latest()
    assert spans(stream.ranges(end, then)) == [(0, 99, 100), (1, 1, 100)]


def test_without_new_offsets_the_document_is_the_same() -> None:
    cluster = FakeCluster({("t", 0): (0, 10)})
    stream = planner(cluster, startingOffsets="earliest")
    start, end = stream.initial(), stream.latest()
    assert start != end
    stream.ranges(start, end)
    assert json.dumps(stream.latest()) == json.dumps(end)
    # After a restart the document comes from the checkpoint.
    again = planner(cluster, startingOffsets="earliest")
    kept = json.loads(json.dumps(end))
    assert again.ranges(kept, kept) == []
    assert json.dumps(again.latest()) == json.dumps(end)


def test_a_first_batch_that_is_planned_again_has_the_same_start() -> None:
    cluster = FakeCluster({("t", 0): (0, 50)})
    stream = planner(cluster)  # latest
    start = stream.initial()
    cluster.bounds_[("t", 0)] = (0, 70)
    end = stream.latest()
    assert spans(stream.ranges(start, end)) == [(0, 50, 70)]
    cluster.bounds_[("t", 0)] = (60, 90)
    again = planner(cluster)
    assert again.ranges(end, end) == []
    assert spans(again.ranges(again.initial(), end)) == [(0, 50, 70)]
    assert spans(again.ranges(end, again.latest())) == [(0, 70, 90)]


def test_newer_spark_passes_the_start() -> None:
    cluster = FakeCluster({("t", 0): (0, 50)})
    stream = planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    start = stream.initial()
    end = stream.latest(start)
    assert spans(stream.ranges(start, end)) == [(0, 0, 10)]
    assert spans(stream.ranges(end, stream.latest(end))) == [(0, 10, 20)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({("t", 0): (0, 5)}, "t/0 ends at offset 5, but was read up to 10"),
        ({}, "topic t no longer exists"),
    ],
)
def test_lost_offsets_and_deleted_topics_are_errors(
    change: dict[TopicPartition, tuple[int, int]], message: str
) -> None:
    cluster = FakeCluster({("t", 0): (0, 10)})
    stream = planner(cluster, startingOffsets="earliest")
    stream.ranges(stream.initial(), stream.latest())
    cluster.bounds_ = change
    with pytest.raises(SourceError, match=message):
        stream.latest()


def test_a_recreated_topic_is_an_error_or_read_from_its_beginning() -> None:
    cluster = FakeCluster({("t", 0): (0, 10)})
    stream = planner(cluster, startingOffsets="earliest")
    end = stream.latest()
    stream.ranges(stream.initial(), end)
    cluster.bounds_, cluster.ids = {("t", 0): (3, 500)}, {"t": "other"}
    with pytest.raises(
        SourceError,
        match="topic t was deleted and created again: the checkpoint has id id-t, the cluster has other",
    ):
        stream.latest()
    lenient = planner(cluster, startingOffsets="earliest", failOnDataLoss="false")
    lenient.ranges(end, end)
    assert spans(lenient.ranges(end, lenient.latest())) == [(0, 3, 500)]


def test_a_checkpoint_of_another_source_is_an_error() -> None:
    stream = planner(FakeCluster({("t", 0): (0, 10)}))
    with pytest.raises(CheckpointError, match="not those of format pixy"):
        stream.ranges({"t": {"0": 1}}, {"t": {"0": 2}})  # Spark's own Kafka source's


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["grow", "partition", "trigger", "restart", "crash"]),
            st.integers(0, 3),
            st.integers(1, 50),
        ),
        max_size=25,
    ),
    st.integers(1, 30),
)
def test_every_offset_is_read_once_through_restarts_and_crashes(
    events: list[tuple[str, int, int]], limit: int
) -> None:
    """Like Spark, the test records a batch's end before it runs it, and repeats it after a crash."""
    cluster = FakeCluster({("t", 0): (0, 20)})

    def fresh() -> StreamPlanner:
        return planner(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=str(limit))

    stream, read = fresh(), dict[int, list[tuple[int, int]]]()
    log: list[str] = []  # of ends, as text
    done = 0

    def run_batch(stream: StreamPlanner) -> None:
        start = json.loads(log[done - 1]) if done else stream.initial()
        for partition, begin, end in spans(stream.ranges(start, json.loads(log[done]))):
            read.setdefault(partition, []).append((begin, end))

    def trigger(stream: StreamPlanner) -> None:
        nonlocal done
        end = json.dumps(stream.latest())
        if not log or end != log[-1]:
            log.append(end)
            run_batch(stream)
            done += 1

    for change, number, amount in events:
        partitions = len(cluster.bounds_)
        if change == "grow":
            begin, end = cluster.bounds_[("t", number % partitions)]
            cluster.bounds_[("t", number % partitions)] = (begin, end + amount)
        elif change == "partition":
            cluster.bounds_[("t", partitions)] = (0, amount)
        elif change == "trigger":
            trigger(stream)
        else:
            if change == "crash":
                end = json.dumps(stream.latest())
                if not log or end != log[-1]:
                    log.append(end)
            stream = fresh()
            if log:
                last = json.loads(log[-1])
                assert stream.ranges(last, last) == []
                if done < len(log):
                    run_batch(stream)
                    done += 1
    before = -1
    while before != len(log):
        before = len(log)
        trigger(stream)
    for (_, partition), (begin, end) in cluster.bounds_.items():
        at = begin
        for one, until in read.get(partition, []):
            assert one == at
            at = until
        assert at == end
