"""Times and durations that people type and read."""

from __future__ import annotations

import pytest

from pixy.cli.shell.times import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (125.2, "2 min 5 s"),
        (3600, "1 h 0 min"),
        (86_399.6, "1 d 0 h"),
        (273_600, "3 d 4 h"),
    ],
)
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text
