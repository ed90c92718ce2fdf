"""Ranges: limits, division into tasks, and the offsets of a stream. Pure."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.datasource.plan import Range, limit_offsets, split
from pixy.pipeline.datasource.progress import Progress, ranges
from pixy.pipeline.errors import CheckpointError, SourceError

PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]
OFFSETS = st.fixed_dictionaries({tp: st.integers(0, 1 << 60) for tp in PARTITIONS})


@pytest.mark.parametrize(
    ("sizes", "limit", "taken"),
    [
        ((100, 100), None, (100, 100)),
        ((100, 100), 200, (100, 100)),
        ((100, 300), 40, (10, 30)),
        ((1, 1_000_000), 10, (1, 9)),  # each partition gets one at least
        ((0, 50), 10, (0, 10)),
        ((5, 5), 1, (1, 1)),
    ],
)
def test_a_limit_is_shared_by_size(sizes: tuple[int, int], limit: int | None, taken: tuple[int, int]) -> None:
    start = {("a", 0): 7, ("a", 1): 9}
    end = {("a", 0): 7 + sizes[0], ("a", 1): 9 + sizes[1]}
    assert limit_offsets(start, end, limit) == {("a", 0): 7 + taken[0], ("a", 1): 9 + taken[1]}


@given(OFFSETS, OFFSETS, st.integers(1, 1 << 40))
def test_a_limit_makes_progress_in_each_partition_and_is_kept(start: dict, more: dict, limit: int) -> None:
    end = {tp: start[tp] + more[tp] for tp in PARTITIONS}
    found = limit_offsets(start, end, limit)
    assert all(start[tp] <= found[tp] <= end[tp] for tp in PARTITIONS)
    assert sum(found[tp] - start[tp] for tp in PARTITIONS) <= limit + len(PARTITIONS)
    assert all(found[tp] > start[tp] for tp in PARTITIONS if end[tp] > start[tp])


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6), st.integers(1, 40))
def test_division_covers_each_range_once(sizes: list[int], least: int) -> None:
    whole = [Range("t", at, 5, 5 + size) for at, size in enumerate(sizes)]
    found = split(whole, least)
    for each in whole:
        parts = [part for part in found if part.partition == each.partition]
        at = each.start
        for part in parts:
            assert part.start == at < part.end
            at = part.end
        assert not parts or at == each.end
        assert bool(parts) == bool(each.size)
    assert split(whole, None) == [each for each in whole if each.size]


def test_division_follows_the_rule_of_sparks_source() -> None:
    # Worked out by hand from the rule; test_batch compares with the source itself.
    def sizes(given_: dict[int, int], least: int) -> list[tuple[int, int, int]]:
        return [
            (each.partition, each.start, each.end)
            for each in split([Range("t", at, 1, end) for at, end in given_.items()], least)
        ]

    assert sizes({1: 5}, 4) == [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]
    assert sizes({1: 5, 2: 5}, 3) == [(1, 1, 3), (1, 3, 5), (2, 1, 3), (2, 3, 5)]
    assert sizes({1: 5, 2: 21}, 3) == [(1, 1, 5), (2, 1, 11), (2, 11, 21)]


def test_ranges_can_be_sent_to_executors() -> None:
    one = Range("t", 1, 2, 3, "id")
    assert pickle.loads(pickle.dumps(one)) == one
    assert str(one) == "t/1"


def test_progress_has_one_text() -> None:
    one = Progress({("b", 10): 1, ("b", 9): 2, ("a", 0): 3}, {"b": "B", "a": "A"}, {("b", 9): 0})
    text = json.dumps(one.document())
    assert text == (
        '{"version": 1, "topics": {"a": {"id": "A", "next": {"0": 3}}, "b": {"id": "B", "next": {"9": 2, "10": 1}}}, '
        '"from": {"b": {"9": 0}}}'
    )
    again = Progress.of(json.loads(text))
    assert again == one
    assert json.dumps(again.document()) == text


@given(OFFSETS, OFFSETS, OFFSETS)
def test_batches_are_adjacent(first: dict, second: dict, third: dict) -> None:
    """Two batches together read each offset between their ends once."""
    begin = Progress(first, {}, initial=True)
    one = Progress({tp: first[tp] + second[tp] for tp in PARTITIONS}, {}, dict(first))
    two = Progress({tp: one.next[tp] + third[tp] for tp in PARTITIONS}, {})
    found = ranges(begin, one, fail_on_data_loss=True) + ranges(one, two, fail_on_data_loss=True)
    for topic, partition in PARTITIONS:
        at = first[topic, partition]
        for each in (one for one in found if (one.topic, one.partition) == (topic, partition)):
            assert each.start == at
            at = each.end
        assert at == two.next[topic, partition]
    # After a restart only the end is known, and "latest" has moved.
    late = Progress({tp: offset + 77 for tp, offset in two.next.items()}, {}, initial=True)
    assert ranges(late, one, fail_on_data_loss=True) == ranges(begin, one, fail_on_data_loss=True)
    assert ranges(one, one, fail_on_data_loss=True) == []


def test_an_end_that_moved_backwards_is_an_error() -> None:
    then, now = Progress({("a", 0): 9}, {}), Progress({("a", 0): 5}, {})
    with pytest.raises(SourceError, match="a/0 ends at offset 5, but was read up to 9"):
        ranges(then, now, fail_on_data_loss=True)
    assert ranges(then, now, fail_on_data_loss=False) == []


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"version": 2, "topics": {}}, "have version 2; this source reads version 1"),
        ({"t": {"0": 5}}, "not those of format pixy"),
        ({"version": 1, "topics": {"t": {"id": "", "next": {"x": 5}}}}, "not those of format pixy"),
    ],
)
def test_a_checkpoint_of_another_source_is_an_error(document: dict, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Progress.of(document)
