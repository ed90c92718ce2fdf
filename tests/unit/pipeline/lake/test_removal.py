"""Records that are gone on purpose are told from lost ones, exactly where that is possible."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.entry import ERASURE, EXPIRY, Entry, Range
from pixy.pipeline.lake.expire import expire, plan
from pixy.pipeline.lake.find_message import find_message
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.removal import RemovedRanges, segments
from pixy.pipeline.lake.state import Archived
from pixy.pipeline.lake.verify import verify
from tests.unit.pipeline.support import make_lake, publish, rows, stats_of, write_file


def one(offset: int, count: int = 1) -> Stats:
    return Stats(count, 10 * count, offset, offset + count - 1, 5, 6, 100 + offset, 200 + offset)


def test_stats_of_a_part_are_taken_away() -> None:
    whole = one(0, 3) + one(10)
    assert whole - one(10) == replace(one(0, 3), last=10)
    assert whole - whole == Stats() == Stats() - Stats()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200)), min_size=1, unique=True),
    st.integers(1, 10),
)
def test_ranges_hold_all_removed_records_and_are_exact_where_there_is_room(
    removed: list[tuple[int, int]], most: int
) -> None:
    collected = RemovedRanges(most)
    for partition, offset in removed:
        collected.add(partition, one(offset))
    ranges = collected.ranges("t", "id", "erased: request 1")
    partitions = {partition for partition, _ in removed}
    assert len(ranges) <= max(most, len(partitions))
    for partition in partitions:
        offsets = [offset for number, offset in removed if number == partition]
        mine = [each for each in ranges if each.partition == partition]
        assert total(each.stats for each in mine) == total(map(one, offsets))
        assert all(any(each.start <= offset < each.end for each in mine) for offset in offsets)
        assert all(before.end <= after.start for before, after in pairwise(mine))
    runs = sum((partition, offset - 1) not in removed for partition, offset in removed)
    if runs <= most:
        assert all(each.stats.count == each.end - each.start for each in ranges) and len(ranges) == runs


def archived(start: int, end: int, count: int, seq: int = 0, skipped: str = "") -> Archived:
    stats = Stats(count, count, start, end - 1, 5, 6, count, count)
    return Archived(Range("t", "id", 0, start, end, stats, skipped), 0, "", 0, seq)


def test_ranges_that_one_removal_overlaps_are_one_segment() -> None:
    ranges = [archived(0, 10, 10), archived(10, 20, 9), archived(20, 30, 10), archived(30, 40, 10)]
    removed = [
        archived(3, 4, 1, skipped="erased: a"),
        archived(15, 25, 4, skipped="expired: b"),
        archived(5, 6, 1, skipped="erased: a"),
    ]
    found = segments(ranges, removed)
    assert [(each.start, each.end, each.expected.count) for each in found] == [
        (0, 10, 8),
        (10, 30, 15),
        (30, 40, 10),
    ]
    assert [len(each.removed) for each in found] == [2, 1, 0]
    assert found[2].fits(ranges[3].range.stats) and not found[2].fits(Stats())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Two batches of two partitions, each with two days; and a file without a day."""
    lake = make_lake(tmp_path / "lake")
    ledger = lake.ledger()
    for batch in (0, 1):
        at = batch * 10
        files = [
            write_file(
                lake, "t", day, f"{batch}", [row for p in (0, 1) for row in rows(p, range(first, first + 5))]
            )
            for day, first in (("2023-11-14", at), ("2023-11-15", at + 5))
        ]
        publish(lake, ledger, batch, files, {0: (at, at + 10), 1: (at, at + 10)})
    file = write_file(lake, "t", "", "no-day", rows(0, [20]))
    publish(lake, ledger, 2, [file], {0: (20, 21)})
    return lake


def test_whole_days_expire_and_nothing_is_called_lost(lake: Lake) -> None:
    before = lake.state().partition_stats("t")
    (would,) = plan(lake.state(), "2023-11-15", "t")
    assert (would.records, would.days, len(would.files)) == (20, ("2023-11-14", "2023-11-14"), 2)
    assert plan(lake.state(), "2023-11-14") == [] == plan(lake.state(), "2023-11-15", "other")
    assert [each.records for each in expire(lake, "2023-11-15")] == [20]
    assert expire(lake, "2023-11-15") == []
    state = Lake.open(lake.location.root).state()
    removed = {
        tp: [(e.range.start, e.range.end, e.range.stats.count) for e in each]
        for tp, each in state.removed.items()
    }
    assert removed == {("t", n): [(0, 5, 5), (10, 15, 5)] for n in (0, 1)}
    assert state.removed["t", 0][0].range.skipped == "expired: before 2023-11-15"
    assert [before[n].count - each.count for n, each in state.partition_stats("t").items()] == [10, 10]
    verdict = verify(lake)
    assert verdict.problems == [] and verdict.removed == {"expired": 20} and verdict.records == 21
    # The ledger's fast way over the table of ranges passes over removals, and the offsets stay covered.
    assert lake.ledger().covered == {("t", "id", 0): [(0, 21)], ("t", "id", 1): [(0, 20)]}
    for entry in lake.history():
        assert (entry.kind == EXPIRY) == any(each.skipped for each in entry.ranges)
    (found,) = find_message(lake, "t", 0, 12)
    assert (found.skipped, found.file) == ("expired: before 2023-11-15", "")
    assert find_message(lake, "t", 0, 7)[0].skipped == ""
    lake.vacuum(0, dry_run=False)
    assert verify(lake).problems == [] and verify(lake).unlisted == []


def test_a_loss_beside_expired_records_is_still_a_loss(lake: Lake) -> None:
    expire(lake, "2023-11-15")
    state = lake.state()
    (old,) = [file for file in state.files.values() if file.date == "2023-11-15" and file.first == 5]
    short = write_file(lake, "t", "2023-11-15", "short", [*rows(0, range(5, 9)), *rows(1, range(5, 10))])
    lake.publish(lake.ledger(), Entry("optimization"), [short.file], [old], changes=False)
    found = "\n".join(verify(lake).problems)
    assert "count of t/0 is 10, the entries say 11" in found and "of t/1" not in found
    assert "offsets 0 to 9 of t/0 have 4 records" in found and "entries 0 to 3 say 5" in found
    assert "offsets 10 to 19" not in found


def test_an_entry_that_claims_a_removal_must_fit_the_files(lake: Lake) -> None:
    gone = Range("t", "id", 0, 7, 8, stats_of("t", rows(0, [7]))[0], "erased: request 1")
    lake.publish(lake.ledger(), Entry(ERASURE, ranges=(gone,)))
    found = "\n".join(verify(lake).problems)
    assert "offsets 0 to 9 of t/0 have 10 records" in found and "say 9" in found


def test_one_process_replaces_files_at_a_time(lake: Lake) -> None:
    with lake.replacing(), pytest.raises(PipelineError, match="are being replaced by another process"):
        expire(lake, "2023-11-15")
    assert len(lake.state().files) == 5
