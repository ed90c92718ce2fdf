"""Resolving committed offsets against a partition's bounds."""

from __future__ import annotations

import pytest

from pixy.membership.start_position import StartPosition, resolve_start


@pytest.mark.parametrize(
    ("committed", "from_oldest", "expected"),
    [
        (None, False, StartPosition(90, True)),
        (None, True, StartPosition(10, True)),
        (-1, False, StartPosition(90, True)),
        (-2, False, StartPosition(10, True)),
        (5, False, StartPosition(10, True, base=5)),
        (50, False, StartPosition(50, False, base=50)),
        (90, False, StartPosition(90, False, base=90)),
        (95, False, StartPosition(10, True)),
    ],
)
def test_resolve_start(committed: int | None, from_oldest: bool, expected: StartPosition) -> None:
    assert resolve_start(committed, 10, 90, from_oldest=from_oldest) == expected


def test_an_open_transaction_is_the_end_for_a_new_group_but_not_for_a_committed_offset() -> None:
    """The Go original reads, and commits, messages of open transactions."""
    assert resolve_start(None, 10, 90, from_oldest=False, stable=70) == StartPosition(70, True)
    assert resolve_start(80, 10, 90, from_oldest=False, stable=70) == StartPosition(80, False, base=80)
