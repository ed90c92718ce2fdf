"""Time functions in turn, so that the measurements of a round see the same state of the machine.

There are many short rounds, measured in processor time: the functions only compute, and processor time leaves
out the time that other processes take.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence

ROUNDS = 41
_LEAST = 0.04
"""The least processor seconds per measurement."""


def in_turn(functions: Sequence[Callable[[], object]], units: float) -> list[list[float]]:
    """Time the functions in turn.

    Args:
        functions: the functions.
        units: units of work, such as records or bytes, that one call does.

    Returns:
        Each function's units per processor second, round by round.
    """
    gc.collect()
    gc.freeze()  # the collector need not visit imported objects again
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
