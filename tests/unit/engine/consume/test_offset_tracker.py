"""Positions and ranges, compared with a plain set of offsets."""

from hypothesis import given, strategies as st

from pixy.engine.consume.offset_tracker import OffsetTracker, Position


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 120), st.integers(1, 12)), max_size=40))
def test_the_tracker_agrees_with_a_set(base: int, acks: list[tuple[int, int]]) -> None:
    tracker, done = OffsetTracker(base), set(range(base))
    for start, length in acks:
        tracker.ack(start, start + length)
        done.update(range(start, start + length))
        position = tracker.snapshot()
        first = next(offset for offset in range(500) if offset not in done)
        assert position.offset == max(first, base)
        beyond = {o for start, stop in position.ranges for o in range(start, stop)}
        assert beyond == {offset for offset in done if offset >= position.offset}
        assert all(a[1] < b[0] for a, b in zip(position.ranges, position.ranges[1:], strict=False))
        assert all(tracker.is_acked(o) == (o < position.offset or o in done) for o in range(150))


def test_restored_ranges_that_begin_at_the_position_move_it() -> None:
    tracker = OffsetTracker(10, [(10, 12), (14, 16)])
    assert tracker.snapshot() == Position(12, ((14, 16),))
