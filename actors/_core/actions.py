"""Operations behind the methods of :class:`actors.Actor`: replies, tasks, behaviours, stash, idleness."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

from pykka import ActorDeadError

from actors._checks import function, no_generator
from actors._core.begun import begun
from actors._core.context import origin
from actors._core.crash_reports import report
from actors._core.derived import failed_with
from actors._core.envelope import Outcome
from actors._core.error_fields import is_a
from actors._core.interruption import as_failure, interrupted, of_program
from actors._core.lifecycle import STOPPED
from actors._core.owing import Unowed, owe
from actors._core.room import make_room_in_stash
from actors._errors import StashFull, TooManyTasks
from actors._future import Future
from actors._messages import OfLife, ReceiveTimeout, Restored, Terminated

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

PRIORITY = "priority"

IDLE = ReceiveTimeout()


def take_reply(cell: Cell) -> Future[Any]:
    """See :meth:`actors.Actor.take_reply`."""
    reply = cell.reply
    if reply is None or not reply.wanted:
        return Unowed()
    cell.reply = None
    reply.target = None
    if cell.owed is None:
        cell.owed = {}
    owe(cell.owed, reply)
    return reply


def start_task(
    cell: Cell,
    coroutine: Coroutine[Any, Any, Any],
    cancelled: Callable[[asyncio.CancelledError], None] | None = None,
) -> None:
    """See :meth:`actors.Actor.start_task`.

    Args:
        cell: the actor's.
        coroutine: what to run.
        cancelled: called if the task was cancelled, or has awaited something that was; with None the actor fails.
    """
    if cell.tasks is None:
        cell.tasks = {}
    if len(cell.tasks) >= cell.actor_class.max_tasks:
        coroutine.close()
        raise TooManyTasks(f"{cell.path} has {len(cell.tasks)} tasks under way")
    task = cell.loop.create_task(coroutine)
    cell.tasks[task] = None
    task.add_done_callback(lambda done: _task_done(cell, done, cancelled))


def hand_over(
    cell: Cell,
    coroutine: Coroutine[Any, Any, Any],
    cancelled: Callable[[asyncio.CancelledError], None] | None,
) -> None:
    """Start a task on the loop from the only other thread that acts for the actor: its own, or the one that constructs it.

    The arguments are those of :func:`start_task`.

    Raises:
        TooManyTasks: ``max_tasks`` of them are under way, or on their way to the loop.
    """
    if cell.handed is None:
        cell.handed = []
    under_way = len(cell.tasks or ()) + len(cell.handed)
    if under_way >= cell.actor_class.max_tasks:
        coroutine.close()
        raise TooManyTasks(f"{cell.path} has {under_way} tasks under way")
    cell.handed.append(coroutine)
    if not cell.system.on_loop(cell.start_handed, coroutine, cancelled):
        coroutine.close()
        cell.system.loop_closed()


def start_handed(
    cell: Cell,
    coroutine: Coroutine[Any, Any, Any],
    cancelled: Callable[[asyncio.CancelledError], None] | None,
) -> None:
    """Start a task that has reached the loop, unless the actor has stopped meanwhile, or has never begun.

    The arguments are those of :func:`start_task`.
    """
    try:
        if cell.state is STOPPED:
            coroutine.close()
        else:
            start_task(cell, coroutine, cancelled)
    finally:
        cast("list[Any]", cell.handed).remove(coroutine)


def _task_done(
    cell: Cell, task: asyncio.Task[Any], cancelled: Callable[[asyncio.CancelledError], None] | None
) -> None:
    error = asyncio.CancelledError() if task.cancelled() else task.exception()
    if (
        cell.tasks is None or task not in cell.tasks
    ):  # the life that it belonged to has ended, and has cancelled it
        if error is not None and not task.cancelled():
            report(cell, error, "task")
        return
    del cell.tasks[task]
    if cancelled is not None and is_a(error, asyncio.CancelledError):
        try:
            cancelled(error)
        except BaseException as failure:
            cell.fail(as_failure(cell, failure), "task")
    elif error is not None:
        # What is the program's has left the loop already, out of the task.
        cell.fail(interrupted(cell, error) if of_program(error) else as_failure(cell, error), "task")


def pipe(cell: Cell, work: Awaitable[Any], outcome: Callable[[Any, BaseException | None], Any]) -> None:
    """Await something beside the mailbox and send its outcome to the actor, unless this life has ended by then.

    Args:
        cell: the actor's.
        work: what to await.
        outcome: makes the message from the value and the error.

    Raises:
        TooManyTasks: ``max_tasks`` tasks are under way, or as many outcomes stand beyond the bound of the priority lane.
    """
    life = cell.actor
    if (beyond := cell.mailbox.beyond()) and beyond >= cell.actor_class.max_tasks:
        if inspect.iscoroutine(work):
            work.close()
        raise TooManyTasks(f"{beyond} outcomes of tasks of {cell.path} wait in its full mailbox")

    async def piping() -> None:
        awaited = False
        try:
            await begun()
            if cell.actor is not life or cell.tasks is None:
                return
            awaited = True
            value = await work
        except BaseException as error:
            # What is no Exception hits this task, unless it is the error of what was awaited: another actor's failure.
            if not is_a(error, Exception) and not _is_outcome(work, error):
                raise
            message = outcome(None, error)
        else:
            message = outcome(value, None)
        finally:
            if not awaited and inspect.iscoroutine(work):
                work.close()
        _deliver_outcome(cell, life, message)

    coroutine = piping()
    coroutine.send(None)
    cell.start_task(coroutine, lambda error: _deliver_outcome(cell, life, outcome(None, error)))


def _is_outcome(work: Awaitable[Any], error: BaseException) -> bool:
    """Tell whether ``error`` is that of a future which was awaited; a cancellation may be this task's own."""
    if is_a(error, asyncio.CancelledError):
        return False
    if isinstance(work, asyncio.Future):
        return work.done() and not work.cancelled() and work.exception() is error
    return failed_with(work, error)


def _deliver_outcome(cell: Cell, life: Actor, message: Any) -> None:
    """Send an actor the outcome of piped work, unless the life that has begun the work has ended.

    Args:
        cell: the actor's.
        life: the instance that piped.
        message: what to send.
    """
    mailbox = cell.mailbox
    if mailbox.closed:
        return  # the actor is about to stop, by itself
    sent, came_from = cell.clock(), origin()
    hooks = mailbox.hooks
    if hooks is not None:
        seen = Outcome((message, None, sent, *came_from))
        seen.life = life
        if not hooks.admits(cell, cast("Envelope", seen), PRIORITY):
            return
    with contextlib.suppress(ActorDeadError):  # closed now, in the actor's own thread
        mailbox.put_priority((OfLife(life, message), None, sent, *came_from), beyond=True)


def become(cell: Cell, behaviour: Callable[[Any], Any], *, discard_old: bool) -> None:
    """See :meth:`actors.Actor.become`."""
    function("a behaviour", behaviour)
    no_generator("a behaviour", behaviour)
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
        make_room_in_stash(cell)
    if len(cell.stashed) >= cell.actor_class.stash_capacity:
        raise StashFull(f"{cell.path} has stashed {len(cell.stashed)} messages")
    message, reply, sent, sender, _, context = cell.envelope
    if isinstance(message, Terminated):
        message = Restored(message)
    # A new envelope, so that the next handling of the message, which may stash it again, is not taken for this one.
    # With the trace of this handling, which a tracer may have begun: the next one goes on with it.
    cell.stashed.append((message, reply, sent, sender, cell.trace, context))
    cell.stashed_last = cell.envelope
    cell.reply = None


def unstash_all(cell: Cell) -> None:
    """See :meth:`actors.Actor.unstash_all`."""
    if cell.stashed:
        cell.mailbox.put_back()
    cell.mailbox.rouse()  # it sleeps if this is no handler that calls


def set_receive_timeout(cell: Cell, seconds: float | None) -> None:
    """See :meth:`actors.Actor.set_receive_timeout`."""
    if seconds is None:
        cell.timers.cancel(IDLE)
    else:
        cell.timers.set(IDLE, seconds, IDLE)
    cell.idle_after = seconds


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
