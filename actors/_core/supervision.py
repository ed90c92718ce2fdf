"""Failure: what becomes of an actor whose code raised, as its supervisor's policy says.

``fail`` is the one entrance. The decision and the report are made at once; what takes time (ending
this life, the pause, the next life, with ``ONE_FOR_ALL`` and ``REST_FOR_ONE`` the siblings') is done
by one task, the cell's lifecycle.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from actors._core.lifecycle import (
    RESTARTING,
    RUNNING,
    STARTING,
    Life,
    ended_from_outside,
    logger,
    pykka_logger,
)
from actors._errors import Escalated
from actors._events import ActorFailed, ActorRestarting
from actors._policy import STOP_ON_FAILURE, Directive, Strategy

if TYPE_CHECKING:
    pass


class Supervised(Life):
    """A life that a supervisor watches over."""

    __slots__ = ()

    def fail(self, error: BaseException, where: str, *, resumable: bool = False) -> None:
        """Something of this life failed: the supervisor's policy says what comes next."""
        if self.state not in (STARTING, RUNNING):
            self.hook_failed(where, error)
            return
        if not isinstance(error, Exception) and self.supervision is STOP_ON_FAILURE:
            self._exit(error)
            return
        directive = self._decide(error)
        if directive is Directive.RESUME:
            if resumable:
                self._report(error, where, directive, 0)
                self.failed_message = None
                return
            directive = Directive.RESTART
        history = self.system.history_of(self)  # type: ignore[arg-type]
        failures = history.record(self.loop.time(), self.supervision)
        if directive is Directive.RESTART and history.exceeded(self.supervision):
            directive = Directive.ESCALATE
        self._report(error, where, directive, failures)
        self.suspend()
        pause = self.supervision.backoff.delay(history.in_a_row, self.system.rng)
        self._lifecycle = self.loop.create_task(
            self._recover(error, directive, pause, failures), context=self.context
        )

    def suspend(self) -> None:
        """End message handling of this life at once; the mailbox stays."""
        self.state = RESTARTING
        task, self.task = self.task, None
        if task is not None:
            task.cancel()
        self.cut_off()

    def _exit(self, error: BaseException) -> None:
        """pykka's answer to SystemExit and the like in an actor that nobody supervises."""
        pykka_logger.debug(f"{error!r} in {self.ref}. Stopping all actors.")
        self.error = error
        self.request_stop()
        self.system.stop_all_soon()

    def _decide(self, error: BaseException) -> Directive:
        try:
            directive = self.supervision.decide(error)
            if not isinstance(directive, Directive):
                raise TypeError(f"decide() answered {directive!r}")
            return directive
        except Exception as failure:
            self.hook_failed("supervision", failure)
            return Directive.ESCALATE

    def _report(self, error: BaseException, where: str, directive: Directive, failures: int) -> None:
        logger.error(
            "Unhandled exception in %s:",
            self.ref,
            exc_info=(type(error), error, error.__traceback__),
        )
        events = self.system.events
        if events.wants(ActorFailed):
            message = self.failed_message
            events.publish(
                ActorFailed(
                    self.path,
                    self.actor_class.__name__,
                    where,
                    error,
                    directive.value,
                    failures,
                    None if message is None else type(message).__name__,
                    len(self.mailbox),
                    self.recent_headers(),
                )
            )

    def hook_failed(self, where: str, error: BaseException) -> None:
        """A failure beside the point: the actor is between lives or on its way out anyway."""
        logger.error(
            "Unhandled exception in %s:",
            self.ref,
            exc_info=(type(error), error, error.__traceback__),
            extra={"where": where},
        )
        events = self.system.events
        if events.wants(ActorFailed):
            events.publish(
                ActorFailed(
                    self.path,
                    self.actor_class.__name__,
                    where,
                    error,
                    "ignored",
                    0,
                    None,
                    len(self.mailbox),
                    self.recent_headers(),
                )
            )

    async def _recover(self, error: BaseException, directive: Directive, pause: float, failures: int) -> None:
        if directive is not Directive.RESTART:
            self.error = error
            left = self.depart()
            await self.end_life("on_failure", type(error), error, error.__traceback__)
            self.bury(left)
            if directive is Directive.ESCALATE:
                self._escalate(error, failures)
            return
        group = self._suspend_group()
        for cell in reversed(group):
            if cell is self:
                await self.end_life("on_failure", type(error), error, error.__traceback__)
                await self.safely("before_restart", error)
            else:
                await cell.end_life("on_stop")
        self.failed_message = None
        self._announce_restart(pause, failures)
        await asyncio.sleep(pause)
        self._lifecycle = None
        for cell in group:
            if cell.state is RESTARTING:
                await cell.rebirth(error)

    def _suspend_group(self) -> list[Supervised]:
        strategy = self.supervision.strategy
        siblings = self.system.siblings_of(self)  # type: ignore[arg-type]
        if strategy is Strategy.ONE_FOR_ONE:
            return [self]
        if strategy is Strategy.REST_FOR_ONE:
            siblings = siblings[siblings.index(self) :]  # type: ignore[arg-type]
        group: list[Supervised] = []
        for cell in siblings:
            if cell is self:
                group.append(cell)
            elif cell.state in (STARTING, RUNNING):
                cell.suspend()
                group.append(cell)
        return group

    def _announce_restart(self, pause: float, failures: int) -> None:
        allowed = self.supervision.intensity
        logger.warning(
            "%s: restart %d of %d within %g s, in %.3f s",
            self.path,
            failures,
            allowed.restarts,
            allowed.window,
            pause,
        )
        events = self.system.events
        if events.wants(ActorRestarting):
            events.publish(ActorRestarting(self.path, pause, failures, allowed.restarts))

    async def rebirth(self, error: BaseException) -> None:
        """The next life: a new instance behind the same ref and mailbox."""
        try:
            self.create()
            self.restarts += 1
            await self.call("after_restart", error)
        except BaseException as again:
            if ended_from_outside(again):
                raise
            if self.state is RESTARTING:
                self.state = STARTING
                self.fail(again, "restart")
            return
        self.begin()

    def _escalate(self, error: BaseException, failures: int) -> None:
        escalated = Escalated(self.path, f"gave up after {failures} failures: {error!r}")
        escalated.__cause__ = error
        if self.parent is not None:
            self.parent.fail(escalated, "child")
        else:
            self.system.escalated(escalated)
