"""One message is found in a lake and in the maps of replays, and what is not there is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pixy.cli.shell.trace_lake import ASKED, add_lake
from pixy.pipeline.lake.entry import BATCH, Entry, Range
from pixy.pipeline.lake.find_message import ends, find_message
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.replay.find_message import find_copies
from pixy.pipeline.replay.state import ReplayState
from tests.unit.pipeline.support import make_lake, publish, rows, write_file


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Offsets 0 to 9 and 10 to 19 of two partitions in two files, without 13; then a range that was skipped, and a new epoch."""
    made = make_lake(tmp_path / "lake")
    ledger = made.ledger()
    for batch, offsets in enumerate((range(10), [10, 11, 12, *range(14, 20)])):
        file = write_file(
            made,
            "t",
            "2023-11-14",
            f"part-{batch}",
            [row for p in (0, 1) for row in rows(p, list(offsets))],
            "id",
        )
        at = batch * 10
        publish(made, ledger, batch, [file], {0: (at, at + 10), 1: (at, at + 10)}, "id")
    skipped = Range("t", "id", 1, 20, 25, skipped="retention was faster")
    made.publish(ledger, Entry(BATCH, "job", 2, "read_committed", 1002, (skipped,)))
    again = write_file(made, "t", "2023-11-14", "again", rows(0, [3]), "other")
    publish(made, ledger, 3, [again], {0: (3, 4)}, "other")
    return made


def test_the_file_and_the_batch_of_a_message_are_found(lake: Lake) -> None:
    [found] = find_message(lake, "t", 1, 14)
    assert found.file.startswith(lake.location.root) and "part-1" in found.file
    assert (found.job, found.batch, found.published, found.topic_id) == ("job", 1, 1001, "id")
    assert found.timestamp == 1_700_000_000_014


def test_a_topic_that_was_made_again_has_the_offset_twice_the_last_one_first(lake: Lake) -> None:
    assert [(each.topic_id, "again" in each.file) for each in find_message(lake, "t", 0, 3)] == [
        ("other", True), ("id", False),
    ]  # fmt: skip


def test_gaps_and_skipped_ranges_are_told_apart_from_what_is_not_covered(lake: Lake) -> None:
    [gap] = find_message(lake, "t", 1, 13)
    assert (gap.file, gap.skipped, gap.batch) == ("", "", 1)
    [left] = find_message(lake, "t", 1, 22)
    assert (left.file, left.skipped) == ("", "retention was faster")
    assert (
        find_message(lake, "t", 1, 25) == find_message(lake, "t", 2, 0) == find_message(lake, "u", 1, 0) == []
    )
    assert (ends(lake, "t", 0), ends(lake, "u", 0)) == (4, None)


def replayed(folder: Path, name: str, to: str) -> None:
    state = ReplayState(str(folder / name))
    state.save({"asked": {"topic": "t", "to": to, "lake": "l"}})
    state.add(1, [14, 15], 4, [70, 71])
    state.flush()
    state.add(1, [16], 4, [72])
    state.flush()


def test_copies_are_found_in_both_directions(tmp_path: Path) -> None:
    for name, to in (("one", "again"), ("two", "elsewhere")):
        replayed(tmp_path / "replays", name, to)
    copies, origins = find_copies(str(tmp_path / "replays"), "t", 1, 15)
    assert [(each.to, each.new_partition, each.new_offset) for each in copies] == [
        ("again", 4, 71), ("elsewhere", 4, 71),
    ]  # fmt: skip
    assert origins == []
    copies, origins = find_copies(str(tmp_path / "replays" / "one"), "again", 4, 72)
    assert copies == [] and [(each.topic, each.partition, each.offset) for each in origins] == [("t", 1, 16)]
    assert find_copies(str(tmp_path / "replays"), "t", 0, 15) == ([], [])


def story(partition: int, offset: int, topic: str = "t") -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "events": [{"time": 5e12, "event": "acked"}],
        "unknown": [{"what": ASKED, "why": "the daemon does not know the lake"}],
    }


def test_a_story_gets_the_events_of_lake_and_replays(lake: Lake, tmp_path: Path) -> None:
    replayed(tmp_path / "replays", "one", "again")
    told = story(1, 14)
    add_lake(told, lake.location.root, str(tmp_path / "replays"))
    assert [each["event"] for each in told["events"]] == ["archived", "replayed", "acked"]
    assert told["events"][1]["detail"]["to"] == "again/4/70" and told["unknown"] == []
    told = story(4, 70, "again")
    add_lake(told, lake.location.root, str(tmp_path / "replays"))
    assert told["events"][0]["detail"]["of"] == "t/1/14"
    assert [each["what"] for each in told["unknown"]] == ["archive"]


@pytest.mark.parametrize(("lake_name", "why"), [("", "no --lake"), ("none", "cannot be read")])
def test_what_nobody_was_asked_for_stays_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_name: str, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    told = story(1, 14)
    add_lake(told, lake_name, "replays" if not lake_name else "")
    unknown = {each["what"]: each["why"] for each in told["unknown"]}
    assert set(unknown) == {"archive", "replays"} and why in unknown["archive"]
    untouched = story(1, 14)
    add_lake(untouched, "", "")
    assert untouched == story(1, 14)
