"""The end: of one life (before a restart), and of the actor.

Children stop before their parent, the youngest first. From the moment an actor departs it is dead to
others, as in pykka before ``on_stop``: its mailbox is closed and the messages in it are answered.
"""

from __future__ import annotations

import asyncio
import inspect
from types import CoroutineType
from typing import TYPE_CHECKING, Any

import pykka

from actors._core.crash_reports import report
from actors._core.dead_letters import answer_dead_letter
from actors._core.death_watch import tell_watchers, unwatch_all
from actors._core.lifecycle import RUNNING, STARTING, STOPPED, STOPPING, ended_from_outside
from actors._core.pykka_names import unregister
from actors._events import ActorStopped
from actors._future import Future
from actors._messages import ChildStopped

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope


# -- stopping -----------------------------------------------------------------------------------


def request_stop(cell: Cell) -> None:
    """Begin to stop, unless the actor stops already. On the loop's thread."""
    if cell.state in (STOPPING, STOPPED):
        return
    ran = cell.state in (STARTING, RUNNING)
    cell.state = STOPPING
    restart, cell.transition = cell.transition, None
    if restart is not None:
        restart.cancel()
    if cell.task is None and not (cell.children or cell.tasks or cell.threaded):
        # Nothing to wait for: without a task, stopping 10,000 actors takes half the time.
        _stop_at_once(cell, ran)
    else:
        cell.transition = cell.loop.create_task(_stop(cell, ran), context=cell.context)


async def stop_now(cell: Cell) -> None:
    """Stop without handling the rest of the mailbox; wait until the actor has stopped."""
    if cell.state is not STOPPED:
        cell.request_stop()
    if cell.state is not STOPPED:
        stopped: Future[None] = Future()
        cell.stop_waiters = [*(cell.stop_waiters or ()), stopped]
        await stopped


def _stop_at_once(cell: Cell, ran: bool) -> None:
    left = depart(cell)
    if ran and cell.actor_class.on_stop is not pykka.Actor.on_stop:
        try:
            result: Any = cell.context.copy().run(cell.actor.on_stop)
        except BaseException as error:
            report(cell, error, "on_stop")
        else:
            if type(result) is CoroutineType:
                cell.transition = cell.loop.create_task(
                    _finish_stop(cell, result, left), context=cell.context
                )
                return
    _release(cell)
    bury(cell, left)


async def _finish_stop(cell: Cell, hook: CoroutineType[Any, Any, Any], left: list[Envelope]) -> None:
    try:
        await hook
    except BaseException as error:
        if ended_from_outside(error):
            raise
        report(cell, error, "on_stop")
    _release(cell)
    bury(cell, left)


async def _stop(cell: Cell, ran: bool) -> None:
    handler = cell.task
    if handler is not None:
        # The handler may end by itself; after the grace it is cancelled.
        await asyncio.wait([handler], timeout=cell.system.stop_grace)
        if not handler.done():
            handler.cancel()
            await asyncio.wait([handler], timeout=cell.system.stop_grace)
    cell.cut_off()
    left = depart(cell)
    await end_life(cell, "on_stop" if ran else None)
    bury(cell, left)


# -- the end of a life --------------------------------------------------------------------------


def cut_off(cell: Cell) -> None:
    """End the handler that is under way, if any: its asker gets an error, its result is ignored."""
    handler, cell.handler = cell.handler, None
    if handler is not None and inspect.getcoroutinestate(handler) == inspect.CORO_CREATED:
        handler.close()  # its task is cancelled before its first step
    envelope, cell.envelope = cell.envelope, None
    reply, cell.reply = cell.reply, None
    cell.trace = None
    if reply is not None:
        reply.try_fail(cell.dead("stopped before handling the message"))
    if envelope is not None and handler is not None and cell.hooks is not None:
        cell.hooks.ended(cell, envelope, cell.began, cell.clock(), asyncio.CancelledError())


async def end_life(cell: Cell, hook: str | None, *args: Any) -> None:
    """Stop all that belongs to this life, children youngest first, then run its last hook.

    Args:
        cell: the actor whose life ends.
        hook: the last hook's name; None if the actor never started.
        args: for the hook.
    """
    cell.clear_timers()
    for task in tuple(cell.tasks or ()):
        task.cancel()
    for child in reversed(tuple(cell.children.values())):
        await stop_now(child)
    if hook is not None:
        await run_safely(cell, hook, *args)
    if cell.stashed:
        cell.mailbox.put_back(cell.stashed)
        cell.stashed = None
    _release(cell)


async def run_safely(cell: Cell, hook: str, *args: Any) -> None:
    """Run a hook; report its failure and go on."""
    try:
        await cell.call(hook, *args)
    except BaseException as error:
        if ended_from_outside(error):
            raise
        report(cell, error, hook)


def _release(cell: Cell) -> None:
    """After the last hook (or a thread's last handler): end the timers, watches and owed replies."""
    cell.clear_timers()
    if cell.watching:
        unwatch_all(cell)
    owed, cell.owed = cell.owed, None
    for reply in owed or ():
        reply.try_fail(cell.dead("stopped before it answered"))


# -- the end of the actor -----------------------------------------------------------------------


def depart(cell: Cell) -> list[Envelope]:
    """Make the actor dead to others, as in pykka before the last hook; return its mailbox's messages."""
    left = cell.mailbox.close()
    cell.stopped_flag.set()
    if cell.registered:
        unregister(cell.ref)
        cell.registered = False
    return left


def bury(cell: Cell, left: list[Envelope]) -> None:
    """Take the actor out of the tree and tell all who wait for its end.

    Args:
        cell: the actor.
        left: the messages that it did not handle; they become dead letters.
    """
    cell.state = STOPPED
    for envelope in (*left, *(cell.stashed or ())):
        answer_dead_letter(cell, envelope)
    cell.stashed = None
    for reply in cell.stop_replies or ():
        reply.try_set(True)
    siblings = cell.siblings
    if siblings.get(cell.name) is cell:
        del siblings[cell.name]
    if cell.parent is not None:
        cell.parent.send_system(ChildStopped(cell.ref))
    if cell.watchers:
        tell_watchers(cell)
    for future in cell.start_waiters or ():
        future.try_fail(cell.dead("never started"))
    for stopped in cell.stop_waiters or ():
        stopped.try_set(None)
    cell.start_waiters = cell.stop_waiters = cell.stop_replies = None
    events = cell.system.events
    if events.wants(ActorStopped):
        events.publish(ActorStopped(cell.path, cell.actor_class.__name__, cell.error))
    cell.retire()
