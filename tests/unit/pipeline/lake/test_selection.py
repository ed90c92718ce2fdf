"""Matches of a predicate are kept in a file, and read a partition at a time."""

from __future__ import annotations

from array import array
from pathlib import Path

from pixy.pipeline.lake.selection import SavedMatches, save_matches


def test_matches_are_read_by_partition(tmp_path: Path) -> None:
    path = str(tmp_path / "matches.parquet")
    save_matches(iter([(0, [1, 5, 9]), (0, [70_000]), (3, range(100, 104))]), path)
    found = SavedMatches(path)
    assert list(found) == [0, 3] and len(found) == 2
    assert found[0] == array("q", [1, 5, 9, 70_000])
    assert found.get(3) == array("q", range(100, 104))
    assert found.get(1, array("q")) == array("q")


def test_no_match_is_an_empty_file(tmp_path: Path) -> None:
    path = str(tmp_path / "matches.parquet")
    save_matches(iter([]), path)
    assert dict(SavedMatches(path)) == {}
