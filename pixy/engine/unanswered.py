"""Operations that go on when their callers have gone.

A request's task is cancelled when its client closes the connection, resets the stream or lets the deadline pass, and when the listener
stops. What it has asked Kafka for by then is done all the same, and a record made at that moment could only guess. So a change
is made in a task of its own: its caller may stop waiting for it, and what came of it is known when it ends. Each has the time
limit that it has anyway, and counts as its caller's until then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

R = TypeVar("R")

_GRACE: Final = 1.0
"""Seconds that an operation may still take when the actors that carry it out have ended."""


class Unanswered:
    """The operations of one engine whose callers have gone. For one event loop."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[Any]] = set()

    async def carry_out(
        self, doing: Coroutine[Any, Any, R], left: Callable[[asyncio.Task[R]], None] | None = None
    ) -> R:
        """Do something in a task of its own, which goes on if the present one is cancelled.

        Args:
            doing: what to do.
            left: called with the task if the present one is cancelled before it has the result.
        """
        task = asyncio.get_running_loop().create_task(doing)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                self._left.add(task)
                task.add_done_callback(self._ended)
                if left is not None:
                    left(task)
            raise

    @property
    def held(self) -> int:
        """Operations under way whose callers have gone."""
        return len(self._left)

    @property
    def answers(self) -> bool:
        """Whether somebody still waits for what the present task does."""
        return asyncio.current_task() not in self._left

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # it is recorded; nobody else wants to know

    async def end(self) -> None:
        """Wait for what is left, a moment at most: the actors have ended. What goes on then is cancelled."""
        left = set(self._left)
        if left:
            _, late = await asyncio.wait(left, timeout=_GRACE)
            for task in late:
                task.cancel()
            await asyncio.wait(left, timeout=_GRACE)


__all__ = ["Unanswered"]
