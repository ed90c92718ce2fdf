"""Functions timed in turn, so that neighbours in time share the machine's mood."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

ROUNDS = 11
_LEAST = 0.1
"""Seconds that one measurement takes at least."""


def in_turn(functions: Sequence[Callable[[], object]], units: float) -> list[list[float]]:
    """Units a second of each function, round by round; ``units`` is what one call does."""
    repeats = [_repeats(function) for function in functions]
    found: list[list[float]] = [[] for _ in functions]
    for round_ in range(ROUNDS):
        order = range(len(functions))
        for index in order if round_ % 2 == 0 else reversed(order):
            started = time.perf_counter()
            for _ in range(repeats[index]):
                functions[index]()
            found[index].append(units * repeats[index] / (time.perf_counter() - started))
    return found


def _repeats(function: Callable[[], object]) -> int:
    function()
    started = time.perf_counter()
    function()
    return max(1, round(_LEAST / (time.perf_counter() - started)))
