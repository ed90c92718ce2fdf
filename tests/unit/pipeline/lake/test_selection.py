"""Matches of a predicate are kept in a file, and read piece by piece."""

from __future__ import annotations

from pathlib import Path

from pixy.pipeline.lake.selection import SavedMatches, save_matches


def test_matches_are_read_by_partition(tmp_path: Path) -> None:
    path = str(tmp_path / "matches.parquet")
    save_matches(iter([(0, [1, 5, 9]), (0, [70_000]), (3, range(100, 104))]), path)
    found = SavedMatches(path)
    assert list(found) == [0, 3] and len(found) == 2
    assert 1 not in found
    assert list(found[0].between(0, 1 << 40)) == [1, 5, 9, 70_000]
    assert list(found[0].between(5, 70_000)) == [5, 9]
    assert list(found[0].between(10, 60_000)) == []
    assert list(found[3].between(102, 103)) == [102]


def test_few_pieces_are_in_memory_and_all_are_found(tmp_path: Path) -> None:
    path = str(tmp_path / "matches.parquet")
    save_matches(iter([(0, [at, at + 3]) for at in range(0, 1000, 10)]), path)
    found = SavedMatches(path)[0]
    for _ in range(2):
        assert [list(found.between(at, at + 10)) for at in range(0, 1000, 10)] == [
            [at, at + 3] for at in range(0, 1000, 10)
        ]
    assert len(found.between(0, 1000)) == 200
    assert len(found._kept) == 4


def test_no_match_is_an_empty_file(tmp_path: Path) -> None:
    path = str(tmp_path / "matches.parquet")
    save_matches(iter([]), path)
    assert dict(SavedMatches(path)) == {}
