"""The state folder of a replay, and group offsets translated by its map."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.pipeline.errors import PipelineError
from pixy.pipeline.replay.group_offsets import last_by, translate_offset
from pixy.pipeline.replay.state import ReplayState


def test_the_map_is_kept_in_parts(tmp_path: Path) -> None:
    kept = ReplayState(str(tmp_path / "state"))
    with kept.locked():
        kept.add(0, [1, 2], 0, [11, 12])
        kept.flush()
        kept.add(1, [5], 0, [13])
        kept.flush()
        kept.flush()
    again = ReplayState(str(tmp_path / "state"))
    with again.locked():
        again.add(1, [6], 0, [14])
        again.flush()
    table = again.map()
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, 1, 0, 11),
        (0, 2, 0, 12),
        (1, 5, 0, 13),
        (1, 6, 0, 14),
    ]
    assert last_by(table, "new_partition", "new_offset") == {0: 14}
    assert len(list((tmp_path / "state" / "map").iterdir())) == 3


@pytest.mark.parametrize(
    ("committed", "wanted"),
    [
        ({0: 0}, {0: 11}),
        ({0: 2}, {0: 12}),
        ({0: 3}, {0: 14}),  # between two records: the next one
        ({0: 9}, {0: 16}),  # all done: the end
    ],
)
def test_a_group_goes_on_where_it_was(tmp_path: Path, committed: dict, wanted: dict) -> None:
    kept = ReplayState(str(tmp_path))
    kept.add(0, [1, 2, 5, 6], 0, [11, 12, 14, 15])
    kept.flush()
    assert translate_offset(kept.map(), committed, {0: 10}) == wanted


def test_a_group_on_new_partitions_loses_nothing(tmp_path: Path) -> None:
    kept = ReplayState(str(tmp_path))
    kept.add(0, [0, 1, 2], 5, [0, 1, 2])
    kept.add(1, [0, 1], 5, [3, 4])
    kept.add(1, [2], 6, [0])
    kept.flush()
    assert translate_offset(kept.map(), {0: 2, 1: 0}, {5: 0, 6: 0, 7: 0}) == {5: 2, 6: 0, 7: 0}
    assert translate_offset(kept.map(), {0: 3, 1: 2}, {5: 0, 6: 0}) == {5: 5, 6: 0}
    # A partition of which it never committed anything is to be read from its begin.
    assert translate_offset(kept.map(), {0: 3}, {5: 0, 6: 0}) == {5: 3, 6: 0}


def test_another_replays_folder_is_refused(tmp_path: Path) -> None:
    kept = ReplayState(str(tmp_path))
    kept.save({"asked": {"topic": "a", "to": "b"}})
    assert kept.load({"topic": "a", "to": "b"}) is not None
    with pytest.raises(PipelineError, match="belongs to another replay: its to is 'b', this one's is 'c'"):
        kept.load({"topic": "a", "to": "c"})
