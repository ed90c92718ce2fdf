"""A circuit breaker: after failures in a row, calls fail at once for a while instead of adding to the load.

Closed: calls go through, and failures in a row are counted. Open: calls fail at once. After a pause the next call is
a trial (half-open): its success closes the circuit, its failure opens it for a longer pause.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from actors._checks import count, one_of
from actors._core.interruption import failed_itself
from actors._core.log_safely import log_safely
from actors._errors import ActorError
from actors._policy import Backoff

if TYPE_CHECKING:
    from actors._messages import Request
    from actors._ref import ActorRef
    from actors._types import Answers, AnswersLater, Takes, To

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R")

_logger = logging.getLogger("actors")

State = Literal["closed", "open", "half-open"]


class CircuitOpen(ActorError):
    """The breaker refused a call; ``retry_after`` is the number of seconds to wait before another one.

    That is the rest of the pause; while a trial is under way, whose end nobody knows, it is the first pause.
    """

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the circuit is open: try again in {retry_after:.3f} s")
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.retry_after,), self.__dict__


def any_error(_error: BaseException) -> bool:
    """The default of ``is_failure``: each exception counts."""
    return True


class CircuitBreaker:
    """Guards calls to something that can be down. Use one per thing, on one event loop.

    Args:
        failures: failures in a row that open the circuit, 1 or more.
        pause: how long it stays open: ``first`` seconds, then longer after each trial that fails.
        is_failure: tells which exceptions count; others pass through and count as success.
        clock: seconds; None takes the running loop's time.
        rng: random numbers, for the jitter of the pause.
        on_change: called with the new state; its errors are logged.

    Raises:
        ValueError: ``failures`` is below 1.
        TypeError: ``failures`` is no whole number, or ``pause`` no :class:`Backoff`.
    """

    def __init__(
        self,
        *,
        failures: int = 5,
        pause: Backoff | None = None,
        is_failure: Callable[[Exception], bool] = any_error,
        clock: Callable[[], float] | None = None,
        rng: random.Random | None = None,
        on_change: Callable[[State], object] | None = None,
    ) -> None:
        count("failures", failures, 1)
        if pause is not None:
            one_of("pause", pause, Backoff)
        self.failures = failures
        self.pause = pause or Backoff(first=1.0, most=60.0)
        self._is_failure, self._clock, self._on_change = is_failure, clock, on_change
        self._rng = rng or random.Random()
        self._state: State = "closed"
        self._in_a_row = self._opened = 0
        self._until = self._paused = 0.0
        self._era = 0
        """Grows with each change of state: a call that began in an earlier one says nothing about this one."""

    @property
    def state(self) -> State:
        """The state now; an open circuit whose pause is over is still open until the next call."""
        return self._state

    @overload
    async def ask(self, ref: ActorRef[Any], message: Request[R], *, timeout: float | None = None) -> R: ...
    @overload
    async def ask(self, ref: To[AnswersLater[M, R]], message: M, *, timeout: float | None = None) -> R: ...
    @overload
    async def ask(self, ref: To[Answers[M, R]], message: M, *, timeout: float | None = None) -> R: ...
    @overload
    async def ask(self, ref: To[Takes[M]], message: M, *, timeout: float | None = None) -> Any: ...
    async def ask(self, ref: Any, message: Any, *, timeout: float | None = None) -> Any:
        """Ask an actor through the breaker.

        Args:
            ref: the actor.
            message: what to send.
            timeout: as for :meth:`ActorRef.ask`; its end is a failure.

        Raises:
            CircuitOpen: the breaker is open; nothing was sent.
        """

        async def asked() -> Any:
            return await ref.ask(message, block=False, timeout=timeout)

        return await self.call(asked)

    async def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call a function and await its result, unless the circuit is open.

        A call that is cancelled counts neither as success nor as failure.

        Raises:
            CircuitOpen: the breaker is open; the function was not called.
        """
        era = self._admit()
        try:
            value = await work()
        except Exception as error:
            failed = True  # also if ``is_failure`` raises: a trial that tells nothing would last for ever
            try:
                failed = self._is_failure(error)
            finally:
                self._count(era, failed)
            raise
        except BaseException:
            if self._era == era and self._state == "half-open":
                self._change("open")  # the trial has not told anything: the next call is another one
            raise
        self._count(era, False)
        return value

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()

    def _admit(self) -> int:
        if self._state == "half-open":
            raise CircuitOpen(self.pause.first)  # its trial is under way, for nobody knows how long
        if self._state == "open":
            now = self._now()
            # A clock that was set back since the failure: the pause begins again, at the first call that notices.
            self._until = min(self._until, now + self._paused)
            left = self._until - now
            if left > 0:
                raise CircuitOpen(left)
            self._change("half-open")
        return self._era

    def _count(self, era: int, failed: bool) -> None:
        if era != self._era:
            return
        if not failed:
            self._in_a_row = 0
            if self._state == "half-open":
                self._opened = 0
                self._change("closed")
            return
        self._in_a_row += 1
        if self._state == "half-open" or self._in_a_row >= self.failures:
            self._opened += 1
            self._in_a_row = 0
            self._paused = self.pause.delay(self._opened, self._rng)
            self._until = self._now() + self._paused
            self._change("open")

    def _change(self, state: State) -> None:
        self._state = state
        self._era += 1
        if self._on_change is None:
            return
        try:
            self._on_change(state)
        except BaseException as error:  # the calls that it guards must not suffer
            if failed_itself(error):
                log_safely(_logger.exception, "on_change(%r) of a circuit breaker failed", state)
