"""Message handlers and timers for the actors of all peers: the same code, so only the runtimes differ."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

MESSAGE = ("greeting", 1)
HOW_MANY = "how many"
SLICES = 3
"""Timed runs per process; their median is the process's figure."""

Result = dict[str, float]


def compute(steps: int) -> int:
    """Keep one core busy with Python code."""
    value = 1
    for step in range(steps):
        value = (value * 31 + step) % 1_000_003
    return value


class Echo:
    """Answers with the message itself, so an ask costs as little as it can."""

    def on_receive(self, message: Any) -> Any:
        """Return the message."""
        return message


class Counter:
    """Counts its messages and answers the count when asked, so a lost message shows as a wrong number."""

    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Count the message, or answer."""
        if message is HOW_MANY:
            return self.handled
        self.handled += 1
        return None


@contextmanager
def stopwatch(took: list[float]) -> Iterator[None]:
    """Append the seconds that the block takes to ``took``, after collecting the garbage of earlier blocks."""
    gc.collect()
    begun = time.perf_counter()
    yield
    took.append(time.perf_counter() - begun)


def rate(work: Callable[[int], None], count: int) -> Result:
    """Warm up, then measure calls per second: the median of :data:`SLICES` runs.

    Args:
        work: makes the number of calls that it is given.
        count: calls per run.
    """
    took: list[float] = []
    work(max(100, count // 5))
    for _ in range(SLICES):
        with stopwatch(took):
            work(count)
    return {"per_second": count / statistics.median(took)}


async def rate_async(work: Callable[[int], Awaitable[None]], count: int) -> Result:
    """Measure as :func:`rate` does, for work that is a coroutine."""
    took: list[float] = []
    await work(max(100, count // 5))
    for _ in range(SLICES):
        with stopwatch(took):
            await work(count)
    return {"per_second": count / statistics.median(took)}


def rss_kib() -> float:
    """Return this process's resident memory in KiB, which includes threads' stacks, unlike tracemalloc."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4.0


def expect(found: object, wanted: object) -> None:
    """Raise RuntimeError if the scenario's result is wrong."""
    if found != wanted:
        raise RuntimeError(f"found {found!r} instead of {wanted!r}")
