"""Records of a partition are read in offset order, however they are spread over files."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from pixy.pipeline.lake import record_reader
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.record_reader import read_records
from pixy.pipeline.lake.selection import FoundOffsets, Selection, partitions_of
from pixy.pipeline.lake.state import State
from pixy.pipeline.replay.writer import count
from tests.effort import seeds
from tests.unit.pipeline.support import make_lake, publish, rows, write_file

T = 1_700_000_000_000


@pytest.fixture(scope="module", params=seeds(4))
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Offsets 0 to 999 of two partitions, spread over days at random, as late records are.

    Written once for all tests: they only read it.
    """
    chance = random.Random(request.param)
    lake = make_lake(tmp_path_factory.mktemp("lake") / "lake")
    state = lake.state()
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


@cache
def state_of(lake: Lake) -> State:
    return lake.state()


def offsets(
    lake: Lake, partition: int, start: int = 0, matches: dict | None = None, **fields: object
) -> list[int]:
    state = state_of(lake)
    selection = Selection(ends=partitions_of(state, "t"), **fields)  # type: ignore[arg-type]
    found = [
        row for chunk in read_records(lake, state, "t", partition, selection, start, matches) for row in chunk
    ]
    assert all(value == b"v%d" % offset and t == T + offset for offset, t, _, value, _ in found)
    return [row[0] for row in found]


def test_records_come_in_offset_order(lake: Lake) -> None:
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
        ({"matches": {0: FoundOffsets([1, 500, 777])}}, (1, 500, 777)),
        ({"matches": {}}, ()),
        ({"matches": {0: FoundOffsets([1, 500, 777])}, "since": T + 2}, (500, 777)),
    ],
)
def test_conditions_select_records(lake: Lake, fields: dict, wanted: range) -> None:
    assert offsets(lake, 0, **fields) == list(wanted)


def test_a_file_is_opened_when_its_first_offset_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many files a topic has, a replay has those open that overlap."""
    lake = make_lake(tmp_path / "lake")
    state = lake.state()
    for batch in range(5):
        files = [write_file(lake, "t", "2023-11-14", str(batch), rows(0, range(batch * 10, batch * 10 + 10)))]
        publish(lake, state, batch, files, {0: (batch * 10, batch * 10 + 10)})
    opened: list[str] = []
    open_file = record_reader.open_file

    def noting(path: str, *args: Any) -> Any:
        opened.append(Path(path).stem)
        return open_file(path, *args)

    monkeypatch.setattr(record_reader, "open_file", noting)
    found = []
    state = lake.state()
    for chunk in read_records(lake, state, "t", 0, Selection(ends=partitions_of(state, "t"))):
        found += [row[0] for row in chunk]
        # The next file is opened to see where it begins.
        assert opened == [str(batch) for batch in range(len(opened))] and len(opened) <= found[-1] // 10 + 2
    assert found == list(range(50)) and len(opened) == 5


def test_records_archived_after_the_selection_are_left_out(lake: Lake) -> None:
    state = lake.state()
    assert count(lake, state, "t", (0, 1), Selection(ends={0: 250, 1: 0})) == {0: 250, 1: 0}
