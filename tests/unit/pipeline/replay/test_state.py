"""The state folder of a replay, and group offsets translated by its map."""

from __future__ import annotations

from pathlib import Path

import pytest

from pixy.pipeline.errors import PipelineError
from pixy.pipeline.replay.group_offsets import last_by, translate_offset
from pixy.pipeline.replay.state import ReplayState


def test_the_map_is_written_in_parts(tmp_path: Path) -> None:
    state = ReplayState(str(tmp_path / "state"))
    with state.locked():
        state.add(0, [1, 2], 0, [11, 12])
        state.flush()
        state.add(1, [5], 0, [13])
        state.flush()
        state.flush()
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
def test_a_group_resumes_at_its_offset(tmp_path: Path, committed: dict, wanted: dict) -> None:
    state = ReplayState(str(tmp_path))
    state.add(0, [1, 2, 5, 6], 0, [11, 12, 14, 15])
    state.flush()
    assert translate_offset(state.map(), committed, {0: 10}) == wanted


def test_a_group_loses_nothing_on_new_partitions(tmp_path: Path) -> None:
    state = ReplayState(str(tmp_path))
    state.add(0, [0, 1, 2], 5, [0, 1, 2])
    state.add(1, [0, 1], 5, [3, 4])
    state.add(1, [2], 6, [0])
    state.flush()
    assert translate_offset(state.map(), {0: 2, 1: 0}, {5: 0, 6: 0, 7: 0}) == {5: 2, 6: 0, 7: 0}
    assert translate_offset(state.map(), {0: 3, 1: 2}, {5: 0, 6: 0}) == {5: 5, 6: 0}
    # A partition that the group never committed is read from its beginning.
    assert translate_offset(state.map(), {0: 3}, {5: 0, 6: 0}) == {5: 3, 6: 0}


def test_the_folder_of_another_replay_is_refused(tmp_path: Path) -> None:
    state = ReplayState(str(tmp_path))
    state.save({"asked": {"topic": "a", "to": "b"}})
    assert state.load({"topic": "a", "to": "b"}) is not None
    with pytest.raises(PipelineError, match="belongs to another replay: its to is 'b', this one's is 'c'"):
        state.load({"topic": "a", "to": "c"})
