"""Failures: the supervisor's policy decides what becomes of an actor whose code raised.

:func:`fail` is the one entrance. It decides and reports at once. The rest takes time (ending this
life, the pause, the next life; with ``ONE_FOR_ALL`` and ``REST_FOR_ONE`` the siblings' too) and is
done by a procedure: a :class:`Restart`, or :func:`_give_up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING, Any

from actors._checks import one_of, seconds
from actors._core.closing import stops_next
from actors._core.crash_reports import report
from actors._core.error_fields import exc_info_of, is_a
from actors._core.error_text import repr_of
from actors._core.interruption import failed_itself
from actors._core.lifecycle import (
    NEW,
    RESTARTING,
    RUNNING,
    STARTING,
    STOPPING,
    hook_timeout,
    logger,
    pykka_logger,
    rebirth,
)
from actors._core.log_safely import log_safely
from actors._core.procedure import Procedure
from actors._core.termination import break_off, bury, depart, end_life
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
        if cell.early is None and _is_being_made(cell):
            cell.early = error, where
        else:
            report(cell, error, where)
        return
    work: Any = None
    directive: Directive | None = None
    restart: Restart | None = None
    try:
        policy = cell.supervision
        if policy is STOP_ON_FAILURE and _exits(error, where):
            _exit(cell, error)
            return
        directive, failures, pause = _decide(cell, error, resumable=resumable)
        report(cell, error, where, directive.value, failures)
        if directive is Directive.RESUME:
            cell.failed_message = None
            return
        if directive is Directive.RESTART:
            restart = Restart(cell, error, pause, failures)
            work, broken = restart.run(), restart.break_off
        else:
            broken = functools.partial(break_off, cell, "on_failure")
            handler = suspend(cell, STOPPING)
            cell.error = error  # who waits for the start, or asks, from now on hears why
            work = _give_up(cell, handler, error, failures, escalate=directive is Directive.ESCALATE)
        Procedure(work, cell.loop, cell.context, broken)
    except BaseException as interrupt:  # Ctrl-C; or a defect of the runtime
        if directive is Directive.RESUME or (directive is None and cell.state not in (STARTING, RUNNING)):
            raise  # it goes on, or stops already
        if work is not None:
            work.close()  # its procedure, which may be there already, does nothing then
        if directive is not Directive.RESTART:
            cell.error = error
        if restart is not None:
            restart.break_off(interrupt)
        else:
            break_off(cell, "on_failure", interrupt)
        if not is_a(interrupt, Exception):
            raise  # what is the program's leaves the loop; a defect is reported, and this is no code of the one that calls


def _is_being_made(cell: Cell) -> bool:
    """Tell whether the constructor of a life that will begin is under way, or has just ended in another thread."""
    if cell.state is NEW:
        return cell.siblings.get(cell.name) is cell  # else it was constructed by hand
    return cell.state is RESTARTING and cell.restart is None


def _exits(error: BaseException, where: str) -> bool:
    """Tell whether a failure of an actor that nobody supervises stops all actors.

    As in pykka: each that is no ``Exception``. Of a task, which pykka does not know, only those that asyncio, too, takes for the
    program's end; another one, such as a panic of a library in Rust, ends this actor as any failure does.
    """
    if is_a(error, Exception):
        return False
    return where != "task" or is_a(error, (SystemExit, KeyboardInterrupt))


def _exit(cell: Cell, error: BaseException) -> None:
    """Treat SystemExit and the like in an actor that nobody supervises as pykka does."""
    log_safely(pykka_logger.debug, f"{repr_of(error)} in {cell.ref}. Stopping all actors.")
    cell.error = error
    cell.request_stop()
    cell.system.stop_all_soon()


def _decide(cell: Cell, error: BaseException, *, resumable: bool) -> tuple[Directive, int, float]:
    """Ask the policy, which is code of others, what to do; the failure escalates if it fails itself.

    Returns:
        the directive, the number of failures in the window, and the pause before a restart.
    """
    policy, failures = cell.supervision, 1
    try:
        directive = policy.decide(error)
        one_of("what decide() returns", directive, Directive)
        if directive is Directive.RESUME and resumable:
            return directive, 0, 0.0
        history, now = _history_of(cell), cell.loop.time()
        if directive not in (Directive.RESUME, Directive.RESTART):
            # No restart: it does not use up the siblings' allowance.
            return directive, history.count(now, policy) + 1, 0.0
        failures = history.record(now, policy)
        if history.exceeded(policy):
            return Directive.ESCALATE, failures, 0.0
        pause = policy.backoff.delay(history.in_a_row, cell.system.rng)
        seconds("the pause before a restart", pause)
        return Directive.RESTART, failures, pause
    except BaseException as failure:
        if failed_itself(failure):
            report(cell, failure, "supervision")
        return Directive.ESCALATE, failures, 0.0


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


def suspend(cell: Cell, state: str) -> asyncio.Task[None] | None:
    """End message handling of this life at once; the mailbox stays.

    Args:
        cell: the actor's.
        state: the state from now on: RESTARTING or STOPPING.

    Returns:
        the task of the handler that was under way, which has been cancelled; None if there was none.
    """
    under_way = cell.state is STARTING or cell.handler is not None
    cell.state = state
    task = cell.task if under_way else None
    cell.task = None
    try:
        if task is not None:
            task.cancel()
        cell.cut_off()
    except BaseException:  # Ctrl-C: whoever ends this life now waits for the task
        cell.task = task
        raise
    return task


async def _give_up(
    cell: Cell, handler: asyncio.Task[None] | None, error: BaseException, failures: int, *, escalate: bool
) -> None:
    """Stop the actor for good because of a failure."""
    depart(cell)
    await cell.end_handler(handler, 0.0)
    await end_life(cell, ("on_failure", exc_info_of(error)))
    bury(cell)
    if escalate:
        _escalate(cell, error, failures)


def _escalate(cell: Cell, error: BaseException, failures: int) -> None:
    escalated = Escalated(cell.path, f"gave up after {failures} failures: {repr_of(error)}")
    escalated.__cause__ = error
    if cell.parent is not None:
        cell.parent.fail(escalated, "child")
    else:
        cell.system.escalated(escalated)


class Restart:
    """A restart of one actor, or of several together; it suspends them when it is made.

    The members' ``restart`` refers to it until their next life begins or they stop. A member that is to stop
    leaves: at once during the pause, after its last hook before that. The others are restarted all the same.

    Args:
        cell: the actor that failed.
        error: its failure.
        pause: seconds between the last hook of the old lives and the next lives.
        failures: the number of failures in the window of the intensity.
    """

    __slots__ = ("_cell", "_error", "_failures", "_members", "_pause", "ending")

    def __init__(self, cell: Cell, error: BaseException, pause: float, failures: int) -> None:
        self._cell, self._error, self._pause, self._failures = cell, error, pause, failures
        self._members = [cell]
        self.ending = {cell: suspend(cell, RESTARTING)}
        """The members whose old life has not ended, with the task of their last handler."""
        cell.restart = self

    def _gather(self) -> None:
        """Suspend the siblings that are restarted too; one that has failed at the same time is on its own."""
        strategy = self._cell.supervision.strategy
        if strategy is Strategy.ONE_FOR_ONE:
            return
        siblings = list(self._cell.siblings.values())
        if strategy is Strategy.REST_FOR_ONE:
            siblings = siblings[siblings.index(self._cell) :]
        self._members = []  # oldest first
        for each in siblings:
            if each.state in (STARTING, RUNNING):
                self.ending[each] = suspend(each, RESTARTING)
            elif each is not self._cell and not between_lives(each):
                continue
            each.restart = self
            self._members.append(each)

    async def run(self) -> None:
        """End the old lives, youngest first; after the pause begin the next ones, oldest first."""
        self._gather()
        for each in reversed(self._members):
            if each in self.ending:
                await self._end(each)
        self._cell.failed_message = None
        for each in self._members:
            self.stop_asked(each)
        if any(map(self._waits, self._members)):
            self._announce()
            await asyncio.sleep(self._pause)
        for each in self._members:
            if self._waits(each):
                rebirth(each, self._error)
                if len(self._members) > 1:
                    await _until_started(each)

    def _waits(self, cell: Cell) -> bool:
        return cell.state is RESTARTING and cell.restart is self

    def stop_asked(self, cell: Cell) -> None:
        """Stop a member between its lives that was asked to, and would handle nothing before: no next life begins for that."""
        if self._waits(cell) and cell not in self.ending and stops_next(cell.mailbox):
            cell.request_stop()

    async def _end(self, cell: Cell) -> None:
        await cell.end_handler(self.ending[cell], 0.0)
        error = self._error
        if cell is self._cell:
            await end_life(
                cell,
                ("on_failure", exc_info_of(error)),
                ("before_restart", (error,)),
            )
        elif cell.started:
            await end_life(cell, ("on_stop", ()))
        else:
            await end_life(cell)
        if cell.state is STOPPING:  # it was asked to stop meanwhile
            depart(cell)  # unless it has
            bury(cell)
        del self.ending[cell]

    def break_off(self, error: BaseException) -> None:
        """End the members that no next life has begun for: Ctrl-C, or a defect, has hit the restart itself."""
        for each in dict.fromkeys((self._cell, *self._members, *self.ending)):
            if each in self.ending or (each.state is RESTARTING and each.restart in (self, None)):
                break_off(each, "restart", error)

    def _announce(self) -> None:
        cell, allowed = self._cell, self._cell.supervision.intensity
        log_safely(
            logger.warning,
            "%s: restart %d of %d within %g s, in %.3f s",
            cell.path,
            self._failures,
            allowed.restarts,
            allowed.window,
            self._pause,
        )
        events = cell.system.events
        if events.wants(ActorRestarting):
            events.publish(ActorRestarting(cell.path, self._pause, self._failures, allowed.restarts))


def between_lives(cell: Cell) -> bool:
    """Tell whether a restart has ended this actor's old life, with its last hooks, but not begun the next one."""
    restart = cell.restart  # read once: in another thread this may be while the next life begins
    return cell.state is RESTARTING and restart is not None and cell not in restart.ending


class _Gate:
    """Waits in a procedure for an actor's start; stands where ``await ref`` has its future."""

    def __init__(self, cell: Cell) -> None:
        self.opened: asyncio.Future[None] = cell.loop.create_future()

    def try_set(self, _: Any) -> None:
        """The actor runs."""
        if not self.opened.done():
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self.opened.set_result(None)

    try_fail = try_set


async def _until_started(cell: Cell) -> None:
    """Wait until an actor runs, as the next one may rely on it; but not for ever."""
    if cell.state is STARTING:
        gate: Any = _Gate(cell)
        cell.start_waiters = [*(cell.start_waiters or ()), gate]
        await asyncio.wait([gate.opened], timeout=hook_timeout(cell))
        if cell.start_waiters and gate in cell.start_waiters:
            cell.start_waiters.remove(gate)
