"""A Delta table over a lake's files: what Delta's own reader sees is what the manifests say, once each."""

from __future__ import annotations

import json
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
from tests.integration.pipeline.support import World, assert_sound, command

pytestmark = pytest.mark.timeout(240)

DAY = 86_400_000
FOREVER = {"retention.ms": "-1"}
Place = tuple[str, int, int]


def produce(world: World, topic: str, count: int, partitions: int = 2) -> None:
    """Over two days, so that a batch has files of both."""
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


def rows(world: World) -> Any:
    return world.spark.read.format("delta").load(str(world.folder / "lake" / "data"))


def by_delta(world: World) -> list[tuple[Place, int]]:
    """Places and content hashes as Delta's reader has them; sorted, so one that is twice there shows."""
    return sorted(
        ((row["topic"], row["partition"], row["offset"]), row["hash"]) for row in rows(world).collect()
    )


def by_manifests(world: World) -> list[tuple[Place, int]]:
    lake = world.lake()
    files = [lake.path(path) for path in lake.state().files]
    found = world.spark.read.parquet(*files).select("topic", "partition", "offset", "hash").collect()
    return sorted(((row["topic"], row["partition"], row["offset"]), row["hash"]) for row in found)


def commits(world: World) -> list[int]:
    """The transaction versions in Delta's log: the entries that it has taken over."""
    found = []
    for path in sorted((world.folder / "lake" / "data" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        found += [action["txn"]["version"] for action in actions if "txn" in action]
    return found


def test_the_table_has_what_the_lake_has(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2, **FOREVER)
    produce(world, name, 40)
    assert world.archive(name, delta=True).records == 40
    produce(world, name, 20)
    assert world.archive(name, delta=True).records == 20
    assert world.archive(name, delta=True).records == 0
    assert commits(world) == [0, 1]
    assert len(by_delta(world)) == 60
    assert by_delta(world) == by_manifests(world)
    assert rows(world).where(f"topic = '{name}' and date = '2023-11-14'").count() == 30
    assert rows(world).select("headers").first()["headers"][0].value is None
    # The manifests' figures let Delta leave files out.
    assert len(rows(world).where("offset > 25").inputFiles()) < len(rows(world).inputFiles())
    assert_sound(world.lake())
    assert verify(world.lake()).unlisted == []

    before = by_delta(world)
    done = Compactor(world.spark, world.lake(), keep=0, delta=True).run("2099-01-01")
    assert done.deleted == done.files_before > done.files_after
    assert by_delta(world) == before == by_manifests(world)
    assert commits(world) == [0, 1, 2, 3]  # an entry for each of the two days


def test_a_commit_that_was_not_made_is_made_by_the_next_run(
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
    assert (len(by_manifests(world)), len(by_delta(world))) == (20, 10)
    produce(world, name, 6)
    assert world.archive(name, delta=True).records == 6
    assert commits(world) == [0, 1, 2]
    assert by_delta(world) == by_manifests(world)


def test_followers_at_the_same_time_commit_once(world: World, name: str) -> None:
    world.kafka.create_topic(name, 1, **FOREVER)
    for _ in range(4):
        produce(world, name, 4, 1)
        world.archive(name)
    tables = [DeltaTable(world.spark, world.lake()) for _ in range(3)]
    with ThreadPoolExecutor(3) as followers:
        made = list(followers.map(DeltaTable.follow, tables))
    assert sum(made) == 4, made
    assert commits(world) == [0, 1, 2, 3]
    assert by_delta(world) == by_manifests(world)


def test_a_table_is_not_left_behind_nor_mixed_up(world: World, name: str) -> None:
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
    # As the message says.
    shutil.rmtree(Path(path, "_delta_log"))
    world.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    produce(world, name, 4)
    assert world.archive(name, delta=True).records == 4
    assert by_delta(world) == by_manifests(world)
    assert commits(world) == [0, 1]


def test_from_the_command_line(world: World, name: str) -> None:
    world.kafka.create_topic(name, 2, **FOREVER)
    produce(world, name, 10)
    world.archive(name, delta=True)
    produce(world, name, 4)
    arguments = (
        "archive",
        "--config",
        world.config(),
        "--topics",
        name,
        "--lake",
        str(world.folder / "lake"),
        "--job",
        "job",
        "--master",
        "local[2]",
    )
    (world.folder / "empty").mkdir()
    code, summary, said = command(
        *arguments, "--format", "delta", "--delta-jars", str(world.folder / "empty")
    )
    assert code == 1
    assert "empty lacks delta-spark_2.13-VERSION.jar, delta-storage-VERSION.jar" in summary["error"], said
    code, summary, said = command(*arguments)  # the lake says that there is a table
    assert (code, summary.get("records")) == (0, 4), said
    assert by_delta(world) == by_manifests(world)
    assert commits(world) == [0, 1]
