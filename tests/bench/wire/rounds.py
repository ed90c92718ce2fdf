"""Functions timed in turn, so that neighbours in time share the machine's mood.

Many short rounds, by the processor's time: they do nothing but compute, and what other processes take is not theirs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

ROUNDS = 41
_LEAST = 0.04
"""Seconds of processor that one measurement takes at least."""


def in_turn(functions: Sequence[Callable[[], object]], units: float) -> list[list[float]]:
    """Units a second of each function, round by round; ``units`` is what one call does."""
    gc.collect()
    gc.freeze()  # what was imported is nobody's to sweep
    repeats = [_repeats(function) for function in functions]
    found: list[list[float]] = [[] for _ in functions]
    for round_ in range(ROUNDS):
        order = range(len(functions))
        for index in order if round_ % 2 == 0 else reversed(order):
            started = time.process_time()
            for _ in range(repeats[index]):
                functions[index]()
            found[index].append(units * repeats[index] / (time.process_time() - started))
    return found


def _repeats(function: Callable[[], object]) -> int:
    function()
    started = time.process_time()
    function()
    return max(1, round(_LEAST / (time.process_time() - started)))
