"""Tasks that are cancelled before their first step.

asyncio throws the cancellation into the coroutine before its first line then, so none of its code runs: no ``finally``,
and nothing of what a last hook has to give back. A coroutine that begins with ``await pause()``, or with
``await begun()``, and is sent to that line before its task is made, is there when the cancellation comes.
"""

from __future__ import annotations

import asyncio
import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")


def task_of(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T], context: contextvars.Context | None
) -> asyncio.Task[T]:
    """Make a task for an actor's handler or hook; it takes its first step in the loop's next turn.

    Past the loop's task factory: with Python 3.12's ``eager_task_factory`` the first step would come now, inside of the
    code that makes the task and in a context that this code has entered already.

    Args:
        loop: the actor's.
        coroutine: what the task runs.
        context: the context of its steps; None takes a copy of the current one.
    """
    return asyncio.Task(coroutine, loop=loop, context=context)


@types.coroutine
def pause() -> Generator[None, None, None]:
    """Hand control back once."""
    yield


async def begun() -> None:
    """Hand control back once; let a cancellation that comes meanwhile hit the task's next wait."""
    try:
        await pause()
    except asyncio.CancelledError:
        cast("asyncio.Task[object]", asyncio.current_task()).cancel()


__all__ = ["begun", "pause", "task_of"]
