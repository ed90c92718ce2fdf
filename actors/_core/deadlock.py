"""Deadlock detection: an ask that closes a circle of waiting actors is refused.

While an actor's handler waits for a reply, its cell notes the future, and the future knows the actor that
owes the reply (until a handler takes the reply over). Following the two from the target either ends, or
comes back to the actor that is about to wait. Only handlers are noted: a task beside the mailbox may wait
for its own actor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actors._core.context import current
from actors._core.log_safely import log_safely
from actors._errors import AskCycle
from actors._events import AskCycleFound

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._future import Future
    from actors._system import ActorSystem

logger = logging.getLogger("actors")


def enter(cell: Cell, future: Future[Any]) -> Cell | None:
    """Note that a handler is about to wait for a reply.

    Args:
        cell: the actor whose code runs.
        future: the reply.

    Returns:
        the cell, if its handler runs; None for a task beside the mailbox.

    Raises:
        AskCycle: the wait would never end.
    """
    if cell.task is None or cell.task is not asyncio.current_task():
        return None
    _check(cell, future)
    cell.waiting_on = future
    return cell


@contextlib.contextmanager
def blocking(future: Future[Any]) -> Iterator[None]:
    """Note, in a ``with`` block, that a handler blocks its own thread. Raises as :func:`enter` does."""
    cell = current.get()
    if cell is None or not cell.threaded:
        yield
        return
    _check(cell, future)
    cell.waiting_on = future
    try:
        yield
    finally:
        cell.waiting_on = None


def _check(cell: Cell, future: Future[Any]) -> None:
    paths = [cell.path]
    target = future.target
    while target is not None:
        paths.append(target.path)
        if target is cell:
            raise _refused(cell, AskCycle(tuple(paths)))
        waiting = target.waiting_on
        if waiting is None or len(paths) > 1000:
            return
        target = waiting.target


def check_stop(system: ActorSystem) -> None:
    """Refuse that an actor's handler or background work awaits its system's stop: it would be cancelled by it, and the stop with it.

    Args:
        system: whose stop is awaited in the current task.

    Raises:
        AskCycle: the wait would never end.
    """
    cell = current.get()
    if cell is None or cell.system is not system or asyncio._get_running_loop() is None:
        return
    task = asyncio.current_task()
    if task is not None and (task is cell.task or task in (cell.tasks or ())):
        raise _refused(
            cell,
            AskCycle(
                (cell.path, cell.path),
                f"{cell.path} awaits its system's stop, which waits for this actor to end; leave it to the program's "
                "main coroutine, or to a task that is not the actor's: asyncio.create_task(self.system.stop())",
            ),
        )


def _refused(cell: Cell, error: AskCycle) -> AskCycle:
    log_safely(logger.error, "%s: %s", cell.system.name, error)
    if cell.system.events.wants(AskCycleFound):
        cell.system.events.publish(AskCycleFound(error.paths))
    return error
