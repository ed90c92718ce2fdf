"""Audits of real traffic: no fault is reported without a cause, and each planted fault is found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from pixy.errors import PixyError
from pixy.journal import Kind
from pixy.pipeline.audit import output
from pixy.pipeline.audit.report import render
from pixy.pipeline.lake import Lake
from tests.integration.pipeline.audit.world import AuditWorld, Event, event_of
from tests.integration.pipeline.support import FAST_START
from tests.kafka.cluster import Cluster
from tests.support import ROOT

MESSAGES = 200

pytestmark = pytest.mark.timeout(600)
"""Spark's start alone takes a minute on a busy machine."""


@pytest.fixture(scope="module")
def world(kafka: Cluster, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> AuditWorld:
    """Messages that passed through the daemon into a lake; tests must not change it."""
    import uuid

    made = AuditWorld(kafka, f"t{uuid.uuid4().hex[:12]}", tmp_path_factory.mktemp("audit"))
    made.live(MESSAGES)
    made.archive(spark)
    return made


def only(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    found = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    assert len(found) == 1, (wanted, rows)
    return found[0]


def test_traffic_without_faults_is_clean(world: AuditWorld, spark: Any) -> None:
    result, summary = world.audit(spark, "clean")
    assert summary["verdict"] == "clean", summary["findings"]
    assert summary["sources"] == ["lake", "journal", "log", "committed"]
    topic = only(summary["topics"], topic=world.topic)
    assert (topic["produced"], topic["answered"], topic["archived"]) == (MESSAGES,) * 3
    group = only(summary["groups"], topic=world.topic, group="g")
    assert (group["offered"], group["acked"]) == (MESSAGES, MESSAGES)
    assert (group["retried"], group["duplicates_retried"]) == (1, 1)
    assert group["deliveries"] == MESSAGES + 1
    assert (group["lost"], group["unknown"], group["duplicates_unexplained"], group["out_of_order"]) == (
        0,
    ) * 4
    for metric in ("produce_offer", "offer_ack"):
        p50, p95, p99, most = (group[f"{metric}_{part}_ms"] for part in ("p50", "p95", "p99", "max"))
        assert 0 < p50 <= p95 <= p99 <= most < 60_000
    assert 0 < topic["archive_delay_p50_ms"] < 600_000
    assert {(each.topic, each.log) for each in result.partitions} == {
        (world.topic, (0, each.archived_records)) for each in result.partitions
    }

    files = output.write(result, summary, render(result, summary))
    assert {Path(path).name for path in files} == {
        "windows.parquet",
        "latencies.parquet",
        "partitions.parquet",
        "findings.parquet",
        "report.html",
        "audit.json",
    }
    rows = pq.read_table(Path(result.request.out, "windows.parquet")).to_pylist()
    assert sum(row["acked"] for row in rows) == MESSAGES
    html = Path(result.request.out, "report.html").read_text()
    assert html.count('class="card topic"') == 1
    assert summary["inputs_digest"] in html
    assert "http://" not in html and "src=" not in html, "the report is self-contained"
    assert json.loads(Path(result.request.out, "audit.json").read_text()) == json.loads(json.dumps(summary))


def test_a_planted_loss_duplicate_and_reorder_in_the_lake_are_found(world: AuditWorld, spark: Any) -> None:
    def change(table: pa.Table) -> pa.Table:
        # Remove row 10, duplicate row 20, swap rows 30 and 31.
        order = [at for at in range(len(table)) if at != 10]
        order.insert(order.index(20), 20)
        first = order.index(30)
        order[first], order[first + 1] = order[first + 1], order[first]
        return table.take(pa.array(order))

    lake = world.doctored_lake(change)
    result, summary = world.audit(spark, "planted-lake", lake=lake)
    assert summary["verdict"] == "loss"
    topic = only(summary["topics"], topic=world.topic)
    assert (topic["archive_lost"], topic["archive_duplicates"], topic["archive_out_of_order"]) == (1, 1, 1)
    assert (topic["archived"], topic["produced"]) == (MESSAGES - 1, MESSAGES)
    lost = only(summary["findings"], kind="missing in the lake")
    assert (lost["start"], lost["end"], lost["why"]) == (10, 11, "loss: the broker still has the records")
    assert only(summary["findings"], kind="archived twice")["start"] == 20
    assert only(summary["findings"], kind="archived out of order")["start"] == 30
    window = next(row for key, row in result.windows.rows.items() if row.get("archive_lost"))
    assert window["produced"] >= 1, "the loss counts in the window of its record"


def test_a_planted_loss_duplicate_and_reorder_in_the_journal_are_found(world: AuditWorld, spark: Any) -> None:
    def change(events: list[Event]) -> list[Event]:
        events.remove(event_of(events, Kind.ACKED, 0, 5))
        events.append(dict(event_of(events, Kind.OFFERED, 0, 6)))
        early, late = event_of(events, Kind.OFFERED, 1, 7), event_of(events, Kind.OFFERED, 1, 12)
        early["time"], late["time"] = late["time"] + 1, early["time"]
        return events

    _, summary = world.audit(
        spark, "planted-journal", journal=world.doctored_journal(change), topics=(world.topic,)
    )
    assert summary["verdict"] == "loss"
    group = only(summary["groups"], topic=world.topic, group="g")
    assert (group["lost"], group["duplicates_unexplained"]) == (1, 1)
    assert group["acked"] == MESSAGES - 1
    assert group["out_of_order"] >= 1
    lost = only(summary["findings"], kind="lost to the group")
    assert (lost["partition"], lost["start"], lost["end"]) == (0, 5, 6)
    assert only(summary["findings"], kind="offered twice")["start"] == 6
    wrong = [row for row in summary["findings"] if row["kind"] == "offered out of order"]
    assert all(row["partition"] == 1 and 7 <= row["start"] < 12 for row in wrong)


def test_late_data_restates_closed_windows(world: AuditWorld, spark: Any, tmp_path: Path) -> None:
    lake, hour = str(tmp_path / "lake"), 3_600_000
    now = 1_790_000_000_000 - 1_790_000_000_000 % hour
    name = world.kafka.create_topic(f"{world.topic}-late", 1, **{"retention.ms": "-1"})

    def produce(*hours: int) -> None:
        producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0]})
        for at in hours:
            producer.produce(name, b"v", timestamp=now - at * hour)
        producer.flush()
        world.archive(spark, lake, name)

    def audited() -> dict[str, Any]:
        request = {"lake": lake, "window": hour, "proxy": None, "journal": "", "topics": (name,)}
        result, summary = world.audit(spark, "late", **request)
        output.write(result, summary, render(result, summary))
        return summary

    produce(5, 4, 4, 0)
    first = audited()
    assert (first["run"], first["windows"]["count"], first["windows"]["restated"]) == (1, 3, 0)
    again = audited()
    assert (again["run"], again["windows"]["restated"]) == (2, 0)
    assert again["inputs_digest"] == first["inputs_digest"], "the sources are the same"
    produce(4, 3, 0)
    late = audited()
    assert late["windows"]["restated"] == 2
    assert len(late["windows"]["restated_windows"]) == 2
    assert late["inputs_digest"] != first["inputs_digest"]
    rows = pq.read_table(world.folder / "late" / "windows.parquet").to_pylist()
    by_hour = {(now - round(row["window"].timestamp() * 1000)) // hour: row for row in rows}
    assert {at: (row["produced"], row["revision"], row["restated"]) for at, row in by_hour.items()} == {
        5: (1, 1, False),
        4: (3, 2, True),
        3: (1, 2, True),
        0: (2, 2, False),
    }
    assert only(late["topics"], topic=name)["produced"] == 7
    with pytest.raises(PixyError, match="has windows of 3600 s"):
        world.audit(spark, "late", lake=lake, proxy=None, window=60_000)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"journal": "no-such-topic"}, "journal topic no-such-topic does not exist"),
        ({"topics": ("no-such-topic",)}, "topic no-such-topic does not exist"),
        ({"lake": "/no/such/lake"}, "/no/such/lake is not a lake"),
    ],
)
def test_a_missing_source_is_an_error_that_names_it(
    world: AuditWorld, spark: Any, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(PixyError, match=message):
        world.audit(spark, "refused", **more)


def test_a_record_that_is_no_journal_batch_is_an_error(world: AuditWorld, spark: Any) -> None:
    topic = world.kafka.create_topic(f"{world.topic}-no-journal", 1)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0]})
    for value in (
        world.journal_values()[0],
        b"Good news everyone!",
        world.journal_values()[0].replace(b"\xa7version\x01", b"\xa7version\x63"),
    ):
        producer.produce(topic, value, partition=0)
    producer.flush()
    with pytest.raises(PixyError) as caught:
        world.audit(spark, "refused", journal=topic)
    assert f"journal {topic}/0, offset 1: not a journal batch" in str(caught.value)
    assert "1 more" in str(caught.value)


def test_an_altered_lake_is_an_error(world: AuditWorld, spark: Any) -> None:
    lake = Path(world.doctored_lake(lambda table: table))
    file = lake / next(iter(Lake.open(str(lake)).state().files))
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(PixyError, match=f"{file} has {len(whole) - 1} bytes; the table says {len(whole)}"):
        world.audit(spark, "refused", lake=str(lake))
    file.write_bytes(b"x" * len(whole))
    with pytest.raises(PixyError, match=file.name):
        world.audit(spark, "refused", lake=str(lake), proxy=None)
    file.unlink()
    with pytest.raises(PixyError, match=f"{file} is missing"):
        world.audit(spark, "refused", lake=str(lake))
    shutil.rmtree(lake / "ranges")
    entry = lake / "data/_delta_log/00000000000000000001.json"
    entry.write_text(entry.read_text().replace('\\"bytes\\":', '\\"bytes\\":1'))
    with pytest.raises(PixyError, match="was altered"):
        world.audit(spark, "refused", lake=str(lake))


def test_the_command(world: AuditWorld) -> None:
    out = world.folder / "command"

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pixy.cli.main", "pipeline", "audit", *args],
            cwd=ROOT,
            text=True,
            capture_output=True,
            timeout=400,
            check=False,
            env={**os.environ, **FAST_START},
        )

    refused = run("--out", str(out))
    assert (refused.returncode, "give --lake, or --config" in refused.stderr) == (2, True)
    taken = world.folder / "taken"
    taken.mkdir()
    (taken / "letter.txt").write_text("mine")
    refused = run("--lake", world.lake, "--out", str(taken))
    assert (refused.returncode, "is not empty and holds no audit" in refused.stderr) == (1, True), (
        refused.stderr
    )
    assert [path.name for path in taken.iterdir()] == ["letter.txt"]

    config = world.folder / "pixy.yaml"
    kafka = {"seed_peers": world.kafka.bootstrap()}
    config.write_text(json.dumps({"proxies": {"main": {"kafka": kafka}}}))
    file = world.folder / "audit.prom"
    arguments = {
        "--lake": world.lake,
        "--config": str(config),
        "--out": str(out),
        "--master": "local[2]",
        "--window": "1h",
        "--conf": "spark.sql.shuffle.partitions=2",
        "--prometheus": str(file),
    }
    done = run("--json", *(word for pair in arguments.items() for word in pair))
    assert done.returncode == 0, done.stderr
    assert "starting Spark" in done.stderr
    summary = json.loads(done.stdout)
    assert (summary["ok"], summary["verdict"], summary["sources"]) == (True, "clean", ["lake", "log"])
    assert only(summary["topics"], topic=world.topic)["archived"] == MESSAGES
    assert (out / "report.html").exists()
    text = file.read_text()
    assert f'kafka_pixy_audit_topic_archived{{topic="{world.topic}"}} {MESSAGES}.0' in text
    assert 'kafka_pixy_audit_verdict{verdict="clean"} 1.0' in text


def test_a_lake_alone_is_audited(world: AuditWorld, spark: Any) -> None:
    _, summary = world.audit(spark, "lake-alone", proxy=None)
    assert (summary["verdict"], summary["sources"]) == ("clean", ["lake"])
    assert only(summary["topics"], topic=world.topic)["archived"] == MESSAGES


def test_importing_the_pipeline_does_not_import_spark() -> None:
    code = "import sys, pixy.pipeline, pixy.cli.serve; sys.exit(any(m in sys.modules for m in ('pyspark', 'pyarrow', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
