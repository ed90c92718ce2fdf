"""Topics come, grow, lose records, go and are created again: each continues alone, and the lake says what happened."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import NewPartitions

from pixy.pipeline.archive.batch_writer import BatchWriter
from pixy.pipeline.archive.subscription import Subscription
from pixy.pipeline.errors import PipelineError, SourceError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.selection import Selection
from pixy.pipeline.replay.job import ReplayJob
from pixy.pipeline.replay.request import ReplayRequest
from pixy.pipeline.replay.state import ReplayState
from tests.integration.pipeline.delta import delta_rows, read_by_spark
from tests.integration.pipeline.support import World, assert_sound

pytestmark = pytest.mark.timeout(240)


def skipped(world: World) -> list[tuple[str, int, int, int, str]]:
    return [
        (each.range.topic, each.range.partition, each.range.start, each.range.end, each.range.skipped)
        for ranges in world.lake().state().all_ranges.values()
        for each in ranges
        if each.range.skipped
    ]


def events(world: World) -> list[str]:
    return [event for entry in world.lake().history() for event in entry.events]


def grow(world: World, topic: str, partitions: int) -> None:
    world.kafka.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


def test_a_topic_that_is_created_again_begins_an_epoch(world: World, name: str) -> None:
    first, other = f"{name}-a", f"{name}-b"
    pattern = Subscription(pattern=f"{name}-.*")
    for topic in (first, other):
        world.kafka.create_topic(topic)
        world.produce(topic, 10)
    assert world.archive(subscription=pattern).records == 20
    before = world.truth(first)
    old_id = world.view.topic_ids([first])[first]
    world.kafka.admin().delete_topics([first])[first].result(30)
    # A topic that is gone fails alone; the others continue.
    world.produce(other, 5)
    with pytest.raises(SourceError, match=f"topic {first} does not exist: it was deleted; the lake keeps"):
        world.archive(first, other)
    assert world.lake().state().partition_stats(other)[0].count == 15
    world.kafka.create_topic(first)
    world.produce(first, 4)
    world.produce(other, 1)
    assert world.archive(subscription=pattern).records == 5
    lake = world.lake()
    assert_sound(lake)
    assert lake.state().partition_stats(first) == world.truth(first)
    assert lake.state({first: old_id}).partition_stats(first) == before
    new_id = world.view.topic_ids([first])[first]
    assert (
        f"topic {first}: created again: its id was {old_id} and is {new_id}, and its offsets begin anew"
        in events(world)
    )
    earlier = ReplayRequest(first, f"{name}-c", Selection(), topic_id=old_id)
    state = ReplayState(str(world.folder / "state"))
    for request, count in ((earlier, 10), (ReplayRequest(first, f"{name}-c", Selection()), 4)):
        assert ReplayJob(lake, request, world.proxy, world.view, state).dry_run().selected == {0: count}
    # Ids tell the epochs apart for any reader of the table.
    rows = delta_rows(world).where(f"topic = '{first}'").groupBy("topic_id").count().collect()
    assert {row["topic_id"]: row["count"] for row in rows} == {old_id: 10, new_id: 4}


def test_a_kill_before_the_commit_and_growth_after_it(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.create_topic(f"{name}-a", 1)
    world.produce(f"{name}-a", 10)

    def killed(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    pattern = Subscription(pattern=f"{name}-.*")
    with monkeypatch.context() as patched:
        patched.setattr(BatchWriter, "_with_stats", killed)
        with pytest.raises(RuntimeError, match="killed"):
            world.archive(subscription=pattern)
    grow(world, f"{name}-a", 2)
    world.kafka.create_topic(f"{name}-b", 1)
    world.produce(f"{name}-a", 10, 2)
    world.produce(f"{name}-b", 3)
    assert world.archive(subscription=pattern).records == 23
    assert_sound(world.lake())
    assert world.lake().state().partition_stats(f"{name}-a") == world.truth(f"{name}-a")
    grow(world, f"{name}-a", 3)
    world.produce(f"{name}-a", 3, 3)
    assert world.archive(subscription=pattern).records == 3
    assert f"topic {name}-a: partition 2 was added" in events(world)
    rows = read_by_spark(world)
    assert len(rows) == len({position for position, _ in rows}) == 26


def test_topics_may_change_between_runs(world: World, name: str) -> None:
    topics = [f"{name}-{each}" for each in "abc"]
    for topic in topics:
        world.kafka.create_topic(topic)
        world.produce(topic, 5)
    assert world.archive(topics[0]).records == 5
    # The log of an added topic begins above 0: no loss, and recorded.
    world.kafka.delete_records(topics[1], 0, 2)
    assert world.archive(topics[0], topics[1]).records == 3
    assert skipped(world) == [(topics[1], 0, 0, 2, "deleted in Kafka before it was archived")]
    assert world.archive(topics[1], topics[2]).records == 5
    # Another job continues where the lake ends.
    world.produce(topics[0], 1)
    assert world.archive(topics[0], name="other").records == 1
    assert_sound(world.lake())


def test_offsets_that_expired_unread_are_refused_or_skipped_and_recorded(world: World, name: str) -> None:
    other = f"{name}-b"
    for topic in (name, other):
        world.kafka.create_topic(topic)
    world.produce(name, 10)
    world.archive(name)
    world.produce(name, 30)
    world.produce(other, 7)
    world.kafka.delete_records(name, 0, 25)
    with pytest.raises(SourceError, match=f"offsets 10 to 24 of {name}/0 are out of range"):
        world.archive(name, other)
    assert world.lake().state().partition_stats(name)[0].count == 10
    assert world.lake().state().partition_stats(other)[0].count == 7
    assert world.archive(name, skip_lost=True).records == 15
    assert skipped(world) == [(name, 0, 10, 25, "deleted in Kafka before it was archived")]
    assert_sound(world.lake())


def test_a_second_writer_of_the_same_offsets_publishes_nothing_twice(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have read and written the same records; the slower one sees the other's commit when it commits."""
    world.kafka.create_topic(name, 2)
    world.produce(name, 40, 2)
    with_stats = BatchWriter._with_stats
    other: list[int] = []

    def overtaken(self: BatchWriter, ranges: list, files: list) -> object:
        if not other:
            other.append(0)
            world.produce(name, 2, 2)
            other[0] = world.archive(name, name="other").records
        return with_stats(self, ranges, files)

    monkeypatch.setattr(BatchWriter, "_with_stats", overtaken)
    assert world.archive(name).records == 0
    assert other == [42]
    assert_sound(world.lake())
    assert world.lake().state().partition_stats(name) == world.truth(name)
    assert len(read_by_spark(world)) == 42


def test_a_topic_that_cannot_be_written_fails_alone(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"{name}-a", f"{name}-b"]
    for topic in topics:
        world.kafka.create_topic(topic)
        world.produce(topic, 5)
    with_stats = BatchWriter._with_stats

    def broken(self: BatchWriter, ranges: list, files: list) -> object:
        if any(each.topic == topics[0] for each in ranges):
            raise PipelineError("broken")
        return with_stats(self, ranges, files)

    monkeypatch.setattr(BatchWriter, "_with_stats", broken)
    with pytest.raises(PipelineError, match="broken"):
        world.archive(*topics)
    assert world.lake().state().topics() == [topics[1]]
    assert world.lake().state().partition_stats(topics[1])[0] != Stats()
