"""A Delta table over a lake's files: Delta's own reader sees each record of the manifests once."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.pipeline.archive.compact import Compactor
from pixy.pipeline.archive.delta import DeltaTable
from pixy.pipeline.errors import LakeError, PipelineError, UsageError
from pixy.pipeline.lake.verify import verify
from tests.integration.pipeline.delta import delta_commits, delta_rows, read_by_delta, read_by_manifests
from tests.integration.pipeline.support import World, assert_sound, command

pytestmark = pytest.mark.timeout(240)

DAY = 86_400_000
FOREVER = {"retention.ms": "-1"}


def produce(world: World, topic: str, count: int, partitions: int = 2) -> None:
    """Produce records of two days, so that a batch has files of both."""
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0], "linger.ms": 5})
    for number in range(count):
        producer.produce(
            topic,
            b"value %d" % number,
            None,
            number % partitions,
            timestamp=1_700_000_000_123 + number % 4 // 2 * DAY,
            headers=[("h", None), ("h", b"%d" % number)],
        )
    assert producer.flush(30) == 0


def test_the_table_has_the_records_of_the_lake(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2, **FOREVER)
    produce(world, name, 40)
    assert world.archive(name, delta=True).records == 40
    produce(world, name, 20)
    assert world.archive(name, delta=True).records == 20
    assert world.archive(name, delta=True).records == 0
    assert delta_commits(world) == [0, 1]
    assert len(read_by_delta(world)) == 60
    assert read_by_delta(world) == read_by_manifests(world)
    assert delta_rows(world).where(f"topic = '{name}' and date = '2023-11-14'").count() == 30
    assert delta_rows(world).select("headers").first()["headers"][0].value is None
    # The manifests' stats let Delta skip files.
    assert len(delta_rows(world).where("offset > 25").inputFiles()) < len(delta_rows(world).inputFiles())
    assert_sound(world.lake())
    assert verify(world.lake()).unlisted == []

    before = read_by_delta(world)
    done = Compactor(world.spark, world.lake(), keep=0, delta=True).run("2099-01-01")
    assert done.deleted == done.files_before > done.files_after
    assert read_by_delta(world) == before == read_by_manifests(world)
    assert delta_commits(world) == [0, 1, 2, 3]  # a compaction publishes an entry for each day


def test_the_next_run_makes_a_missing_commit(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.kafka.create_topic(name, 2, **FOREVER)
    produce(world, name, 10)
    world.archive(name, delta=True)
    produce(world, name, 10)

    def killed(*_: Any) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTable, "_commit", killed)
        with pytest.raises(PipelineError, match="killed"):
            world.archive(name, delta=True)
    assert (len(read_by_manifests(world)), len(read_by_delta(world))) == (20, 10)
    produce(world, name, 6)
    assert world.archive(name, delta=True).records == 6
    assert delta_commits(world) == [0, 1, 2]
    assert read_by_delta(world) == read_by_manifests(world)


def test_concurrent_followers_commit_once(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1, **FOREVER)
    for _ in range(4):
        produce(world, name, 4, 1)
        world.archive(name)
    tables = [DeltaTable(world.spark, world.lake()) for _ in range(3)]
    with ThreadPoolExecutor(3) as followers:
        made = list(followers.map(DeltaTable.follow, tables))
    assert sum(made) == 4, made
    assert delta_commits(world) == [0, 1, 2, 3]
    assert read_by_delta(world) == read_by_manifests(world)


def test_a_table_left_behind_or_changed_by_others_is_refused(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2, **FOREVER)
    produce(world, name, 10)
    world.archive(name, delta=True)
    with pytest.raises(
        UsageError,
        match=r"has a Delta table .data/_delta_log., which an archive without it would leave behind",
    ):
        world.archive(name)
    with pytest.raises(UsageError, match="which a compaction without it would leave behind"):
        Compactor(world.spark, world.lake())
    path = str(world.folder / "lake" / "data")
    world.spark.sql(f"DELETE FROM delta.`{path}` WHERE offset = 0")
    with pytest.raises(
        LakeError, match=r"another program has changed the Delta table .*/lake/data.*it (lacks|has) data/"
    ):
        world.archive(name, delta=True)
    assert_sound(world.lake())
    # Do what the message says.
    shutil.rmtree(Path(path, "_delta_log"))
    world.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    produce(world, name, 4)
    assert world.archive(name, delta=True).records == 4
    assert read_by_delta(world) == read_by_manifests(world)
    assert delta_commits(world) == [0, 1]


def test_missing_jars_are_named_on_the_command_line(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2, **FOREVER)
    (world.folder / "empty").mkdir()
    code, summary, stderr = command(
        "archive",
        "--config",
        world.config(),
        "--topics",
        name,
        "--lake",
        str(world.folder / "lake"),
        "--format",
        "delta",
        "--delta-jars",
        str(world.folder / "empty"),
    )
    assert code == 1
    assert "empty lacks delta-spark_2.13-VERSION.jar, delta-storage-VERSION.jar" in summary["error"], stderr
