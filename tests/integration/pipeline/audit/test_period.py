"""An audit of a period, or of what is new, says of its windows what an audit of everything says, and reads less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pixy.pipeline.audit import frames, output
from pixy.pipeline.audit.report import render
from pixy.pipeline.audit.tables import COUNTS, LATENCIES
from pixy.pipeline.lake import Entry, Lake
from tests.integration.pipeline.audit.world import AuditWorld
from tests.integration.pipeline.support import World

pytestmark = pytest.mark.timeout(300)

HOUR = 3_600_000
BEGIN = 1_700_006_400_000
"""2023-11-15."""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files of the lake that audits read."""
    found: list[str] = []
    live_files = frames.live_files

    def recording(*args: Any) -> list[str]:
        paths = live_files(*args)
        found.extend(paths)
        return paths

    monkeypatch.setattr(frames, "live_files", recording)
    return found


def run(made: AuditWorld, spark: Any, out: str, **more: Any) -> dict[str, Any]:
    """Audit, and write the folder, which the next run reads."""
    result, summary = made.audit(spark, out, **more)
    output.write(result, summary, render(result, summary))
    return {**summary, "rows": result.windows.rows, "made": result.findings}


def figures(rows: dict[Any, dict[str, Any]]) -> dict[Any, Any]:
    """What two runs must agree about."""
    return {key: [row.get(name) for name in (*COUNTS, *LATENCIES)] for key, row in rows.items()}


def test_an_increment_agrees_with_an_audit_of_everything(
    spark: Any, kafka: Any, name: str, tmp_path: Path, reads: list[str]
) -> None:
    made = AuditWorld(kafka, name, tmp_path)
    settings_ = {"window": 500, "watermark": 1, "late": 1, "topics": (made.topic,)}
    made.live(30)
    made.archive(spark)
    first = run(made, spark, "steps", incremental=True, **settings_)
    assert first["complete"] and first["verdict"] == "clean", first["problems"]
    made.live(20)
    made.archive(spark)
    reads.clear()
    second = run(made, spark, "steps", incremental=True, **settings_)
    new = list(reads)
    reads.clear()
    whole = run(made, spark, "whole", **settings_)
    assert second["complete"] and second["rows"] and 0 < len(new) < len(reads)
    assert figures(second["rows"]) == figures(whole["rows"])
    assert second["groups"] == whole["groups"] and second["topics"] == whole["topics"]
    assert any(row["carried"] for row in second["rows"].values())
    # Nothing is new: what was found stays, and nearly nothing is read.
    third = run(made, spark, "steps", incremental=True, **settings_)
    assert figures(third["rows"]) == figures(whole["rows"])
    # Another topic or another lake: everything is read.
    reads.clear()
    assert run(made, spark, "steps", incremental=True, **{**settings_, "groups": ("g", "other")})["complete"]
    assert len(reads) == len(Lake.open(made.lake).state().select(made.topic))


def test_a_period_reads_its_files_and_keeps_the_other_windows(
    spark: Any, kafka: Any, name: str, tmp_path: Path, reads: list[str]
) -> None:
    from confluent_kafka import Producer

    world = World(spark, kafka, tmp_path)
    kafka.create_topic(name, 1, **{"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap()[0]})
    for hour in range(4):
        for at in range(10):
            producer.produce(name, b"%d %d" % (hour, at), timestamp=BEGIN + hour * HOUR + at)
        assert producer.flush(30) == 0
        world.archive(name)
    made = AuditWorld.__new__(AuditWorld)
    made.kafka, made.folder, made.topic, made.journal, made.lake = (
        kafka,
        tmp_path,
        name,
        "",
        str(tmp_path / "lake"),
    )
    quiet: dict[str, Any] = {"window": HOUR, "proxy": world.proxy, "topics": (name,)}
    whole = run(made, spark, "out", **quiet)
    assert whole["complete"] and [row["archived"] for row in whole["rows"].values()] == [10] * 4
    reads.clear()
    # The second hour loses its file: an audit of the third does not see it, one of the second does.
    lake = Lake.open(made.lake)
    lost = next(file for file in lake.state().files.values() if file.first == 10)
    lake.publish(lake.ledger(), Entry("optimization"), [], [lost], changes=False)
    third = run(made, spark, "out", since=BEGIN + 2 * HOUR, until=BEGIN + 3 * HOUR, **quiet)
    assert (third["verdict"], third["complete"], len(set(reads))) == ("clean", False, 1)
    assert figures(third["rows"]) == figures(whole["rows"])
    second = run(made, spark, "out", since=BEGIN + HOUR + 5, until=BEGIN + 2 * HOUR, **quiet)
    assert second["verdict"] == "loss"
    assert [(each.start, each.end) for each in second["made"] if each.severity == "loss"] == [(10, 20)]
    # A later run of another period keeps the finding.
    assert run(made, spark, "out", since=BEGIN + 3 * HOUR, **quiet)["verdict"] == "loss"
    # An incremental run after runs of periods reads everything.
    assert run(made, spark, "out", incremental=True, **quiet)["complete"]
