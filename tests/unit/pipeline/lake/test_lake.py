"""The history is a chain of whole entries; an error names the entry that is missing or altered."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pixy.pipeline.errors import LakeError, ManifestError, UnknownVersion
from pixy.pipeline.lake.data_files import examine
from pixy.pipeline.lake.entry import OPTIMIZATION, Entry, Range
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.state import Ledger, State
from pixy.pipeline.lake.verify import in_processes, verify
from tests.unit.pipeline.support import make_lake, publish, rows, write_file


def batches(lake: Lake, first: int, count: int, topic: str = "t", topic_id: str = "id") -> None:
    """Publish batches of 10 offsets in each of two partitions, in two days."""
    ledger = lake.ledger()
    for batch in range(first, first + count):
        at = batch * 10
        files = [
            write_file(
                lake,
                topic,
                day,
                f"{batch}-{topic_id}",
                [row for p in (0, 1) for row in rows(p, range(from_, from_ + 5))],
                topic_id,
            )
            for day, from_ in (("2023-11-14", at), ("2023-11-15", at + 5))
        ]
        publish(lake, ledger, batch, files, {0: (at, at + 10), 1: (at, at + 10)}, topic_id)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three batches of one topic, two partitions, two days."""
    lake = make_lake(tmp_path / "lake")
    batches(lake, 0, 3)
    return lake


def commit_file(lake: Lake, version: int) -> Path:
    return Path(lake.path(f"data/_delta_log/{version:020d}.json"))


def problems(lake: Lake) -> str:
    return "\n".join(verify(lake).problems)


def test_a_lake_is_read_back(lake: Lake) -> None:
    state = Lake.open(lake.location.root).state()
    assert state.seq == 2 and state.topics() == ["t"] and len(state.files) == 6
    assert [each.range.start for each in state.ranges["t", 1]] == [0, 10, 20]
    assert state.partition_stats("t")[0].count == 30
    assert problems(lake) == ""
    assert Lake.open(f"file://{lake.location.root}").state() == state


def test_any_reader_of_delta_sees_each_record_once(lake: Lake) -> None:
    write_file(lake, "t", "2023-11-14", "left-by-a-killed-job", rows(0, [5]))
    table = DeltaTable(lake.path("data")).to_pyarrow_table()
    found = sorted(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    assert found == [(partition, offset) for partition in (0, 1) for offset in range(30)]
    assert set(table["date"].cast(pa.string()).to_pylist()) == {"2023-11-14", "2023-11-15"}
    some = DeltaTable(lake.path("data")).to_pyarrow_table(filters=[("offset", "=", 7), ("partition", "=", 1)])
    assert some["value"].to_pylist() == [b"v7"]


def test_the_table_of_ranges_and_the_log_say_the_same(lake: Lake) -> None:
    before = lake.state()
    assert lake.ranges.complete_up_to() == -1
    assert lake.follow(at_least=100) == 0
    assert lake.follow() == 3 and lake.follow() == 0
    assert lake.state() == before
    batches(lake, 3, 2)  # two that only the log has
    state, ledger = lake.state(), lake.ledger()
    assert state.seq == 4 and [each.seq for each in lake.history()] == list(range(5))
    for name in (each.name for each in fields(Ledger)):
        assert getattr(ledger, name) == getattr(state, name), name
    assert ledger.covered == {("t", "id", 0): [(0, 50)], ("t", "id", 1): [(0, 50)]}
    DeltaTable(lake.path("data")).create_checkpoint()
    for version in range(4):  # as housekeeping does after a month
        commit_file(lake, version).unlink()
    again = Lake.open(lake.location.root)
    assert again.state() == state and problems(again) == ""


def test_many_small_files_of_ranges_are_merged(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pixy.pipeline.lake.ranges_table.MAX_FILES", 2)
    for batch in range(3, 9):
        batches(lake, batch, 1)
        lake.follow()
    assert len(DeltaTable(lake.path("ranges")).file_uris()) <= 2
    assert problems(lake) == "" and lake.ledger().seq == 8


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('\\"count\\":10', '\\"count\\":11', "was altered"),
        ('\\"version\\":2', '\\"version\\":3', "format version 3"),
        ('\\"seq\\":1,', '\\"seq\\":7,', "was altered"),
        ("kafka-pixy-lake\\", "other-program\\", "which does not continue entry 0"),
    ],
)
def test_a_damaged_entry_is_named(lake: Lake, old: str, new: str, named: str) -> None:
    entry = commit_file(lake, 2)
    assert old in entry.read_text()
    entry.write_text(entry.read_text().replace(old, new, 1))
    with pytest.raises(UnknownVersion if "format" in named else ManifestError, match=named) as caught:
        Lake.open(lake.location.root).state()
    assert "version 2" in str(caught.value) or "version 3" in str(caught.value)
    assert named in problems(Lake.open(lake.location.root))


def test_an_entry_that_left_the_table_of_ranges_is_missed(lake: Lake) -> None:
    lake.follow()
    DeltaTable(lake.path("ranges")).delete("seq = 1")
    with pytest.raises(ManifestError, match="entries are missing from the table of ranges"):
        lake.ledger()
    assert "entry 2 does not continue entry 0" in problems(lake)


def test_files_are_compared_with_the_table(lake: Lake) -> None:
    first, second, third, *_ = (Path(lake.path(path)) for path in lake.state().files)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(b"x" * third.stat().st_size)
    found = problems(lake)
    assert f"{first} is missing" in found
    assert f"{second} has" in found and "the table says" in found
    assert f"{third} cannot be read" in found


@pytest.mark.parametrize("run", [in_processes(1), pytest.param(in_processes(2), marks=pytest.mark.slow)])
def test_an_altered_record_is_named(lake: Lake, run: Callable) -> None:
    file = write_file(
        lake, "t", "2023-11-16", "plain", rows(0, [30, 31]), compression="none", use_dictionary=False
    )
    publish(lake, lake.ledger(), 3, [file], {0: (30, 32)})
    assert problems(lake) == ""
    path = Path(lake.path(file.path))
    path.write_bytes(path.read_bytes().replace(b"v31", b"v32"))
    found = "\n".join(verify(lake, run=run).problems)
    assert f"{path}: the content of t/0 offset 31 is not what was archived" in found
    assert "checksum of t/0 is" in found and "content_checksum of t/0 is" in found
    assert "offsets 30 to 31 of t/0 have 2 records with checksum" in found and "entry 3 says 2" in found
    assert "of t/1" not in found and "offsets 20" not in found


def test_columns_of_another_format_are_refused(lake: Lake) -> None:
    path = Path(lake.path("data/other.parquet"))
    pq.write_table(pa.table({"topic": ["t"]}), path)
    with pytest.raises(UnknownVersion, match=r"other.parquet lacks the columns .*: partition is missing"):
        examine(str(path), "t")


def test_unlisted_files_are_counted_but_are_no_problem(lake: Lake) -> None:
    write_file(lake, "t", "2023-11-14", "leftover", rows(0, [99]))
    verdict = verify(lake)
    assert verdict.problems == [] and [Path(path).stem for path in verdict.unlisted] == ["leftover"]


def test_doubled_and_missing_offsets_are_found(lake: Lake) -> None:
    ledger = lake.ledger()
    publish(lake, ledger, 3, [write_file(lake, "t", "2023-11-16", "a", rows(0, [25]))], {0: (25, 26)})
    publish(lake, ledger, 4, [write_file(lake, "t", "2023-11-16", "b", rows(0, [40]))], {0: (40, 41)})
    found = problems(lake)
    assert "offsets 25 to 25 of t/0 are there twice" in found
    assert "offsets 30 to 39 of t/0 are neither archived nor skipped" in found
    skipped = Range("t", "id", 0, 30, 40, skipped="expired")
    lake.publish(ledger, Entry("batch", "job", 5, ranges=(skipped,)))
    assert "neither archived nor skipped" not in problems(lake)


def test_a_rewrite_must_hold_what_it_replaces(lake: Lake) -> None:
    state = lake.state()
    files = [file for file in state.files.values() if file.date == "2023-11-14"]
    all_rows = [row for p in (0, 1) for at in (0, 10, 20) for row in rows(p, range(at, at + 5))]
    good = write_file(lake, "t", "2023-11-14", "rewrite-1", all_rows)
    lake.publish(state, Entry(OPTIMIZATION), [good.file], files, changes=False)
    assert problems(lake) == "" and len(lake.state().files) == 4
    with pytest.raises(LakeError, match="was replaced by another process meanwhile"):
        lake.publish(state, Entry(OPTIMIZATION), [good.file], files, changes=False)
    bad = write_file(lake, "t", "2023-11-14", "rewrite-2", all_rows[1:])
    lake.publish(state, Entry(OPTIMIZATION), [bad.file], [good.file], changes=False)
    assert "offsets 0 to 9 of t/0 have 9 records" in problems(lake)


def test_a_topic_that_was_created_again_begins_an_epoch(lake: Lake) -> None:
    batches(lake, 0, 1, topic_id="id-2")
    state = lake.state()
    assert problems(lake) == ""
    assert state.partition_stats("t")[0].count == 10 and len(state.select("t")) == 2
    earlier = lake.state({"t": "id"})
    assert earlier.partition_stats("t")[0].count == 30 and len(earlier.select("t")) == 6
    assert lake.ledger().topic_ids == {"t": "id-2"} and lake.ledger().end(("t", "id", 0)) == 30


def test_writers_take_turns(lake: Lake) -> None:
    def write(number: int) -> None:
        mine = Lake.open(lake.location.root)
        ledger = mine.ledger()
        for batch in range(6):
            file = write_file(mine, f"u{number}", "2023-11-14", f"{batch}", rows(0, [batch]))
            publish(mine, ledger, batch, [file], {0: (batch, batch + 1)}, job=f"job{number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = lake.state()
    assert state.seq == 2 + 18
    assert [len(state.select(f"u{number}")) for number in range(3)] == [6, 6, 6]
    assert problems(lake) == ""


def test_of_two_writers_of_the_same_offsets_one_is_refused(lake: Lake) -> None:
    """Both have checked the same ledger; the second one's commit is a compare-and-set that fails."""
    other, ledger = Lake.open(lake.location.root), lake.ledger()
    theirs = other.ledger()

    def check(found: Ledger) -> None:
        if found.overlap(Range("t", "id", 0, 30, 31)):
            raise LakeError("overlap")

    draft = Entry("batch", "job", 3, ranges=(Range("t", "id", 0, 30, 31),))
    lake.publish(ledger, draft, check=check)
    with pytest.raises(LakeError, match="overlap"):
        other.publish(theirs, draft, check=check)
    assert lake.state().seq == 3


def test_folders_that_are_not_this_cluster_s_lake_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"is not a lake: it has no Delta table data"):
        Lake.open(str(tmp_path))
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(LakeError, match=r"not empty \(there is photo.jpg\)"):
        make_lake(tmp_path)
    lake = make_lake(tmp_path / "lake")
    with pytest.raises(LakeError, match=r"one lake holds one cluster"):
        Lake.open_or_create(lake.location.root, "main", "kafka-2")
    DeltaTable(lake.path("data")).alter.set_table_properties(
        {"kafka-pixy.version": "9"}, raise_if_not_exists=False
    )
    with pytest.raises(UnknownVersion, match=r"format version '9'"):
        Lake.open(lake.location.root)
    DeltaTable.create(str(tmp_path / "foreign" / "data"), pa.schema([("a", pa.int32())]))
    with pytest.raises(UnknownVersion, match="the Delta table of another program"):
        Lake.open(str(tmp_path / "foreign"))
    old = tmp_path / "old"
    old.mkdir()
    (old / "_lake.json").write_text(json.dumps({"format": "kafka-pixy-lake", "version": 1}))
    with pytest.raises(UnknownVersion, match="is a lake of format 1: run `kafka-pixy pipeline migrate"):
        Lake.open(str(old))


def test_a_state_is_empty_at_first(tmp_path: Path) -> None:
    lake = make_lake(tmp_path / "lake")
    assert lake.state() == State() or lake.state().seq == -1
    assert verify(lake).problems == []


@pytest.mark.slow
def test_importing_needs_no_spark() -> None:
    code = (
        "import sys, pixy.pipeline, pixy.pipeline.lake.lake, pixy.pipeline.lake.verify, pixy.pipeline.replay.job;"
        "sys.exit(any(name.partition('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
