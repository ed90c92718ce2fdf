"""The checksum distinguishes all records that differ. The integration tests compare Spark's side."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.lake.checksum import MASK, Stats, content_hash, payload_size, record_hash, total

BYTES = st.none() | st.binary(max_size=12)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=3), BYTES), min_size=1, max_size=3)
RECORD = st.tuples(st.integers(-1, 2**45), BYTES, BYTES, HEADERS)


def test_the_definition_does_not_change() -> None:
    """Values computed by Spark 4.0.0; existing lakes contain them."""
    assert content_hash(5, None, b"", [("a", None), ("b", b"x")]) == 16904627948125731359
    assert record_hash("t", 3, 77, 1, 16904627948125731359) == 0x9DD1688ECE22CAC0


@given(RECORD, RECORD)
def test_different_records_differ(one: tuple, other: tuple) -> None:
    assert (content_hash(*one) == content_hash(*other)) == (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, None, b"v", None), (1, b"", b"v", None)),
        ((1, b"k", None, None), (1, b"k", b"", None)),
        ((1, b"ab", b"c", None), (1, b"a", b"bc", None)),
        ((1, None, b"a", None), (1, b"a", None, None)),
        ((1, b"", b"", [("a", None), ("b", b"c")]), (1, b"", b"", [("a", b"c"), ("b", None)])),
        ((1, b"", b"", [("a", b"bc")]), (1, b"", b"", [("ab", b"c")])),
        ((1, b"", b"", [("a", b"1"), ("b", b"2")]), (1, b"", b"", [("b", b"2"), ("a", b"1")])),
        ((1, b"", b"", [("a", None)]), (1, b"", b"", [("a", b"")])),
        ((1, b"", b"", [("a", b"1")]), (1, b"", b"", [("a", b"1"), ("a", b"1")])),
        ((1, b"", b"", None), (2, b"", b"", None)),
    ],
)
def test_similar_records_differ(one: tuple, other: tuple) -> None:
    assert content_hash(*one) != content_hash(*other)


def test_null_headers_equal_empty_headers() -> None:
    assert content_hash(1, b"", b"", None) == content_hash(1, b"", b"", [])


def test_each_part_of_the_position_changes_the_hash() -> None:
    positions = [("t", 0, 0, 0), ("u", 0, 0, 0), ("t", 1, 0, 0), ("t", 0, 1, 0), ("t", 0, 0, 1)]
    assert len({record_hash(*position, 7) for position in positions}) == len(positions)


def test_payload_size() -> None:
    assert payload_size(None, b"", None) == 0
    assert payload_size(b"k", b"vv", [("é", None), ("h", b"123")]) == 1 + 2 + 2 + 1 + 3


STATS = st.builds(
    Stats,
    st.integers(1, 9),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(100, 199),
    st.integers(0, 9),
    st.integers(10, 19),
    st.integers(0, MASK),
    st.integers(0, MASK),
)


@given(st.lists(STATS, max_size=6), st.randoms())
def test_order_and_grouping_do_not_matter(stats: list[Stats], chance: random.Random) -> None:
    shuffled = stats[:]
    chance.shuffle(shuffled)
    cut = chance.randint(0, len(stats))
    assert total(stats) == total(shuffled) == total(stats[:cut]) + total(stats[cut:])
    assert total(stats).checksum <= MASK
