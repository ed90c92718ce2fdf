"""Failures: the supervisor's policy decides what becomes of an actor whose code raised.

:func:`fail` is the one entrance. It decides and reports at once. The rest takes time (ending this
life, the pause, the next life; with ``ONE_FOR_ALL`` and ``REST_FOR_ONE`` the siblings' too) and is
done by one task, the cell's ``transition``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from actors._core.crash_reports import report
from actors._core.lifecycle import RESTARTING, RUNNING, STARTING, logger, pykka_logger, rebirth
from actors._core.termination import bury, depart, end_life, run_safely
from actors._errors import Escalated
from actors._events import ActorRestarting
from actors._policy import STOP_ON_FAILURE, Directive, RestartHistory, Strategy

if TYPE_CHECKING:
    from actors._core.cell import Cell


def fail(cell: Cell, error: BaseException, where: str, *, resumable: bool = False) -> None:
    """Decide on a failure of this life and begin to carry the decision out.

    Args:
        cell: the actor that failed.
        error: the exception.
        where: the hook that raised it, ``on_receive`` or ``task``.
        resumable: whether the actor can go on with the next message.
    """
    if cell.state not in (STARTING, RUNNING):
        report(cell, error, where)
        return
    policy = cell.supervision
    if not isinstance(error, Exception) and policy is STOP_ON_FAILURE:
        _exit(cell, error)
        return
    directive = _decide(cell, error)
    if directive is Directive.RESUME:
        if resumable:
            report(cell, error, where, directive.value)
            cell.failed_message = None
            return
        directive = Directive.RESTART
    history = _history_of(cell)
    failures = history.record(cell.loop.time(), policy)
    if directive is Directive.RESTART and history.exceeded(policy):
        directive = Directive.ESCALATE
    report(cell, error, where, directive.value, failures)
    _suspend(cell)
    if directive is Directive.RESTART:
        pause = policy.backoff.delay(history.in_a_row, cell.system.rng)
        work = _restart(cell, error, pause, failures)
    else:
        work = _give_up(cell, error, failures, escalate=directive is Directive.ESCALATE)
    cell.transition = cell.loop.create_task(work, context=cell.context)


def _exit(cell: Cell, error: BaseException) -> None:
    """Treat SystemExit and the like in an actor that nobody supervises as pykka does."""
    pykka_logger.debug(f"{error!r} in {cell.ref}. Stopping all actors.")
    cell.error = error
    cell.request_stop()
    cell.system.stop_all_soon()


def _decide(cell: Cell, error: BaseException) -> Directive:
    try:
        directive = cell.supervision.decide(error)
        if not isinstance(directive, Directive):
            raise TypeError(f"decide() answered {directive!r}")
        return directive
    except Exception as failure:
        report(cell, failure, "supervision")
        return Directive.ESCALATE


def _history_of(cell: Cell) -> RestartHistory:
    """The actor's own history of failures, or the one that it shares with its siblings."""
    if cell.supervision.strategy is Strategy.ONE_FOR_ONE:
        if cell.history is None:
            cell.history = RestartHistory()
        return cell.history
    parent = cell.parent or cell.system
    if parent.children_history is None:
        parent.children_history = RestartHistory()
    return parent.children_history


def _suspend(cell: Cell) -> None:
    """End message handling of this life at once; the mailbox stays."""
    cell.state = RESTARTING
    task, cell.task = cell.task, None
    if task is not None:
        task.cancel()
    cell.cut_off()


async def _give_up(cell: Cell, error: BaseException, failures: int, *, escalate: bool) -> None:
    """Stop the actor for good because of a failure."""
    cell.error = error
    left = depart(cell)
    await end_life(cell, "on_failure", type(error), error, error.__traceback__)
    bury(cell, left)
    if escalate:
        _escalate(cell, error, failures)


def _escalate(cell: Cell, error: BaseException, failures: int) -> None:
    escalated = Escalated(cell.path, f"gave up after {failures} failures: {error!r}")
    escalated.__cause__ = error
    if cell.parent is not None:
        cell.parent.fail(escalated, "child")
    else:
        cell.system.escalated(escalated)


async def _restart(cell: Cell, error: BaseException, pause: float, failures: int) -> None:
    """End the lives that the strategy names, youngest first; after the pause begin the next ones."""
    group = _suspend_group(cell)
    for each in reversed(group):
        if each is cell:
            await end_life(cell, "on_failure", type(error), error, error.__traceback__)
            await run_safely(cell, "before_restart", error)
        else:
            await end_life(each, "on_stop")
    cell.failed_message = None
    _announce_restart(cell, pause, failures)
    await asyncio.sleep(pause)
    cell.transition = None
    for each in group:
        if each.state is RESTARTING:
            await rebirth(each, error)


def _suspend_group(cell: Cell) -> list[Cell]:
    """Suspend the siblings that are restarted together with the cell; return them all, oldest first."""
    strategy = cell.supervision.strategy
    if strategy is Strategy.ONE_FOR_ONE:
        return [cell]
    siblings = list(cell.siblings.values())
    if strategy is Strategy.REST_FOR_ONE:
        siblings = siblings[siblings.index(cell) :]
    group: list[Cell] = []
    for sibling in siblings:
        if sibling is cell:
            group.append(sibling)
        elif sibling.state in (STARTING, RUNNING):
            _suspend(sibling)
            group.append(sibling)
    return group


def _announce_restart(cell: Cell, pause: float, failures: int) -> None:
    allowed = cell.supervision.intensity
    logger.warning(
        "%s: restart %d of %d within %g s, in %.3f s",
        cell.path,
        failures,
        allowed.restarts,
        allowed.window,
        pause,
    )
    events = cell.system.events
    if events.wants(ActorRestarting):
        events.publish(ActorRestarting(cell.path, pause, failures, allowed.restarts))
