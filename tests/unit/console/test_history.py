"""What only time shows."""

from __future__ import annotations

from pixy.console import history
from pixy.console.history import Rates, Since


def test_since_when_a_value_is_the_same() -> None:
    since: Since[str] = Since()
    assert [since.same("a", 1, 10.0), since.same("a", 1, 15.0), since.same("a", 2, 16.0), since.same("a", 2, 18.0)] == [
        0.0, 5.0, 0.0, 2.0,
    ]  # fmt: skip


def test_a_rate_is_that_of_its_window() -> None:
    rates: Rates[str] = Rates(60.0)
    assert rates.rate("a") is None and rates.gained("a") == 0
    for second in range(0, 200, 5):
        rates.note("a", second * 2.0 if second < 100 else 200.0, second)
    assert rates.gained("a") == 0.0 and rates.rate("a") == 0.0
    for second in range(200, 230, 5):
        rates.note("a", 200.0 + (second - 195) * 3.0, second)
    assert 85.0 <= rates.gained("a") <= 90.0


def test_a_counter_that_fell_has_gained_nothing() -> None:
    rates: Rates[str] = Rates(60.0)
    rates.note("a", 100.0, 0.0)
    rates.note("a", 3.0, 10.0)
    assert rates.gained("a") == 0.0


def test_what_was_not_touched_for_longest_is_forgotten() -> None:
    since: Since[int] = Since()
    for key in range(history.MOST + 1):
        since.same(key, 1, 0.0)
    assert since.same(1, 1, 9.0) == 9.0 and since.same(0, 1, 9.0) == 0.0
