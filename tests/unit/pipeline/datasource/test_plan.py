"""Ranges: limits, division among tasks, and the offsets of a stream. Pure."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.datasource.plan import Range, limited, split
from pixy.pipeline.datasource.progress import Progress, ranges
from pixy.pipeline.errors import CheckpointError, SourceError

PLACES = [("a", 0), ("a", 1), ("b", 0)]
OFFSETS = st.fixed_dictionaries({place: st.integers(0, 1 << 60) for place in PLACES})


@pytest.mark.parametrize(
    ("sizes", "limit", "taken"),
    [
        ((100, 100), None, (100, 100)),
        ((100, 100), 200, (100, 100)),
        ((100, 300), 40, (10, 30)),
        ((1, 1_000_000), 10, (1, 9)),  # none starves
        ((0, 50), 10, (0, 10)),
        ((5, 5), 1, (1, 1)),
    ],
)
def test_limits(sizes: tuple[int, int], limit: int | None, taken: tuple[int, int]) -> None:
    start = {("a", 0): 7, ("a", 1): 9}
    end = {("a", 0): 7 + sizes[0], ("a", 1): 9 + sizes[1]}
    assert limited(start, end, limit) == {("a", 0): 7 + taken[0], ("a", 1): 9 + taken[1]}


@given(OFFSETS, OFFSETS, st.integers(1, 1 << 40))
def test_a_limit_goes_on_and_never_too_far(start: dict, more: dict, limit: int) -> None:
    end = {place: start[place] + more[place] for place in PLACES}
    found = limited(start, end, limit)
    assert all(start[place] <= found[place] <= end[place] for place in PLACES)
    assert sum(found[place] - start[place] for place in PLACES) <= limit + len(PLACES)
    assert all(found[place] > start[place] for place in PLACES if end[place] > start[place])


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


def test_division_is_that_of_spark_s_source() -> None:
    # Worked out by hand from its rule; test_batch compares with the source itself.
    def sizes(given_: dict[int, int], least: int) -> list[tuple[int, int, int]]:
        return [
            (each.partition, each.start, each.end)
            for each in split([Range("t", at, 1, end) for at, end in given_.items()], least)
        ]

    assert sizes({1: 5}, 4) == [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]
    assert sizes({1: 5, 2: 5}, 3) == [(1, 1, 3), (1, 3, 5), (2, 1, 3), (2, 3, 5)]
    assert sizes({1: 5, 2: 21}, 3) == [(1, 1, 5), (2, 1, 11), (2, 11, 21)]


def test_ranges_are_sent_to_executors() -> None:
    one = Range("t", 1, 2, 3, "id")
    assert pickle.loads(pickle.dumps(one)) == one
    assert str(one) == "t/1"


def test_progress_is_the_same_text_each_time() -> None:
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
    """Whatever comes, what two batches read is what lies between, once."""
    begin = Progress(first, {}, initial=True)
    one = Progress({place: first[place] + second[place] for place in PLACES}, {}, dict(first))
    two = Progress({place: one.next[place] + third[place] for place in PLACES}, {})
    found = ranges(begin, one, fail_on_data_loss=True) + ranges(one, two, fail_on_data_loss=True)
    for topic, partition in PLACES:
        at = first[topic, partition]
        for each in (one for one in found if (one.topic, one.partition) == (topic, partition)):
            assert each.start == at
            at = each.end
        assert at == two.next[topic, partition]
    # After a restart only the end is known, and "latest" is another one.
    late = Progress({place: offset + 77 for place, offset in two.next.items()}, {}, initial=True)
    assert ranges(late, one, fail_on_data_loss=True) == ranges(begin, one, fail_on_data_loss=True)
    assert ranges(one, one, fail_on_data_loss=True) == []


def test_going_backwards_is_told() -> None:
    then, now = Progress({("a", 0): 9}, {}), Progress({("a", 0): 5}, {})
    with pytest.raises(SourceError, match="a/0 ends at offset 5, and was read up to 9"):
        ranges(then, now, fail_on_data_loss=True)
    assert ranges(then, now, fail_on_data_loss=False) == []


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"version": 2, "topics": {}}, "of version 2; this is version 1"),
        ({"t": {"0": 5}}, "not of format pixy"),
        ({"version": 1, "topics": {"t": {"id": "", "next": {"x": 5}}}}, "not of format pixy"),
    ],
)
def test_another_source_s_checkpoint_is_refused(document: dict, told: str) -> None:
    with pytest.raises(CheckpointError, match=told):
        Progress.of(document)
