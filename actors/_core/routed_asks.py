"""Asks through a router: to the worker that a policy picks, or to all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from actors._checks import timeout_of
from actors._core.context import origin
from actors._core.expiry import expire
from actors._core.mailbox import ControlMessage
from actors._core.unheard import refuse
from actors._errors import MailboxFull
from actors._future import Future

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._ref import ActorRef


def ask_one(
    pick: Callable[[Any], ActorRef[Any]], message: Any, timeout: float | None, *, urgent: bool
) -> Future[Any]:
    """Ask the worker that ``pick`` returns, or another one if that one stops first.

    Args:
        pick: chooses a living worker for the message, or raises ActorDeadError.
        message: what to send.
        timeout: seconds until the ask is given up; None waits without a limit.
        urgent: as for ``ActorRef.tell``.
    """
    timeout_of("timeout", timeout)
    future: Future[Any] = Future()
    cell: Cell | None = None
    try:
        while cell is None:  # the worker stopped in between, without the message
            cell = _put(pick(message), message, future, urgent)
    except (ActorDeadError, MailboxFull) as error:
        if future.target is None:
            future.try_fail(error)  # by the router: there is no worker
        else:
            refuse(future.target, future, error)
    # Not ``future.target``: a worker in another thread may have taken the reply over already.
    if cell is not None and timeout is not None and not future.done():
        expire(cell.system, future, timeout)
    return future


def _put(ref: ActorRef[Any], message: Any, future: Future[Any], urgent: bool) -> Cell | None:
    """Put an ask into a worker's mailbox; return the worker's cell, or None if it has stopped."""
    # Like ActorRef.ask, but it tells a dead actor's refusal from an ask that the actor dropped.
    cell = ref._cell
    envelope = (message, future, cell.clock(), *origin())
    future.target = cell
    push = cell.mailbox.push
    if urgent or isinstance(message, ControlMessage):
        push = cell.mailbox.push_priority
    try:
        push(envelope)
    except ActorDeadError:
        return None
    hooks = cell.mailbox.hooks
    if hooks is not None:
        hooks.on_asked(cell, future)
    return cell


def ask_all(
    refs: tuple[ActorRef[Any], ...],
    message: Any,
    timeout: float | None,
    *,
    urgent: bool,
    dead: Callable[[], ActorDeadError],
) -> Future[Any]:
    """Ask all workers; the reply is the list of theirs, or the error of the first in their order that has failed.

    Args:
        refs: the workers.
        message: what to send.
        timeout: seconds until each ask is given up; None waits without a limit.
        urgent: as for ``ActorRef.tell``.
        dead: makes the error for no workers at all.
    """
    if refs:
        return joined([ref.ask(message, block=False, timeout=timeout, urgent=urgent) for ref in refs])
    future: Future[Any] = Future()
    future.try_fail(dead())
    return future


def joined(futures: list[Future[Any]]) -> Future[Any]:
    """Make one future of the list of all values."""
    if futures:
        return futures[0].join(*futures[1:])
    nothing: Future[Any] = Future()
    nothing.try_set([])
    return nothing
