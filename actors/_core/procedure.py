"""Procedures: coroutines of the runtime that run on the loop without being tasks.

A stop, a restart and the end of a failed actor take several steps with waits between them. As tasks they
could be cancelled from outside: ``asyncio.all_tasks()`` at a program's end cancels whatever it finds, and an
actor whose stop is cancelled would be stopping for ever. Nobody can cancel a procedure. The actor's own
coroutines (handlers, hooks) run in tasks, as any code on asyncio expects; a cancellation hits only these.

In a procedure there is no current task, so ``asyncio.timeout`` does not work; ``asyncio.wait`` does.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Coroutine
from typing import Any


class Procedure:
    """One running procedure; it begins in the loop's next turn. Its exceptions go to the loop's handler.

    Args:
        coroutine: what to run.
        loop: the loop to run on.
        context: the context to run in.
    """

    __slots__ = ("_context", "_coroutine", "_loop")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
    ) -> None:
        self._coroutine, self._loop, self._context = coroutine, loop, context
        loop.call_soon(self._step, context=context)

    def __del__(self) -> None:
        if inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CREATED:
            self._coroutine.close()  # the loop was closed before its first step: no warning about that

    def _step(self, _: Any = None) -> None:
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration:
            return
        if waits_for is None:  # asyncio.sleep(0)
            self._loop.call_soon(self._step, context=self._context)
            return
        waits_for._asyncio_future_blocking = False  # what a task does to show that it has seen the future
        waits_for.add_done_callback(self._step, context=self._context)
