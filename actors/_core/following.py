"""Coroutine handlers: a task awaits them, and handles the messages after them until the turn is over.

The first coroutine handler of an actor gets a task of its own; the task then stands by for the next one, whose
first step runs at once (see ``standby``).
"""

from __future__ import annotations

import asyncio
from types import CoroutineType
from typing import TYPE_CHECKING, Any, cast

from actors._core.accounting import account
from actors._core.begun import pause, task_of
from actors._core.context import within
from actors._core.error_fields import is_a
from actors._core.handling import broken_off, work
from actors._core.lifecycle import RUNNING
from actors._core.standby import MAX_STANDBYS, Handler, Standby

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope


def begin(cell: Cell, handler: CoroutineType[Any, Any, Any]) -> None:
    """Begin to await a handler's coroutine. In the actor's context, on the loop's thread.

    Args:
        cell: the actor's.
        handler: what its handler has returned.
    """
    cell.handler = handler
    standby = cell.standby
    if standby is not None and standby.idle and standby.context is cell.handling:
        cell.task = standby.task
        try:
            standby.take(handler)
        except BaseException:  # the handler is not under way
            if cell.task is standby.task:
                cell.task = None
            raise
        return
    following = _follow(cell, handler)
    following.send(None)  # to its first line, which the task continues: see there
    cell.task = task_of(cell.loop, following, cell.handling)


async def _follow(cell: Cell, handler: CoroutineType[Any, Any, Any]) -> None:
    """Take the turns that begin with a coroutine handler, as long as the task may stand by for the next one."""
    error: BaseException | None = None
    task = None
    try:
        try:
            # A task that is cancelled before its first step would not run any of this code. (A callback at
            # the task's end would show that, too, and take 6 % of an ask.)
            await pause()
        except asyncio.CancelledError as failure:
            error = failure
            handler.close()
        task = cell.task
        if task is None:
            return  # this life has ended; or Ctrl-C came before the task stood here, and the message is answered for
        standby = _standby(cell, task) if await _take_turn(cell, task, handler, error) else None
    except BaseException as failure:
        _broken_off(cell, task or cell.task, failure)
        raise
    if standby is None:
        return
    del handler, error
    cell.system.turns.standbys += 1
    try:
        while True:
            try:
                following = await standby
                if following is None:
                    return
                stays = await _take_turn(cell, task, following, None, standby)
            except BaseException as failure:  # not the handler's
                _broken_off(cell, task, failure)
                if not standby.driven:
                    raise
                standby.failure, stays = failure, False
            following = None
            if stays:
                continue
            if not standby.driven:
                return
            standby.ends = True
    finally:
        cell.system.turns.standbys -= 1


def _broken_off(cell: Cell, task: asyncio.Task[None] | None, failure: BaseException) -> None:
    """Answer for the message at hand: Ctrl-C has come between two handlers, or the runtime has a defect."""
    if is_a(failure, GeneratorExit):
        return  # the loop is gone
    if cell.task is task:
        cell.task = None
        broken_off(cell, failure)
    elif cell.task is None and cell.state is RUNNING:
        cell.wake()  # it was about to look for the next message


def _standby(cell: Cell, task: asyncio.Task[None]) -> Standby | None:
    turns, before = cell.system.turns, cell.standby
    if turns.standbys >= MAX_STANDBYS:
        return None
    if before is not None:
        before.dismiss()  # it is for another context
    cell.standby = made = Standby(task, cell.handling)
    return made


async def _take_turn(
    cell: Cell,
    task: asyncio.Task[None],
    handler: Handler,
    error: BaseException | None,
    standby: Standby | None = None,
) -> bool:
    """Await a handler, then handle messages until the turn is over or the mailbox is empty.

    Args:
        cell: the actor's.
        task: the task that runs this.
        handler: the coroutine that a handler has returned.
        error: what has ended it already, if anything.
        standby: the task's, if it has stood by for this handler.

    Returns:
        whether the task may handle more messages.
    """
    turns = cell.system.turns
    number, until = turns.number, cell.clock() + cell.turn_ns
    while cell.task is task:
        if error is None:
            try:
                result = await (handler if cell.carried is None else within(cell.carried, handler))
            except BaseException as failure:
                if is_a(failure, GeneratorExit) and not cell.loop.is_running():
                    raise  # the loop is gone
                error = failure
        if cell.task is not task:
            return False  # this life has ended: the cell's state is the next life's
        envelope = cast("Envelope", cell.envelope)
        if error is None:
            if cell.reply is not None:
                cell.reply.try_set(result)
        elif cell.state is not RUNNING and is_a(error, asyncio.CancelledError):
            cell.cut_off()  # its actor stops, and has waited long enough
            return False
        cell.handler = None
        account(cell, envelope, cell.began, error)
        if error is not None:
            cell.handler_failed(envelope, error)
        if task.cancelling():
            break  # whoever cancels all tasks waits for their end: go on in another one
        following = work(cell, cell.left, until) if cell.system.dispatcher is None else None
        if following is None:
            break
        if task.cancelling():  # between the two handlers, so it is not meant for the next one
            cell.task = None
            begin(cell, following)
            return False
        handler, error = following, None
        cell.handler = handler
    # A turn in which a handler has waited, or that is part of an actor's own, is not one of a task.
    if turns.number == number and (standby is None or not standby.driven):
        turns.took(cell.began - until + cell.turn_ns)
    if cell.task is not task:
        return False
    cell.task = None
    cell.go_on()
    return cell.state is RUNNING and not task.cancelling()
