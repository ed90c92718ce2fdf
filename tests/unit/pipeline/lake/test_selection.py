"""Records of a partition come in the order of their offsets, whatever files they lie in."""

from __future__ import annotations

import random
from array import array
from pathlib import Path

import pytest

from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.record_reader import read_records
from pixy.pipeline.lake.selection import Selection, partitions_of
from pixy.pipeline.lake.state import State
from pixy.pipeline.replay.state import ReplayState, last_by, translate_offset
from pixy.pipeline.replay.writer import count
from tests.unit.pipeline.support import make_lake, publish, rows, write_file

T = 1_700_000_000_000


@pytest.fixture(params=range(4))
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Offsets 0 to 999 of two partitions, spread over days by chance, as late records are."""
    chance = random.Random(request.param)
    lake = make_lake(tmp_path / "lake")
    state = State()
    at = 0
    for batch in range(5):
        days: dict[str, list] = {}
        for partition in (0, 1):
            for row in rows(partition, range(at, at + 200)):
                days.setdefault(
                    f"2023-11-{10 + chance.choice((batch, batch, batch + 1, chance.randint(0, 9)))}", []
                ).append(row)
        files = [
            write_file(lake, "t", day, f"{batch}-{day}", some, row_group_size=chance.choice((7, 50, 1000)))
            for day, some in days.items()
        ]
        publish(lake, state, batch, files, {0: (at, at + 200), 1: (at, at + 200)})
        at += 200
    return lake


def offsets(
    lake: Lake, partition: int, start: int = 0, matches: dict | None = None, **fields: object
) -> list[int]:
    state = lake.state()
    selection = Selection(ends=partitions_of(state, "t"), **fields)  # type: ignore[arg-type]
    found = [
        row for chunk in read_records(lake, state, "t", partition, selection, start, matches) for row in chunk
    ]
    assert all(value == b"v%d" % offset and t == T + offset for offset, t, _, value, _ in found)
    return [row[0] for row in found]


def test_all_in_order(lake: Lake) -> None:
    assert offsets(lake, 0) == offsets(lake, 1) == list(range(1000))


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"start": 321}, range(321, 1000)),
        ({"since": T + 17, "until": T + 500}, range(17, 500)),
        ({"offsets": {0: (5, 700)}, "start": 30}, range(30, 700)),
        ({"offsets": {1: (5, 700)}}, ()),
        ({"partitions": frozenset({1})}, ()),
        ({"keys": (b"k3", b"k999", b"none")}, (3, 999)),
        ({"matches": {0: array("q", [1, 500, 777])}}, (1, 500, 777)),
        ({"matches": {}}, ()),
        ({"matches": {0: array("q", [1, 500, 777])}, "since": T + 2}, (500, 777)),
    ],
)
def test_conditions(lake: Lake, fields: dict, wanted: range) -> None:
    assert offsets(lake, 0, **fields) == list(wanted)


def test_what_was_archived_later_is_not_in_it(lake: Lake) -> None:
    state = lake.state()
    assert count(lake, state, "t", (0, 1), Selection(ends={0: 250, 1: 0})) == {0: 250, 1: 0}


# -- the map --------------------------------------------------------------------------------------


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
    from pixy.pipeline.errors import PipelineError

    kept = ReplayState(str(tmp_path))
    kept.save({"asked": {"topic": "a", "to": "b"}})
    assert kept.load({"topic": "a", "to": "b"}) is not None
    with pytest.raises(PipelineError, match="belongs to another replay: its to is 'b', this one's is 'c'"):
        kept.load({"topic": "a", "to": "c"})
