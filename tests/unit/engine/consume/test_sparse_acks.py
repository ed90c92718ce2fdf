"""The codec of sparse acks, on the original's vectors and on random input."""

import pytest
from hypothesis import given, strategies as st

from pixy.engine.consume import sparse_acks
from pixy.engine.consume.offset_tracker import OffsetTracker


def committed(base: int, acked: list[int]) -> tuple[int, str, str]:
    tracker = OffsetTracker(base)
    for offset in acked:
        tracker.ack(offset)
    position = tracker.snapshot()
    metadata = sparse_acks.encode(position.offset, position.ranges)
    return position.offset, metadata, sparse_acks.to_text(position.offset, metadata)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "A"),
        (1, "B"),
        (31, "f"),
        (32, "gB"),
        (1023, "/f"),
        (1024, "ggB"),
    ],
)
def test_number_vectors(number: int, text: str) -> None:
    assert sparse_acks._number(number) == text
    assert sparse_acks._parse(text, 0) == (number, len(text))


@pytest.mark.parametrize(
    ("base", "acked", "expected"),
    [
        (301, [302], (301, "BB", "1-2")),
        (301, [302, 310], (301, "BBHB", "1-2,9-10")),
        (301, [302, 310, 311], (301, "BBHC", "1-2,9-11")),
        (301, [302, 307, 310, 311], (301, "BBEBCC", "1-2,6-7,9-11")),
        (301, [*range(302, 312)], (301, "BK", "1-11")),
        (301, [*range(302, 312), 301], (312, "", "")),
        (312, [398, 399, 4496], (312, "2CCggEB", "86-88,4184-4185")),
        (
            312,
            [398, 399, 4496, 2**63 - 2],
            (312, "2CCggEBtz7/////////HB", "86-88,4184-4185,9223372036854775494-9223372036854775495"),
        ),
        (1, [2, 3, 4, 7, 8], (1, "BDCC", "1-4,6-8")),
    ],
)
def test_vectors(base: int, acked: list[int], expected: tuple[int, str, str]) -> None:
    assert committed(base, acked) == expected


def test_a_long_number_decodes() -> None:
    assert sparse_acks.to_text(1000, "abra1234+/P") == "26-53,896-17178583637"


@pytest.mark.parametrize(
    ("base", "metadata"),
    [
        (1000, "abra1234+/PS"),
        (1, "AA"),
        (1, "A100"),
        (1, "a@b"),
        (10000, "0123456789012a"),
        (10000, "a0123456789012b"),
        (0, "AB"),
        (-5, "BB"),
        (1, "B"),
        (1, "//////////////BB"),
    ],
)
def test_invalid_metadata_raises_and_formats_as_nothing(base: int, metadata: str) -> None:
    with pytest.raises(ValueError):
        sparse_acks.decode(base, metadata)
    assert sparse_acks.to_text(base, metadata) == ""


@given(st.integers(1, 10**12), st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000))))
def test_round_trip(base: int, steps: list[tuple[int, int]]) -> None:
    ranges, at = [], base
    for gap, length in steps:
        ranges.append((at + gap, at + gap + length))
        at += gap + length
    metadata = sparse_acks.encode(base, ranges, limit=10**9)
    assert sparse_acks.decode(base, metadata) == ranges
    short = sparse_acks.encode(base, ranges)
    assert len(short) <= sparse_acks.MAX_METADATA
    kept = sparse_acks.decode(base, short)
    assert kept == ranges[: len(kept)]


@pytest.mark.parametrize(
    ("metadata", "end", "ranges"),
    [
        ("BBHB", 311, [(302, 303), (310, 311)]),
        ("BBHB", None, [(302, 303), (310, 311)]),
        ("BBHB", 310, []),  # beyond the end
        ("BBHB", 302, []),
        ("AB", 400, []),  # touches the offset, so it would have moved
        ("BBAB", 400, []),  # two ranges that are one
        ("", 301, []),
    ],
)
def test_ranges_that_this_log_cannot_have_make_the_text_another_tools(
    metadata: str, end: int | None, ranges: list[tuple[int, int]]
) -> None:
    if metadata and not ranges:
        with pytest.raises(ValueError, match="no acks of this log"):
            sparse_acks.acknowledged(301, metadata, end)
    else:
        assert sparse_acks.acknowledged(301, metadata, end) == ranges


@given(st.integers(1, 10**12), st.sets(st.integers(1, 500), max_size=60))
def test_what_a_tracker_has_is_never_taken_for_another_tools(base: int, acked: set[int]) -> None:
    tracker = OffsetTracker(base)
    for offset in acked:
        tracker.ack(base - 1 + offset)
    position = tracker.snapshot()
    metadata = sparse_acks.encode(position.offset, position.ranges)
    end = max([position.offset, *(stop for _, stop in position.ranges)])
    assert tuple(sparse_acks.acknowledged(position.offset, metadata, end)) == position.ranges


@given(st.integers(-10, 10**12), st.text(max_size=40))
def test_any_text_decodes_to_ranges_or_raises_value_error(base: int, metadata: str) -> None:
    try:
        ranges = sparse_acks.decode(base, metadata)
    except ValueError:
        return
    assert all(0 < start < stop for start, stop in ranges)
    assert ranges == sorted(ranges)
