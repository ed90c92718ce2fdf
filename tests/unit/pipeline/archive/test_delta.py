"""Entries of the log in the terms of Delta's protocol, and where its jars come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pixy.cli.pipeline import run
from pixy.pipeline.archive.delta import SCHEMA, actions_of, has_table, refuse_without
from pixy.pipeline.errors import SetupError, UsageError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.manifest import BATCH, COMPACTION, DataFile, Manifest
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark import jars
from pixy.pipeline.spark.session import _with_delta


def manifest(kind: str, files: tuple[DataFile, ...], replaces: tuple[str, ...] = ()) -> Manifest:
    return Manifest(7, "", kind, 1234, "job", 3, "c", "", (), files, replaces)


def data_file(**partitions: Stats) -> DataFile:
    return DataFile(
        "data/topic=a.b/date=2023-11-14/x-0.parquet",
        "a.b",
        "2023-11-14",
        9,
        500,
        {int(name[1:]): stats for name, stats in partitions.items()},
    )


def test_a_batch_adds_its_files_under_its_number() -> None:
    file = data_file(
        p0=Stats(4, 1, 10, 13, 1_700_000_000_123, 1_700_000_000_999),
        p3=Stats(5, 1, 2, 8, 1_700_000_000_007, 1_700_000_000_500),
    )
    transaction, add = list(actions_of(manifest(BATCH, (file,)), "app"))
    assert transaction == {"txn": {"appId": "app", "version": 7, "lastUpdated": 1234}}
    stats = json.loads(add["add"].pop("stats"))
    assert add == {
        "add": {
            "path": "topic=a.b/date=2023-11-14/x-0.parquet",
            "partitionValues": {"topic": "a.b", "date": "2023-11-14"},
            "size": 500,
            "modificationTime": 1234,
            "dataChange": True,
        }
    }
    assert stats == {
        "numRecords": 9,
        "nullCount": {"partition": 0, "offset": 0, "timestamp": 0},
        "minValues": {"partition": 0, "offset": 2, "timestamp": "2023-11-14T22:13:20.007Z"},
        "maxValues": {"partition": 3, "offset": 13, "timestamp": "2023-11-14T22:13:20.999Z"},
    }


def test_a_compaction_changes_no_data() -> None:
    file = data_file(p0=Stats(4, 1, 10, 13, 5, 6))
    old = "data/topic=a.b/date=2023-11-14/y=1.parquet"
    _, remove, add = list(actions_of(manifest(COMPACTION, (file,), (old,)), "app"))
    assert remove["remove"]["path"] == "topic=a.b/date=2023-11-14/y=1.parquet"
    assert remove["remove"]["partitionValues"] == {"topic": "a.b", "date": "2023-11-14"}
    assert (remove["remove"]["dataChange"], add["add"]["dataChange"]) == (False, False)


@pytest.mark.parametrize("times", [(-1, 5), (5, 1 << 62)])
def test_times_that_have_no_date_are_left_out(times: tuple[int, int]) -> None:
    _, add = list(actions_of(manifest(BATCH, (data_file(p0=Stats(4, 1, 10, 13, *times)),)), "app"))
    assert set(json.loads(add["add"]["stats"])["minValues"]) == {"partition", "offset"}


def test_every_column_is_in_the_table() -> None:
    assert SCHEMA.fieldNames() == [
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "key",
        "value",
        "headers",
        "size",
        "hash",
        "date",
    ]


def test_a_table_is_found_by_its_log(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert not has_table(store)
    refuse_without(store, "this")
    store.publish("data/_delta_log/00000000000000000000.json", b"{}")
    assert has_table(store)
    with pytest.raises(
        UsageError, match=r"has a Delta table .*which this would leave behind: give --delta-jars"
    ):
        refuse_without(store, "this")


def test_settings_that_delta_asks_for_go_with_those_given() -> None:
    found = _with_delta({"spark.sql.extensions": "a.B", "spark.databricks.delta.snapshotPartitions": "9"})
    assert found["spark.sql.extensions"] == "a.B,io.delta.sql.DeltaSparkSessionExtension"
    assert found["spark.databricks.delta.snapshotPartitions"] == "9"
    assert found["spark.sql.catalog.spark_catalog"].endswith("DeltaCatalog")
    assert _with_delta(found)["spark.sql.extensions"] == found["spark.sql.extensions"]


# -- jars -----------------------------------------------------------------------------------------


def touch(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"")
    return folder


def test_jars_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = touch(tmp_path / "some", "delta-spark_2.13-4.0.1.jar")
    with pytest.raises(SetupError, match=r"some lacks delta-storage-VERSION.jar: run .*jars --delta"):
        jars.find_delta(str(some))
    with pytest.raises(SetupError, match=r"none lacks delta-spark_2.13-VERSION.jar, delta-storage"):
        jars.find_delta(str(tmp_path / "none"))
    touch(some, "delta-storage-4.0.1.jar", "readme.txt")
    assert [Path(path).name for path in jars.find_delta(str(some))] == [
        "delta-spark_2.13-4.0.1.jar",
        "delta-storage-4.0.1.jar",
    ]
    monkeypatch.setenv(jars.DELTA_ENVIRONMENT, str(some))
    assert jars.find_delta() == jars.find_delta(str(some))


def test_jars_by_coordinates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[str] = []

    def fetch(pom: Path, target: Path) -> None:
        fetched.append(pom.read_text())
        touch(target, "delta-spark_2.13-4.0.1.jar", "delta-storage-4.0.1.jar")

    monkeypatch.setenv(jars.ENVIRONMENT, str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "_fetch", fetch)
    monkeypatch.setattr(jars, "check_maven", lambda: None)
    for _ in range(2):
        found = jars.find_delta("io.delta:delta-spark_2.13:4.0.1")
        assert {Path(path).parent for path in found} == {tmp_path / "delta-spark_2.13-4.0.1"}
    [pom] = fetched
    assert pom.count("<dependency>") == 2, "the jar it needs comes along"
    assert "<artifactId>delta-storage</artifactId><version>4.0.1</version>" in pom


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--format", "parquet", "--delta-jars", "x"], "--delta-jars goes with --format delta"),
        (["--format", "iceberg"], "invalid choice: 'iceberg'"),
    ],
)
def test_a_wrong_command_line(
    more: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[Any]
) -> None:
    config = tmp_path / "pixy.yaml"
    config.write_text('{"proxies": {"main": {"kafka": {"seed_peers": ["localhost:1"]}}}}')
    assert (
        run(["archive", "--config", str(config), "--topics", "t", "--lake", str(tmp_path / "l"), *more]) == 2
    )
    assert named in capsys.readouterr().err
