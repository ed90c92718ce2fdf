"""A lake of format 1 becomes a Delta table: the same files, records, ranges and checksums."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pixy.pipeline.errors import LakeError, ManifestError, Published
from pixy.pipeline.lake.data_table import DataTable
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.migrate import UNRECORDED, migrate
from pixy.pipeline.lake.verify import verify
from tests.unit.pipeline.lake.old_format import OldLake
from tests.unit.pipeline.support import publish, rows, stats_of, write_file


@pytest.fixture
def old(tmp_path: Path) -> OldLake:
    """Three batches, the first two of them compacted; one of a topic that began at offset 7; one in the year 12000."""
    old = OldLake(tmp_path / "lake")
    small = [old.batch("t", rows(0, range(at, at + 5)), at, at + 5) for at in (0, 5)]
    big = old.file("t", "2023-11-14", "compact-x", rows(0, range(10)))
    old.publish(kind="compaction", job="compact", batch=-1, ranges=[], files=[big], replaces=small)
    Path(old.folder, small[0]).unlink()  # as compactions did after a day
    old.batch("t", rows(0, range(10, 14)), 10, 15)
    old.batch("late", rows(0, [7, 8]), 7, 9, "+12000-01-01")
    return old


def files(old: OldLake) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in old.folder.rglob("*.parquet")
    }


def check(old: OldLake, before: dict[str, tuple[int, int]]) -> Lake:
    lake = Lake.open(str(old.folder))
    state = lake.state()
    assert files(old).items() >= before.items(), "no file of records is rewritten"
    assert state.topics() == ["late", "t"] and state.seq == 4
    assert state.partition_stats("t") == stats_of("t", rows(0, range(14)))
    assert [(each.range.start, each.range.end, each.seq) for each in state.ranges["t", 0]] == [
        (0, 5, 0),
        (5, 10, 1),
        (10, 15, 3),
    ]
    skipped = [each.range for each in state.all_ranges["late", "id", 0] if each.range.skipped]
    assert [(each.start, each.end, each.skipped) for each in skipped] == [(0, 7, UNRECORDED)]
    assert {file.date for file in state.select("late")} == {""}
    verdict = verify(lake)
    assert (verdict.problems, verdict.records) == ([], 16)
    table = DeltaTable(lake.path("data")).to_pyarrow_table(columns=["topic", "offset", "date"])
    assert sorted(table.filter(pa.compute.equal(table["topic"], "t"))["offset"].to_pylist()) == list(
        range(14)
    )
    assert lake.identity.id == "abc" and lake.identity.cluster_id == "kafka-1"
    return lake


def test_a_migrated_lake_has_the_same_files_and_goes_on(old: OldLake) -> None:
    before = files(old)
    done = migrate(str(old.folder))
    assert (done.entries, done.files, done.records) == (5, 3, 16)
    lake = check(old, before)
    publish(lake, lake.ledger(), 9, [write_file(lake, "t", "2023-11-14", "n", rows(0, [15]))], {0: (15, 16)})
    assert verify(lake).problems == []
    assert lake.state().partition_stats("t")[0].count == 15
    with pytest.raises(LakeError, match="is not a lake of format 1"):
        migrate(str(old.folder))


def test_a_killed_migration_continues(old: OldLake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(old)
    commit = DataTable.commit
    for survived in (0, 2, 1):
        left = [survived]

        def dying(self: DataTable, *args: object, left: list[int] = left, **named: object) -> None:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            commit(self, *args, **named)  # type: ignore[arg-type]

        with monkeypatch.context() as patched:
            patched.setattr(DataTable, "commit", dying)
            with pytest.raises(KeyboardInterrupt):
                migrate(str(old.folder))
    migrate(str(old.folder))
    check(old, before)


def test_the_table_that_format_1_kept_beside_its_log_is_set_aside(old: OldLake) -> None:
    DeltaTable.create(str(old.folder / "data"), pa.schema([("topic", pa.string())]))
    before = files(old)
    migrate(str(old.folder))
    check(old, before)
    assert (old.folder / "_manifests/_delta_log").is_dir()


def test_a_damaged_log_is_not_migrated(old: OldLake) -> None:
    entry = old.folder / "_manifests/000000000001.json"
    whole = entry.read_text()
    for damaged, named in (
        (whole.replace('"count": 5', '"count": 6'), "was altered"),
        ((old.folder / "_manifests/000000000000.json").read_text(), "does not continue the entry before it"),
        ("{", "is not JSON"),
    ):
        entry.write_text(damaged)
        with pytest.raises(ManifestError, match=named):
            migrate(str(old.folder))
        assert (old.folder / "_lake.json").exists()
    entry.write_text(whole)
    migrate(str(old.folder))


OUTSIDE = [
    "../secret",
    "/etc/passwd",
    "data/../../secret",
    "data/..",
    "",
    "data",
    "data/",
    "data//a",
    "data/./a",
    "_lake.json",
    "data\\..\\..\\secret",
    "data/a\0b",
    "file:///etc/passwd",
    7,
    None,
]


@pytest.mark.parametrize("path", OUTSIDE, ids=repr)
def test_a_manifest_that_names_what_is_outside_is_refused(tmp_path: Path, path: object) -> None:
    old = OldLake(tmp_path / "lake")
    file = old.file("t", "2023-11-14", "f", rows(0, [1]))
    old.publish(kind="batch", ranges=[], files=[{**file, "path": path}])
    with pytest.raises(ManifestError, match="is not one of a file in data/"):
        migrate(str(old.folder))


@pytest.mark.parametrize(
    ("field", "value"),
    [("topic", "../../t"), ("topic", ".."), ("date", "../../x"), ("date", "2026-01-01/..")],
)
def test_a_manifest_whose_topic_or_day_is_a_path_is_refused(tmp_path: Path, field: str, value: str) -> None:
    old = OldLake(tmp_path / "lake")
    old.publish(
        kind="batch", ranges=[], files=[{**old.file("t", "2023-11-14", "f", rows(0, [1])), field: value}]
    )
    with pytest.raises(ManifestError, match="the name"):
        migrate(str(old.folder))


def test_a_commit_is_a_compare_and_set(old: OldLake) -> None:
    migrate(str(old.folder))
    one, other = Lake.open(str(old.folder)), Lake.open(str(old.folder))
    one.table.commit([], [], "", {"x": 1}, published=1, changes=True)
    with pytest.raises(Published):
        other.table.commit([], [], "", {"y": 1}, published=1, changes=True)
    other.table.refresh()
    other.table.commit([], [], json.dumps({}), {"y": 1}, published=1, changes=True)
    assert verify(Lake.open(str(old.folder))).problems == []
