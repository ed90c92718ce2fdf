"""The last hooks of a life: ``on_stop``, ``on_failure``, ``before_restart``. None of them holds up the end for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from actors._core.begun import begun, task_of
from actors._core.context import current
from actors._core.crash_reports import report
from actors._core.interruption import as_failure
from actors._core.lifecycle import hook_timeout, stop_grace
from actors._errors import ActorError

if TYPE_CHECKING:
    from actors._core.cell import Cell


async def run_last(cell: Cell, hook: str, args: tuple[Any, ...]) -> None:
    """Run a hook; report its failure, or that it does not end, and go on.

    Args:
        cell: the actor's.
        hook: the hook's name.
        args: for the hook.
    """
    try:
        ending = cell.begin_hook(hook, args)
    except BaseException as error:
        report(cell, as_failure(cell, error), hook)
        return
    if ending is None:
        return
    await asyncio.wait([ending], timeout=hook_timeout(cell))
    if ending.done():
        failure = asyncio.CancelledError() if ending.cancelled() else ending.exception() or ending.result()
        if failure is not None:
            report(cell, as_failure(cell, failure), hook)
        return
    report(cell, ActorError(f"{hook} of {cell.path} did not end within {hook_timeout(cell):g} s"), hook)
    await cell.give_up_hook(ending)


def begin_hook(cell: Cell, hook: str, args: tuple[Any, ...]) -> asyncio.Future[BaseException | None] | None:
    """Begin one of the actor's last hooks, plain or coroutine. Raises what a plain one raises.

    Args:
        cell: the actor's.
        hook: the hook's name.
        args: for it.

    Returns:
        None if it has ended; else a future of its exception, or of None.
    """
    function = getattr(cell.actor, hook)
    # A procedure that ends several lives runs in the context of one of them.
    result = function(*args) if current.get() is cell else cell.context.run(function, *args)
    if type(result) is not CoroutineType:
        return None
    ending = _outcome(result)
    ending.send(None)  # to its first line, as in following.begin
    task = task_of(cell.loop, ending, cell.context)
    # The loop may be closed before its end; the actor is declared dead then. No word of asyncio's about that.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task


async def _outcome(hook: Coroutine[Any, Any, Any]) -> BaseException | None:
    """Await a hook and return its exception: raised by a task, SystemExit would end the loop."""
    try:
        await begun()
        await hook
    except BaseException as error:  # GeneratorExit, too: the hook's own, or the loop is gone
        hook.close()
        return error
    return None


async def give_up_hook(cell: Cell, ending: asyncio.Future[BaseException | None]) -> None:
    """Cancel a last hook that takes too long; one that goes on for ``stop_grace`` all the same is left alone.

    Args:
        cell: the actor's.
        ending: done when the hook has ended.
    """
    ending.cancel()
    await asyncio.wait([ending], timeout=stop_grace(cell))
    if not ending.done():
        cell.system.abandon(cell, ending)
