"""Sets of offsets as ranges agree with Python's own sets."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given, strategies as st

from pixy.pipeline.audit.intervals import Intervals, overlaps

ranges = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=12)


def members(made: Intervals) -> set[int]:
    return {offset for start, end in made for offset in range(start, end)}


def plain(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


def well_formed(made: Intervals) -> Intervals:
    before = None
    for start, end in made:
        assert start < end
        assert before is None or start > before, f"{made} has ranges that touch"
        before = end
    return made


@given(ranges, ranges)
def test_operations_agree_with_those_of_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    left, right = well_formed(Intervals.of(a)), well_formed(Intervals.of(b))
    assert members(left) == plain(a)
    assert left.count == len(plain(a))
    assert members(well_formed(left | right)) == plain(a) | plain(b)
    assert members(well_formed(left & right)) == plain(a) & plain(b)
    assert members(well_formed(left - right)) == plain(a) - plain(b)
    assert (left == right) == (plain(a) == plain(b))
    assert all((offset in left) == (offset in plain(a)) for offset in range(61))


@given(ranges, st.integers(0, 60), st.integers(0, 60))
def test_the_complement_has_the_offsets_that_are_missing(
    a: list[tuple[int, int]], start: int, end: int
) -> None:
    assert members(well_formed(Intervals.of(a).complement(start, end))) == set(range(start, end)) - plain(a)


@given(st.lists(st.integers(0, 50)))
def test_offsets_become_ranges(offsets: list[int]) -> None:
    made = well_formed(Intervals.offsets(offsets))
    assert members(made) == set(offsets)
    if offsets:
        assert (made.start, made.end) == (min(offsets), max(offsets) + 1)
    assert bool(made) == bool(offsets)


@given(ranges)
def test_overlaps_are_the_offsets_that_several_ranges_cover(a: list[tuple[int, int]]) -> None:
    depth = Counter(offset for start, end in a for offset in range(start, end))
    found = overlaps(a)
    assert {offset: times for start, end, times in found for offset in range(start, end)} == {
        offset: times for offset, times in depth.items() if times > 1
    }
    for (_, end, times), (start, _, again) in pairwise(found):
        assert end < start or times != again, "adjacent parts of one depth are merged"
