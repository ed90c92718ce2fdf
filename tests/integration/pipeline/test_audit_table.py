"""Tables that another program wrote, against a real broker: what they lack, have twice or had late."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from pixy.pipeline.archive.erase import Eraser, Erasure
from pixy.pipeline.errors import SourceError
from pixy.pipeline.spark import jars
from pixy.pipeline.table_audit.job import audit_table
from pixy.pipeline.table_audit.repair import write_repair
from pixy.pipeline.table_audit.request import TableRequest
from pixy.pipeline.table_audit.summary import summarize
from tests.integration.pipeline.support import FAST_START, World, await_markers
from tests.support import ROOT

pytestmark = pytest.mark.timeout(300)

HOUR = 3_600_000
COLUMNS = {
    "topic": "src.topic",
    "partition": "src.part",
    "offset": "src.off",
    "timestamp": "at",
    "written": "written",
}


class Table:
    """A topic of two partitions, an hour old but for its last ten records, and a table with all of its records."""

    def __init__(self, world: World, topic: str) -> None:
        self.world, self.topic = world, topic
        self.now = round(time.time() * 1000)
        world.kafka.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": world.kafka.bootstrap()[0], "transactional.id": topic})
        producer.init_transactions()
        # Offsets 0 to 99, a marker, 101 to 200, a marker; then an aborted one.
        for first, commit in ((0, True), (100, True), (200, False)):
            producer.begin_transaction()
            for at in range(first, first + 100):
                producer.produce(
                    topic, b"v%d" % at, b"k%d" % at, at % 2, timestamp=self.now - (0 if at >= 190 else HOUR)
                )
            assert producer.flush(30) == 0
            producer.commit_transaction() if commit else producer.abort_transaction()
        await_markers(world.view, (topic, 0), (topic, 1))

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that a faultless sink would have written."""
        found = []
        for partition in (0, 1):
            for offset in [*range(50), *range(51, 101)]:
                young = offset >= 96
                at = self.now - (0 if young else HOUR)
                row = {
                    "src": {"topic": self.topic, "part": partition, "off": offset},
                    "at": at,
                    "written": at + 1000,
                }
                found.append(row)
        return found

    def write(self, rows: list[dict[str, Any]], kind: str = "parquet") -> str:
        path = str(self.world.folder / f"table-{len(list(self.world.folder.iterdir()))}")
        schema = "src struct<topic:string,part:int,off:bigint>, at bigint, written bigint"
        self.world.spark.createDataFrame(rows, schema).write.format(kind).save(path)
        return path

    def audit(self, path: str, **more: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        given = {
            "format": "parquet",
            "columns": COLUMNS,
            "proxy": self.world.proxy,
            "topics": (self.topic,),
            **more,
        }
        request = TableRequest(path, **given)
        result = audit_table(self.world.spark, request, lambda _line: None)
        file = self.world.folder / "repair.jsonl"
        counts = write_repair(str(file), result.findings())
        return summarize(request, result, counts), [
            json.loads(line) for line in file.read_text().splitlines()
        ]


@pytest.fixture
def table(world: World, name: str) -> Table:
    return Table(world, name)


def test_a_faultless_table_is_clean_and_markers_are_explained(table: Table) -> None:
    summary, repair = table.audit(table.write(table.rows()))
    assert (summary["verdict"], summary["rows"], repair) == ("clean", 200, [])
    assert summary["partitions"][0]["reasons"] == {"transaction marker": 3, "aborted transaction": 50}
    assert summary["not_due"] == 0


def test_missing_doubled_late_foreign_and_unmapped_rows_are_told_apart(table: Table) -> None:
    rows = []
    for row in table.rows():
        partition, offset = row["src"]["part"], row["src"]["off"]
        if partition == 0 and 10 <= offset < 15:
            continue  # missing
        if partition == 1 and offset >= 90:
            continue  # late, as far as they are old
        rows.append(row)
        if partition == 0 and offset in (20, 21, 70):
            rows.append(row)
    rows[0] = {**rows[0], "written": rows[0]["at"] + HOUR}
    rows.append({"src": {"topic": table.topic, "part": 0, "off": 5000}, "at": 0, "written": 0})
    rows.append({"src": {"topic": table.topic, "part": None, "off": 3}, "at": 0, "written": 0})
    summary, repair = table.audit(table.write(rows, "delta"), format="delta")
    assert summary["verdict"] == "faulty"
    told = sorted(
        (line["problem"], line["partition"], line["start"], line["end"], line["source"]) for line in repair
    )
    assert told[:4] == [
        ("beyond", 0, 5000, 5001, None),
        ("doubled", 0, 20, 22, None),
        ("doubled", 0, 70, 71, None),
        ("late", 1, 90, 96, "broker"),
    ]
    assert ("missing", 0, 10, 15, "broker") in told
    missing = next(line for line in repair if line["start"] == 10)
    assert missing["first_timestamp"] == table.now - HOUR and missing["offsets"] == 5
    assert (summary["unmapped"], summary["written_late"], summary["doubled"], summary["late"]) == (1, 1, 3, 6)
    assert summary["not_due"] == 5


def test_the_lake_tells_what_the_broker_has_lost_and_what_was_erased(table: Table, world: World) -> None:
    world.archive(table.topic)
    world.kafka.delete_records(table.topic, 0, 40)
    rows = [row for row in table.rows() if row["src"]["part"] or not 10 <= row["src"]["off"] < 45]
    alone, repair = table.audit(table.write(rows))
    assert alone["gone"] == 30 and [(each["start"], each["end"], each["source"]) for each in repair] == [
        (40, 45, "broker")
    ]
    both, repair = table.audit(table.write(rows), lake=str(world.folder / "lake"))
    assert both["gone"] == 0 and [(each["start"], each["end"], each["source"]) for each in repair] == [
        (10, 45, "lake")
    ]
    # What was erased on request is told so, wherever it may still be had, and is not in the list for repair.
    condition = "partition = 0 and offset in (12, 13, 42)"
    Eraser(world.spark, world.lake()).run(Erasure(table.topic, condition, "R-1"))
    last, repair = table.audit(table.write(rows), lake=str(world.folder / "lake"))
    assert (last["erased"], last["gone"]) == (3, 0)
    assert [(each["start"], each["end"], each["source"]) for each in repair] == [
        (10, 12, "lake"),
        (14, 42, "lake"),
        (43, 45, "lake"),
    ]


def test_a_table_that_cannot_be_read_is_one_line(table: Table) -> None:
    with pytest.raises(SourceError, match="cannot be read as parquet"):
        table.audit(str(table.world.folder / "nowhere"))
    path = table.write(table.rows()[:5])
    with pytest.raises(SourceError, match=r"cannot be read as parquet.*offset_"):
        table.audit(path, columns={**COLUMNS, "offset": "src.offset_"})
    with pytest.raises(SourceError, match="neither in the cluster nor in the lake"):
        table.audit(path, topics=(f"{table.topic}-other",))


ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"

WRITE_AND_AUDIT = """
import sys
from pixy.cli.main import main
from pixy.pipeline.spark import jars
from pixy.pipeline.spark.session import open_session
jar, warehouse, topic, *command = sys.argv[1:]
ice = ["spark.sql.catalog.ice=org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.ice.type=hadoop"]
ice += [f"spark.sql.catalog.ice.warehouse={warehouse}", "spark.jars=" + ",".join([*jars.find(), jar])]
spark = open_session("iceberg", "local[1]", settings=["spark.driver.memory=1g", *ice])
rows = [(topic, p, o) for p in (0, 1) for o in [*range(50), *range(51, 101)] if o != 30]
spark.createDataFrame(rows, "topic string, p int, o bigint").writeTo("ice.db.t").create()
sys.argv = ["kafka-pixy", "pipeline", "audit-table", *command]
sys.exit(main())
"""


def iceberg_jar() -> str:
    """Return Iceberg's jar, which Maven fetches once."""
    folder = jars.default_folder().with_name("iceberg-1.10.0")
    found = sorted(folder.glob("*.jar"))
    if not found:
        command = [
            "mvn",
            "-q",
            "-B",
            "dependency:copy",
            f"-Dartifact={ICEBERG}",
            f"-DoutputDirectory={folder}",
        ]
        subprocess.run(command, check=False, timeout=250, capture_output=True)
        found = sorted(folder.glob("*.jar"))
    if not found:
        pytest.skip("!!! NOT TESTED on Iceberg: Maven cannot fetch its jar !!!")
    return str(found[0])


def test_the_command_audits_an_iceberg_table_ends_with_3_and_writes_the_list(
    table: Table, tmp_path: Path
) -> None:
    jar = iceberg_jar()
    words = ["--config", table.world.config(), "--table", "ice.db.t", "--format", "iceberg", "--json"]
    words += ["--columns", "topic,partition=p,offset=o", "--repair", str(tmp_path / "repair.jsonl")]
    words += ["--table-jars", str(Path(jar).parent)]
    done = subprocess.run(
        [sys.executable, "-c", WRITE_AND_AUDIT, jar, str(tmp_path / "warehouse"), table.topic, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
        env={**os.environ, **FAST_START},
    )
    assert done.returncode == 3, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["missing"], summary["ranges"]) == (2, 2), summary
    assert [json.loads(line)["start"] for line in (tmp_path / "repair.jsonl").read_text().splitlines()] == [
        30,
        30,
    ]
