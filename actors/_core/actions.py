"""Operations behind the methods of :class:`actors.Actor`: replies, tasks, behaviours, stash, idleness."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from actors._core.context import origin
from actors._core.crash_reports import report
from actors._errors import StashFull, TooManyTasks
from actors._future import Future
from actors._messages import OfLife, ReceiveTimeout, Restored, Terminated

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.cell import Cell

PRIORITY = "priority"

OWED_PURGE = 256
"""Settled replies leave the dict of owed ones when it has this many entries, or a larger power of two."""

IDLE = ReceiveTimeout()


def take_reply(cell: Cell) -> Future[Any]:
    """See :meth:`actors.Actor.take_reply`."""
    reply, cell.reply = cell.reply, None
    if reply is None:
        return Future()
    reply.target = None
    if cell.owed is None:
        cell.owed = {}
    owed = cell.owed
    owed[reply] = None
    if len(owed) >= OWED_PURGE and len(owed) & (len(owed) - 1) == 0:
        # Only at powers of two, so that the cost per reply is constant.
        cell.owed = {future: None for future in owed if not future.done()}
    return reply


def start_task(cell: Cell, coroutine: Coroutine[Any, Any, Any]) -> None:
    """See :meth:`actors.Actor.start_task`."""
    if cell.tasks is None:
        cell.tasks = {}
    if len(cell.tasks) >= cell.actor_class.max_tasks:
        coroutine.close()
        raise TooManyTasks(f"{cell.path} has {len(cell.tasks)} tasks under way")
    task = cell.loop.create_task(coroutine)
    cell.tasks[task] = None
    task.add_done_callback(lambda done: _task_done(cell, done))


def _task_done(cell: Cell, task: asyncio.Task[Any]) -> None:
    error = None if task.cancelled() else task.exception()
    if cell.tasks is None or task not in cell.tasks:
        if error is not None:  # the life that it belonged to has ended
            report(cell, error, "task")
        return
    del cell.tasks[task]
    if error is not None:
        cell.fail(error, "task")


def deliver_outcome(cell: Cell, life: Actor, message: Any) -> None:
    """Send an actor the outcome of piped work, unless the life that has begun the work has ended.

    Args:
        cell: the actor's.
        life: the instance that piped.
        message: what to send.
    """
    sent, came_from = cell.clock(), origin()
    hooks = cell.mailbox.hooks
    if hooks is None or hooks.admits(cell, (message, None, sent, *came_from), PRIORITY):
        cell.mailbox.put_priority((OfLife(life, message), None, sent, *came_from))


def become(cell: Cell, behaviour: Callable[[Any], Any], *, discard_old: bool) -> None:
    """See :meth:`actors.Actor.become`."""
    if not discard_old:
        cell.behaviours = [*(cell.behaviours or ()), cell.receive]
    cell.receive = behaviour


def unbecome(cell: Cell) -> None:
    """See :meth:`actors.Actor.unbecome`."""
    cell.receive = cell.behaviours.pop() if cell.behaviours else None


def stash(cell: Cell) -> None:
    """See :meth:`actors.Actor.stash`."""
    if cell.envelope is None:
        raise ValueError("there is no message to stash: none is being handled")
    if cell.stashed_last is cell.envelope:
        raise ValueError("this message is stashed already")
    if cell.stashed is None:
        cell.stashed = []
    if len(cell.stashed) >= cell.actor_class.stash_capacity:
        raise StashFull(f"{cell.path} has stashed {len(cell.stashed)} messages")
    envelope = cell.envelope
    if isinstance(envelope[0], Terminated):
        envelope = (Restored(envelope[0]), *envelope[1:])
    cell.stashed.append(envelope)
    cell.stashed_last = cell.envelope
    cell.reply = None


def unstash_all(cell: Cell) -> None:
    """See :meth:`actors.Actor.unstash_all`."""
    stashed, cell.stashed = cell.stashed, None
    cell.mailbox.put_back(stashed or [])


def set_receive_timeout(cell: Cell, seconds: float | None) -> None:
    """See :meth:`actors.Actor.set_receive_timeout`."""
    cell.idle_after = seconds
    if seconds is None:
        cell.timers.cancel(IDLE)
    else:
        cell.timers.set(IDLE, seconds, IDLE)


def idle_message(cell: Cell) -> ReceiveTimeout | None:
    """Answer the receive timeout's timer: its message if the actor was idle that long, else None.

    Sets the timer again in either case: a message sets no timer, it only moves ``cell.ended``.
    """
    if cell.idle_after is None:
        return None
    left = cell.idle_after - (cell.clock() - cell.ended) / 1e9
    idle = left <= 1e-6
    cell.timers.set(IDLE, cell.idle_after if idle else left, IDLE)
    return IDLE if idle else None
