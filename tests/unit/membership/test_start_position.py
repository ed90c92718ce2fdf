"""Resolving committed offsets against a partition's bounds."""

from __future__ import annotations

import pytest

from pixy.membership.start_position import StartPosition, resolve_start


@pytest.mark.parametrize(
    ("committed", "from_oldest", "expected"),
    [
        (None, False, StartPosition(90, 90, True)),
        (None, True, StartPosition(10, 10, True)),
        (-1, False, StartPosition(90, 90, True)),
        (-2, False, StartPosition(10, 10, True)),
        (5, False, StartPosition(10, 10, False)),
        (50, False, StartPosition(50, 50, False)),
        (90, False, StartPosition(90, 90, False)),
        (95, False, StartPosition(90, 95, False)),
    ],
)
def test_resolve_start(committed: int | None, from_oldest: bool, expected: StartPosition) -> None:
    assert resolve_start(committed, 10, 90, from_oldest=from_oldest) == expected
