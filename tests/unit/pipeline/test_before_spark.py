"""What can be refused is refused before Spark starts, which takes seconds: one line, and nothing else on stdout or stderr."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from pixy.cli import pipeline_common
from pixy.cli.pipeline import MODULES, run
from pixy.pipeline.archive import archive
from pixy.pipeline.lake import Lake
from pixy.pipeline.lake.state import Ledger
from pixy.pipeline.spark import session
from tests.unit.pipeline.support import make_lake, publish, rows, write_file

ARCHIVE = ["archive", "--config", "pixy.yaml", "--topics", "orders"]
AUDIT = ["audit", "--out", "out"]
TABLE = ["audit-table", "--config", "pixy.yaml", "--columns", "topic,partition,offset", "--format"]
REPLAY = ["replay", "--config", "pixy.yaml", "--to", "again"]
ERASE = ["erase", "--key", "alice"]
VERIFY_ON_SPARK = ["verify", "--master", "local[1]"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lake that has the topic `orders`, a configuration of a cluster that is not there, and a Spark that
    must not start."""

    def started(*_: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(session, "_start", started)
    monkeypatch.setattr(session.jars, "find", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    lake = make_lake(tmp_path / "lake")
    publish(
        lake,
        Ledger(),
        0,
        [write_file(lake, "orders", "2026-01-01", "a", rows(0, range(3)))],
        {0: (0, 3)},
    )
    make_lake(tmp_path / "empty")
    (tmp_path / "plain").mkdir()
    net = dict.fromkeys(("dial_timeout", "read_timeout", "write_timeout"), "1s")
    cluster = {"kafka": {"seed_peers": ["localhost:1"]}, "net": net}
    (tmp_path / "pixy.yaml").write_text(yaml.safe_dump({"proxies": {"main": cluster}}))
    return tmp_path


def refused(argv: list[str], capfd: pytest.CaptureFixture[str], code: int) -> str:
    """Run the command; return the reason, which must be all that it says."""
    assert run(argv) == code
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1), (out, err)
    start = f"kafka-pixy pipeline {argv[0]}: "
    assert err.startswith(start), err
    return err.removeprefix(start).rstrip("\n")


@pytest.mark.parametrize(
    "argv",
    [
        ["verify"],
        VERIFY_ON_SPARK,
        ["verify", "--topic", "orders", "--shallow"],
        [*REPLAY, "--topic", "orders"],
        [*REPLAY, "--topic", "orders", "--where", "partition = 1"],
        [*REPLAY, "--topic", "orders", "--executors"],
        ["expire", "--older-than", "90d"],
        ["vacuum"],
        ["optimize"],
        ["optimize", "--dry-run"],
        [*ERASE, "--topic", "orders"],
        AUDIT,
        [*AUDIT, "--config", "pixy.yaml"],
        [*AUDIT, "--topics", "orders", "--incremental"],
        [*TABLE, "parquet", "--table", "plain"],
    ],
    ids=" ".join,
)
def test_a_lake_that_is_not_there(argv: list[str], folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    no_folder = f"{folder}/lkae is not a lake: there is no such folder"
    assert refused([*argv, "--lake", "lkae"], capfd, 1) == no_folder
    assert refused([*argv, "--lake", f"file://{folder}/lkae"], capfd, 1) == no_folder
    assert not (folder / "lkae").exists() and not (folder / "out").exists()
    no_table = f"{folder}/plain is not a lake: it has no Delta table data"
    assert refused([*argv, "--lake", "plain"], capfd, 1) == no_table
    assert list((folder / "plain").iterdir()) == []


def test_every_command_with_a_lake_and_spark_is_seen_here() -> None:
    """Of the others `archive` makes its lake (see below), `migrate` and `scan` have no Spark or no lake."""
    here = {"verify", "replay", "expire", "vacuum", "optimize", "erase", "audit", "audit-table"}
    assert set(MODULES) - here == {"archive", "migrate", "scan"}


@pytest.mark.parametrize(
    ("argv", "code", "reason"),
    [
        ([*VERIFY_ON_SPARK, "--topic", "odrers"], 2, "lake has no topic odrers"),
        (["optimize", "--topic", "odrers"], 2, "lake has no topic odrers"),
        ([*ERASE, "--topic", "odrers"], 2, "lake has no topic odrers"),
        (
            [*REPLAY, "--topic", "odrers", "--where", "true"],
            2,
            "{folder}/lake has no topic odrers; it has orders",
        ),
        (
            [*AUDIT, "--topics", "orders,odrers"],
            1,
            "topic odrers does not exist in the cluster, the lake or the journal",
        ),
        (
            [*AUDIT, "--journal", "jurnal"],
            1,
            "journal topic jurnal does not exist in the cluster or the lake",
        ),
        (
            [*AUDIT, "--group", "billing"],
            2,
            "--group needs a journal, or --config to ask the cluster for the group's offsets",
        ),
    ],
)
def test_what_the_lake_lacks(
    argv: list[str], code: int, reason: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert refused([*argv, "--lake", "lake"], capfd, code) == reason.format(folder=folder)


def test_an_audit_of_an_empty_lake_or_into_a_file(capfd: pytest.CaptureFixture[str]) -> None:
    assert refused([*AUDIT, "--lake", "empty"], capfd, 1) == (
        "there is nothing to audit: neither lake nor journal has a topic; name topics with --topics"
    )
    into = refused(["audit", "--out", "pixy.yaml", "--lake", "lake"], capfd, 1)
    assert into == "pixy.yaml is not a folder; give a new one"


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (["parquet", "--table", "ordres"], "--table ordres: there is no such folder"),
        (["parquet", "--table", "file:///no/table"], "--table file:///no/table: there is no such folder"),
        (["iceberg", "--table", "./ordres"], "--table ./ordres: there is no such folder"),
        (["delta", "--table", "plain"], "--table plain is not a Delta table: it has no _delta_log"),
    ],
)
def test_a_table_that_is_not_there(
    table: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert refused([*TABLE, *table], capfd, 1) == reason


@pytest.mark.parametrize(
    "table",
    [
        ["iceberg", "--table", "orders"],
        ["parquet", "--table", "s3a://bucket/orders"],
        ["parquet", "--table", "/warehouse/*/orders"],
        ["parquet", "--table", "/warehouse/orders", "--master", "k8s://https://host"],
        ["parquet", "--table", "/warehouse/orders", "--conf", "spark.hadoop.fs.defaultFS=hdfs://host"],
    ],
)
def test_a_table_that_may_be_elsewhere_is_left_to_spark(
    table: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session.jars, "check_java", lambda: None)
    with pytest.raises(AssertionError, match="Spark was started"):
        run([*TABLE, *table])


class Cluster:
    """A cluster with the topic `orders`."""

    def cluster_id(self) -> str:
        return "kafka-1"

    def topics(self) -> dict[str, int]:
        return {"orders": 1}


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "admin_view", lambda _: Cluster())


@pytest.mark.parametrize(
    ("lake", "reason"),
    [
        ("", "the name of the lake is empty: give a folder or a URI"),
        ("plain", "{folder}/plain is not a lake and not empty (there is notes.txt): give a new folder"),
        ("pixy.yaml", "cannot write to {folder}/pixy.yaml: {folder}/pixy.yaml is not a folder"),
        ("pixy.yaml/lake", "cannot write to {folder}/pixy.yaml/lake: {folder}/pixy.yaml is not a folder"),
        ("locked/lake", "cannot write to {folder}/locked/lake: {folder}/locked may not be written"),
        (
            "other",
            "{folder}/other is the lake of Kafka cluster kafka-2 (main); this is cluster kafka-1 (main): "
            "one lake holds one cluster, give another --lake",
        ),
        (
            "old",
            "{folder}/old is a lake of format 1: run `kafka-pixy pipeline migrate --lake {folder}/old`, "
            "which makes it a Delta table and rewrites no file of records",
        ),
    ],
)
@pytest.mark.usefixtures("reached")
def test_a_lake_that_archive_cannot_use(
    lake: str, reason: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "plain" / "notes.txt").touch()
    (folder / "locked").mkdir()
    Lake.open_or_create(str(folder / "other"), "main", "kafka-2")
    (folder / "old").mkdir()
    (folder / "old" / "_lake.json").write_text("{}")
    # As root, everything may be written.
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).name != "locked")
    reason = reason.format(folder=folder)
    assert refused([*ARCHIVE, "--lake", lake], capfd, 1) == reason
    assert list((folder / "locked").iterdir()) == []


@pytest.mark.usefixtures("reached")
def test_archive_starts_spark_before_it_makes_a_lake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.jars, "check_java", lambda: None)
    monkeypatch.setattr(pipeline_common.console, "quiet", True)
    for lake in ("lake", "empty", "new/lake"):
        with pytest.raises(AssertionError, match="Spark was started"):
            run([*ARCHIVE, "--lake", lake])
    assert not (folder / "new").exists()


def test_spark_starts_where_everything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the tests above would see a Spark that starts too early."""
    monkeypatch.setattr(session.jars, "check_java", lambda: None)
    monkeypatch.setattr(pipeline_common.console, "quiet", True)
    for argv in (AUDIT, [*ERASE, "--topic", "orders"], VERIFY_ON_SPARK):
        with pytest.raises(AssertionError, match="Spark was started"):
            run([*argv, "--lake", "lake"])
