"""Procedures: coroutines of the runtime that run on the loop without being tasks.

A stop, a restart and the end of a failed actor take several steps with waits between them. As tasks they
could be cancelled from outside: ``asyncio.all_tasks()`` at a program's end cancels whatever it finds, and an
actor whose stop is cancelled would be stopping for ever. Nobody can cancel a procedure. The actor's own
coroutines (handlers, hooks) run in tasks, as any code on asyncio expects; a cancellation hits only these.

In a procedure there is no current task, so ``asyncio.timeout`` does not work; ``asyncio.wait`` does.

A signal handler may raise Ctrl-C between any two bytecodes, also in a procedure. What the procedure had still to do is
done by another one then (see :func:`termination.break_off`): its actors would be stopping for ever.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable, Coroutine
from typing import Any


class Procedure:
    """One running procedure; it begins in the loop's next turn. Its exceptions go to the loop's handler.

    Args:
        coroutine: what to run.
        loop: the loop to run on.
        context: the context to run in.
        broken: called with what the coroutine has raised: Ctrl-C, or a defect of the runtime.
    """

    __slots__ = ("_broken", "_context", "_coroutine", "_loop", "_over")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, None],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context,
        broken: Callable[[BaseException], None],
    ) -> None:
        self._coroutine, self._loop, self._context, self._broken = coroutine, loop, context, broken
        self._over = False
        loop.call_soon(self._step, context=context)

    def __del__(self) -> None:
        coroutine = getattr(self, "_coroutine", None)  # Ctrl-C may have hit the making of it
        if coroutine is not None and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            coroutine.close()  # the loop was closed before its first step: no warning about that

    def _step(self, _: Any = None) -> None:
        if self._over or inspect.getcoroutinestate(self._coroutine) == inspect.CORO_CLOSED:
            return  # it has been broken, or is not wanted any more
        try:
            waits_for = self._coroutine.send(None)
            if waits_for is None:  # asyncio.sleep(0)
                self._loop.call_soon(self._step, context=self._context)
                return
            waits_for._asyncio_future_blocking = False  # what a task does to show that it has seen the future
            waits_for.add_done_callback(self._step, context=self._context)
        except StopIteration:
            return
        except BaseException as error:
            self._over = True  # it may be that the future calls
            self._coroutine.close()
            self._broken(error)
            raise
