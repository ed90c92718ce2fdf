"""Every file holds one topic and one day, however the batch was written."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.pipeline.archive.batch_writer import BatchWriter
from pixy.pipeline.errors import PipelineError
from tests.integration.pipeline.support import World, assert_sound

pytestmark = pytest.mark.timeout(240)

DAY = 86_400_000
MIDNIGHT = 1_700_006_400_000
"""2023-11-15."""


def produce(world: World, topic: str, partitions: int, times: list[int]) -> None:
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0], "linger.ms": 5})
    for number, time in enumerate(times):
        producer.produce(topic, b"value %d" % number, b"k", number % partitions, timestamp=time)
    assert producer.flush(30) == 0


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record how batches are written: flat, or by day (also to split a file)."""
    made: list[str] = []
    read_back, by_day = BatchWriter._read_back, BatchWriter._save_by_day

    def reading(self: BatchWriter, folder: str) -> Any:
        if folder.endswith("/flat"):
            made.append("flat")
        return read_back(self, folder)

    def saving(self: BatchWriter, *args: Any) -> Any:
        made.append("by day")
        return by_day(self, *args)

    monkeypatch.setattr(BatchWriter, "_read_back", reading)
    monkeypatch.setattr(BatchWriter, "_save_by_day", saving)
    return made


def check(world: World, topic: str, dates: set[str]) -> None:
    lake = world.lake()
    assert_sound(lake)
    assert lake.state().partition_stats(topic) == world.truth(topic)
    files = lake.state().select(topic)
    assert {file.date for file in files} == dates
    for file in files:
        assert file.min_timestamp // DAY == file.max_timestamp // DAY, file


def test_a_batch_of_one_day_is_written_once(world: World, name: str, writes: list[str]) -> None:
    world.kafka.create_topic(name, 2, **{"retention.ms": "-1"})
    produce(world, name, 2, [MIDNIGHT + at for at in range(40)])
    world.archive(name)
    assert writes == ["flat"]
    assert len(world.lake().state().files) == 2
    check(world, name, {"2023-11-15"})


def test_a_file_across_midnight_is_split(world: World, name: str, writes: list[str]) -> None:
    world.kafka.create_topic(name, 2, **{"retention.ms": "-1"})
    # Partition 0 has one day, partition 1 late records and one of the first day of 1970.
    produce(
        world,
        name,
        2,
        [MIDNIGHT + 5 if at % 2 == 0 else MIDNIGHT - 20 + at for at in range(40)] + [MIDNIGHT, 7],
    )
    world.archive(name)
    assert writes == ["flat", "by day"]
    check(world, name, {"2023-11-14", "2023-11-15", "1970-01-01"})
    # Half of the records were in partitions with several days: the next batch of the run is written by day.
    produce(world, name, 2, [MIDNIGHT + at % 4 * DAY for at in range(80)])
    writes.clear()
    world.archive(name, batch_records=40)
    assert writes[:2] == ["flat", "by day"] and set(writes[2:]) == {"by day"}
    check(world, name, {"1970-01-01", *(f"2023-11-{day}" for day in range(14, 19))})


def test_many_thin_partitions_share_files(world: World, name: str, writes: list[str]) -> None:
    world.kafka.create_topic(name, 7, **{"retention.ms": "-1"})
    produce(world, name, 7, [MIDNIGHT + at % 3 * DAY for at in range(70)])
    world.archive(name)
    assert writes == ["by day"]
    assert len(world.lake().state().files) <= 6
    check(world, name, {"2023-11-15", "2023-11-16", "2023-11-17"})


def test_a_split_that_loses_a_record_is_not_published(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_day = BatchWriter._save_by_day
    monkeypatch.setattr(
        BatchWriter,
        "_save_by_day",
        lambda self, rows, folder: by_day(self, rows.where("offset != 3"), folder),
    )
    world.kafka.create_topic(name, 1, **{"retention.ms": "-1"})
    produce(world, name, 1, [MIDNIGHT - 5 + at for at in range(10)])
    with pytest.raises(PipelineError, match="nothing is published"):
        world.archive(name)
    assert world.lake().state().files == {}
