"""Checks of arguments: a wrong one is refused at once, in one line."""

from __future__ import annotations

from typing import Any


def seconds(what: str, value: Any, *, above_zero: bool = False) -> None:
    """Refuse what is no number of seconds. NaN is none: a timer of the event loop with it disorders all others.

    Args:
        what: names the value in the error.
        value: the number.
        above_zero: whether 0 is refused, too.

    Raises:
        ValueError: it is below 0, or NaN.
        TypeError: it is no number.
    """
    if not isinstance(value, (int, float)):
        raise TypeError(f"{what} is a number of seconds, not {value!r}")
    if not (value > 0 if above_zero else value >= 0):
        raise ValueError(
            f"{what} is a number of seconds {'above 0' if above_zero else 'from 0'}, not {value!r}"
        )


def no_nan(what: str, value: float | None) -> None:
    """Refuse a timeout that is NaN; one below 0 is over at once.

    Raises:
        ValueError: it is NaN.
    """
    if value is not None and value != value:  # noqa: PLR0124 - NaN is unequal to itself
        raise ValueError(f"{what} is a number of seconds, not {value!r}")
