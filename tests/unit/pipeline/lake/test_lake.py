"""The log is a chain of whole entries; an error names the entry that is missing or altered."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pixy.pipeline.errors import LakeError, ManifestError, Published, UnknownVersion
from pixy.pipeline.lake.arrow_store import reading_store
from pixy.pipeline.lake.data_files import examine
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import manifest_path
from pixy.pipeline.lake.manifest import COMPACTION, Manifest
from pixy.pipeline.lake.state import State
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.lake.verify import verify
from tests.unit.pipeline.support import make_lake, publish, rows, write_file


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Three batches of one topic, two partitions, two days."""
    lake = make_lake(tmp_path / "lake")
    state = lake.state()
    for batch in range(3):
        files = [
            write_file(
                lake, "t", day, f"{batch}-{day}", [row for p in (0, 1) for row in rows(p, range(at, at + 5))]
            )
            for day, at in (("2023-11-14", batch * 10), ("2023-11-15", batch * 10 + 5))
        ]
        publish(
            lake, state, batch, files, {0: (batch * 10, batch * 10 + 10), 1: (batch * 10, batch * 10 + 10)}
        )
    return lake


def entry(lake: Lake, seq: int) -> Path:
    return Path(lake.path(manifest_path(seq)))


def problems(lake: Lake) -> str:
    return "\n".join(verify(lake).problems)


def test_a_lake_is_read_back(lake: Lake) -> None:
    state = Lake.open(lake.store.root).state()
    assert state.seq == 2 and state.topics() == ["t"] and len(state.files) == 6
    assert [each.range.start for each in state.ranges["t", 1]] == [0, 10, 20]
    assert state.partition_stats("t")[0].count == 30
    assert problems(lake) == ""
    far = Lake.open("file://" + lake.store.root, reading_store("file://" + lake.store.root))
    assert far.state() == state


def test_a_lake_reads_the_same_through_pyarrow(lake: Lake) -> None:
    from pixy.pipeline.lake.arrow_store import ArrowStore

    far = Lake.open("x", ArrowStore("file://" + lake.store.root))
    assert far.state() == lake.state()
    verdict = verify(far)
    assert (verdict.problems, verdict.records, verdict.unlisted) == ([], 60, [])
    with pytest.raises(LakeError, match=r"is opened for reading"):
        far.store.publish("x", b"")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda e: e.write_text(e.read_text().replace('"count": 10', '"count": 11', 1)), "was altered"),
        (lambda e: e.write_text(e.read_text()[:-40]), "not JSON"),
        (lambda e: e.write_text("{}"), "not a kafka-pixy-lake file"),
        (lambda e: e.write_text(e.read_text().replace('"version": 1', '"version": 2')), "format version 2"),
        (lambda e: e.unlink(), "is missing"),
        (lambda e: e.write_bytes(e.with_name("000000000000.json").read_bytes()), "is entry 0, not 1"),
    ],
)
def test_a_damaged_entry_is_named(lake: Lake, damage: object, named: str) -> None:
    damage(entry(lake, 1))  # type: ignore[operator]
    with pytest.raises(ManifestError if "version" not in named else UnknownVersion, match=named) as caught:
        lake.state()
    assert "000000000001" in str(caught.value)
    assert named in problems(lake)


def test_an_exchanged_entry_breaks_the_chain(lake: Lake, tmp_path: Path) -> None:
    other = make_lake(tmp_path / "other")
    state = other.state()
    publish(other, state, 0, [write_file(other, "t", "2023-11-14", "x", rows(0, [0]))], {0: (0, 1)})
    entry(lake, 0).write_bytes(entry(other, 0).read_bytes())
    with pytest.raises(ManifestError, match=r"does not continue the entry before it"):
        lake.state()


def test_files_are_compared_with_the_log(lake: Lake) -> None:
    first, second, third, *_ = (Path(lake.path(path)) for path in lake.state().files)
    first.unlink()
    second.write_bytes(second.read_bytes()[:-1])
    third.write_bytes(b"x" * third.stat().st_size)
    found = problems(lake)
    assert f"{first} is missing" in found
    assert f"{second} has" in found and "its manifest says" in found
    assert f"{third} cannot be read" in found


def test_an_altered_record_is_named(lake: Lake) -> None:
    file = write_file(
        lake, "t", "2023-11-16", "plain", rows(0, [30, 31]), compression="none", use_dictionary=False
    )
    publish(lake, lake.state(), 3, [file], {0: (30, 32)})
    assert problems(lake) == ""
    path = Path(lake.path(file.path))
    path.write_bytes(path.read_bytes().replace(b"v31", b"v32"))
    found = problems(lake)
    assert f"{path}: the content of t/0 offset 31 is not what was archived" in found
    assert "checksum of partition 0 is" in found and "content_checksum of partition 0 is" in found


def test_columns_of_another_format_are_refused(lake: Lake) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(lake.path("data/topic=t/other.parquet"))
    pq.write_table(pa.table({"topic": ["t"]}), path)
    with pytest.raises(UnknownVersion, match=r"other.parquet lacks the columns .*: partition is missing"):
        examine(str(path), "t")


def test_unlisted_files_are_counted_but_are_no_problem(lake: Lake) -> None:
    write_file(lake, "t", "2023-11-14", "leftover", rows(0, [99]))
    verdict = verify(lake)
    assert verdict.problems == [] and [Path(path).stem for path in verdict.unlisted] == ["leftover"]


def test_doubled_and_skipped_offsets_are_found(lake: Lake) -> None:
    state = lake.state()
    publish(lake, state, 3, [write_file(lake, "t", "2023-11-16", "a", rows(0, [25]))], {0: (25, 26)})
    publish(lake, state, 4, [write_file(lake, "t", "2023-11-16", "b", rows(0, [40]))], {0: (40, 41)})
    found = problems(lake)
    assert "offsets 25 to 25 of t/0 are there twice" in found
    assert "offsets 30 to 39 of t/0 were skipped" in found


def test_the_checkpoint_reveals_entries_missing_at_the_end(lake: Lake) -> None:
    commits = Path(lake.path("_checkpoints/job/spark/commits"))
    commits.mkdir(parents=True)
    (commits / "2").touch()
    assert problems(lake) == ""
    entry(lake, 2).unlink()
    assert "job job has published batch 2, the log's last one of it is 1" in problems(lake)


def test_a_compaction_must_hold_what_it_replaces(lake: Lake) -> None:
    state = lake.state()
    files = [file for file in state.files.values() if file.date == "2023-11-14"]
    all_rows = [row for p in (0, 1) for at in (0, 10, 20) for row in rows(p, range(at, at + 5))]
    good = write_file(lake, "t", "2023-11-14", "compact-1", all_rows)
    lake.publish(
        state,
        Manifest(
            0, "", COMPACTION, 1, "compact", -1, "", "", (), (good,), tuple(file.path for file in files)
        ),
    )
    assert problems(lake) == "" and len(lake.state().files) == 4
    bad = write_file(lake, "t", "2023-11-14", "compact-2", all_rows[1:])
    lake.publish(state, Manifest(0, "", COMPACTION, 1, "compact", -1, "", "", (), (bad,), (good.path,)))
    assert "manifest 4: the compacted files differ from those they replace" in problems(lake)


def test_two_writers_take_turns(lake: Lake) -> None:
    def write(number: int) -> None:
        mine, state = Lake.open(lake.store.root), State()
        for batch in range(10):
            file = write_file(mine, f"u{number}", "2023-11-14", f"{batch}", rows(0, [batch]))
            publish(mine, state, batch, [file], {0: (batch, batch + 1)})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = lake.state()
    assert state.seq == 2 + 30
    assert [len(state.select(f"u{number}")) for number in range(3)] == [10, 10, 10]


def test_an_entry_is_never_overwritten(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.publish("a/b.json", b"1")
    with pytest.raises(Published, match=r"exists already"):
        store.publish("a/b.json", b"2")
    assert store.read("a/b.json") == b"1" and store.names("a") == ["b.json"]


def test_folders_that_are_not_this_cluster_s_lake_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match=r"is not a lake: it has no _lake.json"):
        Lake.open(str(tmp_path))
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(LakeError, match=r"not empty \(there is photo.jpg\)"):
        make_lake(tmp_path)
    lake = make_lake(tmp_path / "lake")
    with pytest.raises(LakeError, match=r"one lake holds one cluster"):
        Lake.open_or_create(lake.store.root, "main", "kafka-2")
    identity = Path(lake.path("_lake.json"))
    identity.write_text(json.dumps({**json.loads(identity.read_text()), "version": 9}))
    with pytest.raises(UnknownVersion, match=r"format version 9"):
        Lake.open(lake.store.root)


@pytest.mark.slow
def test_importing_needs_no_spark() -> None:
    code = (
        "import sys, pixy.pipeline, pixy.pipeline.lake.lake, pixy.pipeline.lake.verify, pixy.pipeline.replay.job;"
        "sys.exit(any(name.partition('.')[0] in ('pyspark', 'py4j') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
