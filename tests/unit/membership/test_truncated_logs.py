"""Where a group begins whose log was truncated while it was away."""

from __future__ import annotations

import pytest

from pixy.membership.start_position import StartPosition, resolve_start


@pytest.mark.parametrize(
    ("committed", "oldest", "end", "epoch_end", "expected"),
    [
        (100, 0, 150, 50, StartPosition(50, new=True)),
        (100, 70, 150, 50, StartPosition(70, new=True)),
        (100, 0, 150, 100, StartPosition(100, new=False, base=100)),
        (100, 0, 150, 120, StartPosition(100, new=False, base=100)),
        (100, 0, 150, None, StartPosition(100, new=False, base=100)),
        (100, 120, 150, 50, StartPosition(120, new=True, base=100)),
        (
            100,
            10,
            90,
            90,
            StartPosition(10, new=True),
        ),  # another topic of the name, maybe: its epochs begin at 0 again
    ],
)
def test_an_epoch_that_ends_below_the_committed_offset_is_a_truncation(
    committed: int, oldest: int, end: int, epoch_end: int | None, expected: StartPosition
) -> None:
    assert resolve_start(committed, oldest, end, from_oldest=False, epoch_end=epoch_end) == expected
