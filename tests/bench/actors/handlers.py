"""What the actors of all peers do with a message: the same code, so only the runtimes differ."""

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
"""Timed stretches a process; their median is the process's figure."""

Result = dict[str, float]


class Echo:
    """Answers with what it got: the least that an ask can cost."""

    def on_receive(self, message: Any) -> Any:
        """Return the message."""
        return message


class Counter:
    """Counts, and tells how many when it is asked: a message lost is a number wrong."""

    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Count the message, or answer."""
        if message is HOW_MANY:
            return self.handled
        self.handled += 1
        return None


@contextmanager
def stopwatch(took: list[float]) -> Iterator[None]:
    """Time a stretch that begins with no garbage of the stretch before."""
    gc.collect()
    begun = time.perf_counter()
    yield
    took.append(time.perf_counter() - begun)


def rate(work: Callable[[int], None], count: int) -> Result:
    """Warm up, then calls per second over the median slice."""
    took: list[float] = []
    work(max(100, count // 5))
    for _ in range(SLICES):
        with stopwatch(took):
            work(count)
    return {"per_second": count / statistics.median(took)}


async def rate_async(work: Callable[[int], Awaitable[None]], count: int) -> Result:
    """What :func:`rate` is, for work that runs on the loop."""
    took: list[float] = []
    await work(max(100, count // 5))
    for _ in range(SLICES):
        with stopwatch(took):
            await work(count)
    return {"per_second": count / statistics.median(took)}


def rss_kib() -> float:
    """This process's resident memory, all of it: a thread's stack is no Python object."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4.0


def expect(found: object, wanted: object) -> None:
    """A fast wrong answer is no answer."""
    if found != wanted:
        raise RuntimeError(f"found {found!r} instead of {wanted!r}")
