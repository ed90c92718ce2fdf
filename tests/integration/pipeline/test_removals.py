"""Records expire or are erased: gone from every file on disk, told from lost ones by verify, audit and replay."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from pixy.pipeline.archive.erase import Eraser, Erasure
from pixy.pipeline.archive.optimize import Optimizer
from pixy.pipeline.audit.job import audit
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.summary import summarize
from pixy.pipeline.errors import UsageError
from pixy.pipeline.lake.entry import Entry
from pixy.pipeline.lake.expire import expire
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.selection import Selection
from pixy.pipeline.lake.verify import verify
from pixy.pipeline.replay.job import ReplayJob
from pixy.pipeline.replay.request import ReplayRequest
from pixy.pipeline.replay.state import ReplayState
from tests.integration.pipeline import killed_eraser
from tests.integration.pipeline.delta import read_by_spark
from tests.integration.pipeline.killed_eraser import STEPS
from tests.integration.pipeline.support import World, assert_sound, command
from tests.support import ROOT

pytestmark = pytest.mark.timeout(600)

DAY = 86_400_000
MIDNIGHT = 1_700_006_400_000
"""2023-11-15."""


def produce(world: World, topic: str, count: int, first: int = 0, partitions: int = 2) -> None:
    """Every fifth record has the key ``alice``; a third of them is of the day before."""
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0], "linger.ms": 5})
    for number in range(first, first + count):
        key = b"alice" if number % 5 == 0 else b"key %d" % number
        when = MIDNIGHT + number - (DAY if number % 3 == 0 else 0)
        producer.produce(topic, b"value %d" % number, key, number % partitions, timestamp=when)
    assert producer.flush(30) == 0


def make(world: World, name: str) -> Lake:
    """Archive 60 records in two batches, optimize, and leave what a killed job leaves."""
    world.kafka.create_topic(name, 2, **{"retention.ms": "-1"})
    for first in (0, 30):
        produce(world, name, 30, first)
        world.archive(name)
    lake = world.lake()
    Optimizer(world.spark, lake).run("2099-01-01")
    return lake


def on_disk(lake: Lake, topic: str, key: bytes = b"alice") -> int:
    """Count the records of a key in every Parquet file below the lake, listed or not."""
    tables = (
        pq.ParquetFile(path).read(["topic", "key"]).to_pylist()
        for path in sorted(Path(lake.path("data")).rglob("*.parquet"))
        if "_delta_log" not in path.parts
    )
    return sum(row == {"topic": topic, "key": key} for table in tables for row in table)


def audited(world: World, topic: str, out: str = "audit", **more: Any) -> tuple[Any, dict[str, Any]]:
    request = AuditRequest(
        str(world.folder / out), str(world.folder / "lake"), "main", world.proxy, (topic,), settle=0.0, **more
    )
    result = audit(world.spark, request, lambda _line: None)
    return result, summarize(result)


def dry_replay(world: World, topic: str, **selection: Any) -> tuple[int, dict[str, int]]:
    request = ReplayRequest(topic, f"{topic}-again", Selection(**selection))
    state = ReplayState(str(world.folder / "replay"))
    result = ReplayJob(world.lake(), request, world.proxy, world.view, state).dry_run()
    return sum(result.selected.values()), result.removed


def test_erased_records_are_gone_from_all_files_and_never_lost(world: World, name: str) -> None:
    lake, other = make(world, name), f"{name}-b"
    world.kafka.create_topic(other, **{"retention.ms": "-1"})
    produce(world, other, 5, partitions=1)
    world.archive(other)
    assert on_disk(lake, name) >= 24  # 12 in the table, the others in files that were split or replaced
    erasure, eraser = Erasure(name, "key = X'616c696365'", "GDPR-17"), Eraser(world.spark, lake)
    would = eraser.dry_run(erasure)
    assert (would.records, would.before) == (12, 0) and would.files and would.left
    done = eraser.run(erasure)
    assert (done.records, done.files) == (12, would.files) and len(done.left) > would.files
    # The hash chain, the counts and the checksums hold; other topics keep theirs.
    assert_sound(lake)
    assert verify(lake).removed == {"erased": 12}
    removed = [each.range for each in (*lake.state().removed[name, 0], *lake.state().removed[name, 1])]
    assert {each.skipped for each in removed} == {"erased: request GDPR-17"}
    assert {at * 2 + each.partition for each in removed for at in range(each.start, each.end)} == set(
        range(0, 60, 5)
    )
    rows = read_by_spark(world)
    assert sum(topic == name for (topic, _, _), _ in rows) == 48 and len(rows) == 53
    result, summary = audited(world, name)
    assert summary["verdict"] == "clean", summary["problems"]
    assert [row["gaps"] for row in summary["partitions"]] == [{"erased": 6}, {"erased": 6}]
    assert {
        (each.kind, each.why)
        for each in result.findings
        if each.severity == "explained" and "lake" in each.kind
    } == {
        ("erased from the lake", f"erased: request GDPR-17, entry {each.seq}: 1 records")
        for each in lake.state().removed[name, 0] + lake.state().removed[name, 1]
    }
    assert dry_replay(world, name) == (48, {"erased": 12})
    assert dry_replay(world, name, partitions=frozenset({1})) == (24, {"erased": 6})
    # The same request again finds nothing in the table, and what earlier versions still hold.
    again = eraser.run(erasure)
    assert (again.records, again.before, again.files) == (0, 12, 0) and again.left == done.left
    lake.vacuum(0, dry_run=False)
    assert (on_disk(lake, name), on_disk(lake, other)) == (0, 1)
    assert eraser.run(erasure).left == []
    assert_sound(lake)
    # What was erased is not archived again, though Kafka still has it.
    produce(world, name, 2, 61)
    assert world.archive(name).records == 2
    assert_sound(lake)


@pytest.mark.timeout(1200)
def test_an_erasure_killed_within_any_step_is_finished_by_the_next(world: World, name: str) -> None:
    whole = make(world, name)
    condition = "key = X'616c696365'"
    copies = {step: world.folder / f"lake-{number}" for number, step in enumerate(STEPS)}
    for copy in copies.values():
        shutil.copytree(whole.path(""), copy)
    java = world.spark.sparkContext._gateway.gateway_parameters
    done = subprocess.run(
        [sys.executable, "-m", killed_eraser.__name__, name, condition],
        input="\n".join(json.dumps([str(copy), step]) for step, copy in copies.items()),
        cwd=ROOT,
        env={**os.environ, "PYSPARK_GATEWAY_PORT": str(java.port), "PYSPARK_GATEWAY_SECRET": java.auth_token},
        capture_output=True,
        text=True,
        check=False,
    )
    assert dict(zip(STEPS, done.stdout.splitlines(), strict=False)) == dict.fromkeys(STEPS, "killed"), (
        done.stderr
    )
    # What a killed process has begun, its JVM still does.
    deadline = time.monotonic() + 60
    while world.spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline, "Spark works on"
        time.sleep(0.02)
    for step, copy in copies.items():
        lake = Lake.open(str(copy))
        assert_sound(lake)
        assert on_disk(lake, name) > 0, step
        erased = Eraser(world.spark, lake).run(Erasure(name, condition, "R-1"), vacuum=True)
        assert erased.records + erased.before == 12, step
        # What no commit has ever listed could be that of a running job: the usual vacuum deletes it.
        assert all("/flat/" in path for path in erased.left), (step, erased.left)
        lake.vacuum(0, dry_run=False)
        assert on_disk(lake, name) == 0, step
        assert_sound(lake)
        assert verify(lake).removed == {"erased": 12}, step


def test_a_condition_in_sql_and_a_wrong_one(world: World, name: str) -> None:
    lake = make(world, name)
    eraser = Eraser(world.spark, lake)
    with pytest.raises(UsageError, match="--where 'no_such = 1'"):
        eraser.run(Erasure(name, "no_such = 1", "R-2"))
    # A condition that is null for a record keeps it.
    done = eraser.run(Erasure(name, "nullif(cast(value as string), 'value 7') like 'value _'", "R-2"))
    assert done.records == 9
    assert_sound(lake)


def test_expired_days_are_gone_and_never_lost(world: World, name: str) -> None:
    lake = make(world, name)
    (expired,) = expire(lake, "2023-11-15", name)
    assert expired.records == 20
    assert_sound(lake)
    assert verify(lake).removed == {"expired": 20}
    _, summary = audited(world, name)
    assert summary["verdict"] == "clean", summary["problems"]
    assert sum(row["gaps"]["expired"] for row in summary["partitions"]) == 20
    assert dry_replay(world, name) == (40, {"expired": 20})
    assert dry_replay(world, name, since=MIDNIGHT) == (40, {})
    Eraser(world.spark, lake).run(Erasure(name, "key = X'616c696365'", "R-3"), vacuum=True)
    assert verify(lake).removed == {"expired": 20, "erased": 8}
    assert audited(world, name)[1]["verdict"] == "clean"
    assert_sound(lake)


def test_a_loss_beside_erased_records_is_still_a_loss(world: World, name: str) -> None:
    """The table loses a file that no entry tells of; Kafka has lost the records as well, by its retention."""
    lake = make(world, name)
    Eraser(world.spark, lake).run(Erasure(name, "key = X'616c696365'", "R-4"))
    lost = next(file for file in lake.state().files.values() if file.date == "2023-11-14")
    lake.publish(lake.ledger(), Entry("optimization"), [], [lost], changes=False)
    for partition in (0, 1):
        world.kafka.delete_records(name, partition, 30)
    _, summary = audited(world, name)
    assert summary["verdict"] == "loss"
    assert sum(row["lost"] for row in summary["partitions"]) == lost.rows
    assert sum(row["gaps"]["erased"] for row in summary["partitions"]) == 12


def test_the_commands(world: World, name: str) -> None:
    make(world, name)
    lake = str(world.folder / "lake")
    code, summary, _ = command("expire", "--lake", lake, "--older-than", "2023-11-15", "--dry-run")
    assert (code, summary["ended"], summary["records"]) == (0, "dry run", 20)
    code, summary, _ = command("expire", "--lake", lake, "--older-than", "2023-11-15", "--topic", name)
    assert (code, summary["ended"], summary["topics"][0]["last_day"]) == (0, "expired", "2023-11-14")
    code, summary, errors = command("erase", "--lake", lake, "--topic", name)
    assert code == 2 and "which records?" in errors
    code, summary, errors = command(
        "erase",
        "--lake",
        lake,
        "--topic",
        name,
        "--key",
        "alice",
        "--request-id",
        "R-5",
        "--master",
        "local[1]",
        timeout=400.0,  # a JVM's start, on a machine with other work
    )
    assert (code, summary["records"], summary["request_id"]) == (0, 8, "R-5"), errors
    assert summary["files_left"] and f"kafka-pixy pipeline vacuum --lake {lake} --keep 0h" in errors
    code, summary, _ = command("verify", "--lake", lake, "--processes", "1")
    assert (code, summary["expired"], summary["erased"], summary["verdict"]) == (0, 20, 8, "as archived")
