"""A deadline for tasks that all wait equally long at most, with one timer for all of them.

:func:`asyncio.timeout` makes an object and a timer for each of them, and cancels the timer again: 4 us of each request. Here the
tasks stand in a dictionary in the order in which their times end, and the timer is for the first one.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from types import TracebackType
from typing import Final

_MOST: Final = 64
"""Tasks that are ended in one turn of the loop. An answer that says so takes some 0.1 ms."""


class Deadline:
    """A context manager that ends its block with TimeoutError when it takes too long; any number of tasks may be in it, each once.

    For one event loop, so it needs no lock.

    Args:
        seconds: that a block may take, above 0.
    """

    __slots__ = ("_due", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[asyncio.Task[object], float] = {}
        """The loop's time at which each block must have ended; the nearest is the first. A task that was cancelled is gone."""
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Remembered, because asking asyncio for it takes 0.2 us each time."""

    @property
    def seconds(self) -> float:
        """Seconds that a block may take."""
        return self._seconds

    @property
    def held(self) -> int:
        """Tasks that are in the block."""
        return len(self._due)

    def __enter__(self) -> None:
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None and task not in self._due
        due = self._due[task] = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(due, self._end)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task(self._loop)
        assert task is not None
        if self._due.pop(task, None) is None and task.uncancel() <= 0 and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _end(self) -> None:
        """Cancel the tasks whose time has ended, some in each turn of the loop, and wait for the next one's."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._timer = None
        for ended, (task, due) in enumerate(tuple(islice(self._due.items(), _MOST + 1))):
            if due > now or ended == _MOST:
                self._timer = loop.call_at(max(due, now), self._end)
                return
            del self._due[task]
            task.cancel()


__all__ = ["Deadline"]
