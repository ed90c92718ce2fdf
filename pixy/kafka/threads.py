"""Threads for the calls of Kafka's clients that block.

asyncio's own pool has few threads (six on a machine with two cores) and serves the whole process: with Kafka's
calls in it, a cluster that does not answer would hold up compression, TLS and the other clusters. So each
client has its own.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

AT_ONCE: Final = 8
"""Jobs of one call of :func:`at_once` that run at the same time."""


class KafkaThreads:
    """A bounded number of threads, started on demand. They end when this object is garbage-collected.

    Args:
        name: begins the threads' names.
        most: how many calls run at the same time; further ones wait, first come, first served.
    """

    def __init__(self, name: str, most: int) -> None:
        self._pool = ThreadPoolExecutor(most, name)

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in one of the threads and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)


def at_once(jobs: Iterable[Callable[[], None]]) -> None:
    """Run jobs at the same time, up to a bound, and return when all have ended. The caller's thread runs one, too.

    Args:
        jobs: each is run once; further ones wait for one that has ended.

    Raises:
        Exception: a job's; all others have run nevertheless.
    """
    waiting, failed = deque(jobs), list[Exception]()

    def work() -> None:
        while True:
            try:
                job = waiting.popleft()
            except IndexError:
                return
            try:
                job()
            except Exception as error:
                failed.append(error)

    threads = [
        threading.Thread(target=work, name="kafka-at-once", daemon=True)
        for _ in range(min(AT_ONCE, len(waiting)) - 1)
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
