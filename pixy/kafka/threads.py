"""Threads for the calls of Kafka's clients that block.

asyncio's own pool has few threads (six on a machine with two cores) and serves the whole process: with Kafka's
calls in it, a cluster that does not answer would hold up compression, TLS and the other clusters. So each
client has its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


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
