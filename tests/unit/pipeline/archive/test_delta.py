"""Entries of the log as actions of Delta's protocol."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pixy.pipeline.archive.delta import SCHEMA, actions_of, has_table, refuse_without
from pixy.pipeline.errors import UsageError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.manifest import BATCH, COMPACTION, DataFile, Manifest
from pixy.pipeline.lake.store import LocalStore


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


def test_a_batch_adds_its_files_with_its_number_as_version() -> None:
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
def test_timestamps_without_a_date_are_left_out(times: tuple[int, int]) -> None:
    _, add = list(actions_of(manifest(BATCH, (data_file(p0=Stats(4, 1, 10, 13, *times)),)), "app"))
    assert set(json.loads(add["add"]["stats"])["minValues"]) == {"partition", "offset"}


def test_the_table_has_every_column() -> None:
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
