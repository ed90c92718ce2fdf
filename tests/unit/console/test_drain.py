"""The time until nothing waits any more is shown only where the lag gets noticeably less."""

from __future__ import annotations

import pytest

from pixy.console.sources import _drain


@pytest.mark.parametrize(
    ("lag", "rate", "seconds"),
    [
        (0, None, 0.0),
        (0, -1.0, 0.0),
        (10, -2.0, 5.0),
        (10, -0.05, 200.0),
        (10, -0.04, None),
        (10, -0.0, None),
        (10, 1.0, None),
        (10, None, None),
        (None, -1.0, None),
    ],
)
def test_the_drain_time(lag: int | None, rate: float | None, seconds: float | None) -> None:
    assert _drain(lag, rate) == seconds
