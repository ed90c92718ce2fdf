"""Asks that are repeated, a bounded number of times, with growing pauses."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pykka import Timeout

from actors._checks import count, one_of, seconds, timeout_of
from actors._errors import MailboxFull
from actors._policy import Backoff

if TYPE_CHECKING:
    from actors._messages import Request
    from actors._ref import ActorRef
    from actors._types import Answers, AnswersLater, Takes, To

M = TypeVar("M")
R = TypeVar("R")

RETRIED: tuple[type[BaseException], ...] = (MailboxFull, Timeout)
"""Errors after which an ask is repeated by default. A dead actor stays dead, so its error is none of them."""

PAUSES = Backoff(first=0.1, most=5.0)

_chance = random.Random()


@overload
async def ask_with_retry(
    ref: ActorRef[Any],
    message: Request[R],
    *,
    attempts: int = 3,
    timeout: float = 5.0,
    within: float | None = None,
    pauses: Backoff = ...,
    errors: tuple[type[BaseException], ...] = ...,
    rng: random.Random | None = None,
) -> R: ...
@overload
async def ask_with_retry(
    ref: To[AnswersLater[M, R]],
    message: M,
    *,
    attempts: int = 3,
    timeout: float = 5.0,
    within: float | None = None,
    pauses: Backoff = ...,
    errors: tuple[type[BaseException], ...] = ...,
    rng: random.Random | None = None,
) -> R: ...
@overload
async def ask_with_retry(
    ref: To[Answers[M, R]],
    message: M,
    *,
    attempts: int = 3,
    timeout: float = 5.0,
    within: float | None = None,
    pauses: Backoff = ...,
    errors: tuple[type[BaseException], ...] = ...,
    rng: random.Random | None = None,
) -> R: ...
@overload
async def ask_with_retry(
    ref: To[Takes[M]],
    message: M,
    *,
    attempts: int = 3,
    timeout: float = 5.0,
    within: float | None = None,
    pauses: Backoff = ...,
    errors: tuple[type[BaseException], ...] = ...,
    rng: random.Random | None = None,
) -> Any: ...
async def ask_with_retry(
    ref: Any,
    message: Any,
    *,
    attempts: int = 3,
    timeout: float = 5.0,
    within: float | None = None,
    pauses: Backoff = PAUSES,
    errors: tuple[type[BaseException], ...] = RETRIED,
    rng: random.Random | None = None,
) -> Any:
    """Ask an actor; after certain errors wait and ask again.

    An ask that has timed out may have been handled, so repeat only what may happen twice. To try a virtual clock, run
    it on a simulation's loop: all waiting is asyncio's.

    Args:
        ref: the actor.
        message: what to send.
        attempts: asks at most, 1 or more.
        timeout: seconds for each ask, above 0.
        within: seconds for all of it: no attempt begins after that; None sets no limit beside ``attempts``.
        pauses: the pauses between attempts.
        errors: the exceptions after which to ask again; others are raised at once.
        rng: random numbers, for the jitter of the pauses.

    Raises:
        ValueError: ``attempts`` or ``timeout`` is too small, or ``within`` is NaN.
        TypeError: one of them is no number, or ``errors`` no tuple.
        Exception: the last attempt's, with a note that says how many there were.
    """
    count("attempts", attempts, 1)
    seconds("timeout", timeout, above_zero=True)
    timeout_of("within", within)
    one_of("errors", errors, tuple)  # a list would fail where an error is caught, in its place
    now = asyncio.get_running_loop().time
    end = None if within is None else now() + within
    for attempt in range(1, attempts + 1):
        limit = timeout if end is None else min(timeout, max(end - now(), 0.0))
        try:
            return await ref.ask(message, block=False, timeout=limit)
        except errors as error:
            pause = pauses.delay(attempt, rng or _chance)
            if attempt < attempts and (end is None or now() + pause < end):
                await asyncio.sleep(pause)
                if end is None or now() < end:  # a busy loop ends the pause late
                    continue
            error.add_note(f"after {attempt} of {attempts} attempts")
            raise
    raise AssertionError("unreachable")
