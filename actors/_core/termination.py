"""The end: of one life (before a restart), and of the actor.

Children stop before their parent, the youngest first. From the moment an actor departs it is dead to
others, as in pykka before ``on_stop``: its mailbox is closed and the messages in it are answered.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import TYPE_CHECKING, Any

import pykka

from actors._core import stopping
from actors._core.accounting import account
from actors._core.closing import close, drain, take_put_aside
from actors._core.crash_reports import report
from actors._core.dead_letters import answer_dead_letter
from actors._core.death_watch import tell_watchers, unwatch_all
from actors._core.error_fields import is_a
from actors._core.interruption import interrupted
from actors._core.last_hooks import run_last
from actors._core.lifecycle import NEW, RESTARTING, STOPPED, STOPPING, stop_grace
from actors._core.procedure import Procedure
from actors._core.pykka_names import unregister
from actors._core.remains import forget
from actors._errors import ActorError, NoAnswer
from actors._events import ActorStopped
from actors._future import Future
from actors._messages import ChildStopped

if TYPE_CHECKING:
    from actors._core.cell import Cell

STOPS_AT_ONCE = 100
"""Siblings that are stopped before other callbacks of the loop run, a timeout among them."""


# -- stopping -----------------------------------------------------------------------------------


def request_stop(cell: Cell) -> None:
    """Begin to stop, unless the actor stops already. On the loop's thread."""
    if cell.state in (STOPPING, STOPPED):
        return
    # The thread of a constructor that is under way has entered the context.
    context = cell.context.copy() if cell.state is NEW else cell.context
    if cell.restart is not None and cell in cell.restart.ending:
        cell.state, cell.restart = STOPPING, None
        depart(cell)  # the restart ends this life, and then the actor
    elif cell.task or cell.children or cell.tasks or cell.threaded or _has_last_hook(cell):
        stop = _stop(cell)
        try:
            Procedure(stop, cell.loop, context, functools.partial(break_off, cell, "on_stop"))
            cell.state, cell.restart = STOPPING, None
        except BaseException:  # Ctrl-C: who asks again gets another one
            stop.close()
            raise
    else:
        # Nothing to wait for: stopping 10,000 actors takes half the time.
        cell.state, cell.restart = STOPPING, None
        try:
            depart(cell)
            if cell.timer_keys() or cell.watching or cell.owed:
                _release(cell)
            bury(cell)
        except BaseException as error:
            break_off(cell, "on_stop", error)
            raise


def miscarry(cell: Cell) -> None:
    """End a new cell whose actor's constructor has raised; what it has spawned and begun ends first.

    Until then it stays in the tree, where the system's stop finds it. In any thread.
    """
    # First those on their way: what has arrived meanwhile is among the tasks.
    if cell.handed or cell.tasks or cell.children or cell.timer_keys() or cell.watching:
        cell.system.on_loop(request_stop, cell)
        return
    cell.state = STOPPED
    depart(cell)
    for envelope in drain(cell.mailbox):
        answer_dead_letter(cell, envelope)
    forget(cell)
    if cell.siblings.get(cell.name) is cell:
        del cell.siblings[cell.name]


def _has_last_hook(cell: Cell) -> bool:
    return cell.started and cell.actor_class.on_stop is not pykka.Actor.on_stop


async def stop_now(cell: Cell) -> None:
    """Stop without handling the rest of the mailbox; wait until the actor has stopped."""
    if cell.state is not STOPPED:
        cell.request_stop()
    if cell.state is not STOPPED:
        stopped: Future[Any] = Future()
        cell.stop_waiters = [*(cell.stop_waiters or ()), stopped]
        try:
            await stopped
        except asyncio.CancelledError:  # the stop had a timeout
            if cell.stop_waiters and stopped in cell.stop_waiters:
                cell.stop_waiters.remove(stopped)
            raise


async def _stop(cell: Cell) -> None:
    cell.state, cell.restart = STOPPING, None
    await cell.end_handler(cell.task, stop_grace(cell))
    depart(cell)
    if cell.started:
        await end_life(cell, ("on_stop", ()))
    else:
        await end_life(cell)
    bury(cell)


def break_off(cell: Cell, where: str, error: BaseException) -> None:
    """End an actor whose stop or restart has met Ctrl-C or a defect of the runtime, without the hooks that were to come.

    Args:
        cell: the actor's.
        where: what was under way, for the report.
        error: what has hit it.
    """
    actor: Any = cell.actor
    if cell.state is STOPPED and actor is None:
        return  # it had come to its end
    failure = error if is_a(error, Exception) else interrupted(cell, error)
    report(cell, failure, where)
    cell.error = cell.error or failure
    cell.state, cell.restart = STOPPING, None

    def again(another: BaseException) -> None:
        if not is_a(another, Exception):  # a defect would only come again
            break_off(cell, where, another)

    Procedure(_end_rest(cell), cell.loop, cell.context, again)


async def _end_rest(cell: Cell) -> None:
    depart(cell)
    await cell.end_handler(cell.task, 0.0)
    await end_life(cell)
    bury(cell)


async def end_handler(cell: Cell, task: asyncio.Task[None] | None, grace: float) -> None:
    """Wait until the handler (or ``on_start``) that is under way has ended.

    Args:
        cell: the actor's.
        task: the task that runs it; None if there is none.
        grace: seconds after which to cancel it. It gets ``stop_grace`` to end then.
    """
    if task is not None:
        if grace:
            await asyncio.wait([task], timeout=grace)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=stop_grace(cell))
    cell.task = None
    cell.cut_off()


# -- the end of a life --------------------------------------------------------------------------


def cut_off(cell: Cell) -> None:
    """End the handler that is under way, if any: its asker gets an error, its result is ignored."""
    handler, cell.handler = cell.handler, None
    begun = handler is not None
    if handler is not None and inspect.getcoroutinestate(handler) == inspect.CORO_CREATED:
        handler.close()  # its task is cancelled before its first step
        begun = False
    envelope, cell.envelope = cell.envelope, None
    reply, cell.reply = cell.reply, None
    if reply is not None:
        reply.try_fail(
            cell.dead("stopped before it answered", NoAnswer)
            if begun
            else cell.dead("stopped before handling the message")
        )
    if envelope is not None and handler is not None:
        cell.failed += 1
        account(cell, envelope, cell.began, asyncio.CancelledError())
    cell.trace = None


async def end_life(cell: Cell, *hooks: tuple[str, tuple[Any, ...]]) -> None:
    """Stop all that belongs to this life, children youngest first, then run its last hooks.

    Args:
        cell: the actor whose life ends.
        hooks: names and arguments of the last hooks.
    """
    await end_work(cell)
    for hook, args in hooks:
        await run_last(cell, hook, args)
    await stop_children(cell)  # those that the hooks have spawned
    cell.children_history = None  # the next life's children have not failed yet
    cell.started = False
    if cell.stashed:
        cell.mailbox.put_back()
    _release(cell)


async def end_work(cell: Cell) -> None:
    """Cancel the tasks and timers of this life; stop its children."""
    _end_tasks(cell)
    await stop_children(cell)


async def stop_children(cell: Cell) -> None:
    """Stop the children, the youngest first. None is added meanwhile: who replaces each would keep this from ending."""
    if cell.children:
        cell.ending_children = True
        try:
            await stop_all(cell.children)
        finally:
            cell.ending_children = False


async def stop_all(cells: dict[str, Cell]) -> None:
    """Stop siblings, the youngest first; let other callbacks of the loop run now and then.

    Args:
        cells: the living children of a parent, or the top of the tree; empty afterwards.
    """
    stopped = 0
    while cells:
        await stop_now(next(reversed(cells.values())))
        stopped += 1
        if stopped % STOPS_AT_ONCE == 0:  # most stops do not wait
            await asyncio.sleep(0)


def _end_tasks(cell: Cell) -> None:
    cell.clear_timers()
    for task in tuple(cell.tasks or ()):
        task.cancel()
    cell.tasks = None


def _release(cell: Cell) -> None:
    """After the last hook (or a thread's last handler): end the timers, tasks, watches and owed replies."""
    _end_tasks(cell)
    if cell.watching:
        unwatch_all(cell)
    for reply in tuple(cell.owed or ()):
        reply.try_fail(cell.dead("stopped before it answered", NoAnswer))
    cell.owed = None


# -- the end of the actor -----------------------------------------------------------------------


def depart(cell: Cell) -> None:
    """Make the actor dead to others, as in pykka before the last hook."""
    if cell.stopped_flag.is_set():
        return
    close(cell.mailbox)  # stop_if_idle() may have closed it
    cell.stopped_flag.set()
    if cell.registered:
        unregister(cell.ref)
        cell.registered = False


def perish(cells: list[Cell], error: ActorError) -> None:
    """End actors whose loop is gone: no hook can run, but all who wait hear. In any thread.

    Args:
        cells: the actors', parents before children.
        error: why they end.
    """
    for cell in cells:
        cell.error = cell.error or error
        depart(cell)
    for cell in reversed(cells):
        envelope = cell.envelope
        cell.cut_off()
        if envelope is not None and envelope[1] is not None:
            envelope[1].try_fail(cell.dead("did not answer", NoAnswer))
        cell.tasks = None  # they cannot be cancelled: that, too, needs the loop
        _release(cell)
        bury(cell)


def bury(cell: Cell) -> None:
    """Take the actor out of the tree, answer what is left in its mailbox, tell all who wait for its end."""
    cell.state = STOPPED
    if cell.stashed or not cell.mailbox.empty():
        for envelope in take_put_aside(cell.mailbox):
            answer_dead_letter(cell, envelope, put_aside=True)
        cell.stashed = None
        for envelope in drain(cell.mailbox):
            answer_dead_letter(cell, envelope)
    if cell.stop_replies:
        stopping.settle(cell)
    siblings = cell.siblings
    if siblings.get(cell.name) is cell:
        del siblings[cell.name]
    if cell.parent is not None and cell.parent.state not in (RESTARTING, STOPPING, STOPPED):
        cell.parent.send_behind(ChildStopped(cell.ref, cell.parent.actor))
    if cell.watchers:
        tell_watchers(cell)
    for future in cell.start_waiters or ():
        future.try_fail(cell.dead("never started"))
    for stopped in cell.stop_waiters or ():
        stopped.try_set(True)
    cell.start_waiters = cell.stop_waiters = None
    events = cell.system.events
    if events.wants(ActorStopped):
        events.publish(ActorStopped(cell.path, cell.actor_class.__name__, cell.error))
    if cell.subscriptions:
        for end in tuple(cell.subscriptions):
            end()
    cell.retire()
    forget(cell)
    cell.let_go()
