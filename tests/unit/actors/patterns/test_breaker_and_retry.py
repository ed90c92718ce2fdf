"""The circuit breaker and repeated asks, in virtual time."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from actors import Actor, ActorDeadError, ActorSystem, Backoff, MailboxFull, Timeout
from actors.patterns import CircuitBreaker, CircuitOpen, ask_with_retry
from tests.unit.actors.virtual_time import virtual_system, virtual_time

DOWN = OSError("down")
STEADY = Backoff(first=1.0, factor=2.0, most=3.0, jitter=0.0)


def failing(error: BaseException = DOWN) -> Callable[[], Awaitable[Any]]:
    async def work() -> Any:
        raise error

    return work


async def fine() -> str:
    return "fine"


async def fails(breaker: CircuitBreaker) -> None:
    with pytest.raises(OSError):
        await breaker.call(failing())


@virtual_time
async def test_failures_in_a_row_open_the_circuit_and_a_trial_closes_it() -> None:
    changes: list[str] = []
    breaker = CircuitBreaker(failures=2, pause=STEADY, on_change=changes.append)
    await fails(breaker)
    assert await breaker.call(fine) == "fine"
    await fails(breaker)
    assert breaker.state == "closed", "a success in between starts the count over"
    await fails(breaker)
    assert breaker.state == "open"
    with pytest.raises(CircuitOpen, match=r"try again in 1\.000 s") as caught:
        await breaker.call(failing(AssertionError("called")))
    assert caught.value.retry_after == 1.0
    await asyncio.sleep(1.0)
    assert await breaker.call(fine) == "fine"
    assert changes == ["open", "half-open", "closed"]


@virtual_time
async def test_a_failed_trial_pauses_longer_up_to_the_most() -> None:
    breaker = CircuitBreaker(failures=1, pause=STEADY)
    for pause in (1.0, 2.0, 3.0, 3.0):
        await fails(breaker)
        with pytest.raises(CircuitOpen) as caught:
            await breaker.call(fine)
        assert caught.value.retry_after == pause
        await asyncio.sleep(pause)
    await breaker.call(fine)
    await fails(breaker)
    with pytest.raises(CircuitOpen) as caught:
        await breaker.call(fine)
    assert caught.value.retry_after == 1.0, "a success starts the pauses over"


@virtual_time
async def test_one_trial_at_a_time_and_a_cancelled_one_says_nothing() -> None:
    breaker = CircuitBreaker(failures=1, pause=STEADY)
    await fails(breaker)
    await asyncio.sleep(1.0)
    trial = asyncio.create_task(breaker.call(asyncio.Event().wait))
    await asyncio.sleep(0)
    with pytest.raises(CircuitOpen) as caught:
        await breaker.call(fine)
    assert breaker.state == "half-open" and caught.value.retry_after == STEADY.first
    trial.cancel()
    await asyncio.sleep(0)
    assert breaker.state == "open"
    assert await breaker.call(fine) == "fine"


@virtual_time
async def test_the_outcome_of_an_earlier_call_does_not_count() -> None:
    breaker = CircuitBreaker(failures=1, pause=STEADY)
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def slow() -> str:
        return await answer

    early = asyncio.create_task(breaker.call(slow))
    await asyncio.sleep(0)
    await fails(breaker)
    await asyncio.sleep(1.0)
    await breaker.call(fine)
    assert breaker.state == "closed"
    answer.set_exception(OSError("late"))
    with pytest.raises(OSError, match="late"):
        await early
    assert breaker.state == "closed", "it says nothing about the time after the trial"


@virtual_time
async def test_only_certain_errors_are_failures_and_time_and_chance_are_injected() -> None:
    now = [0.0]
    breaker = CircuitBreaker(
        failures=1,
        pause=Backoff(first=10.0, jitter=0.5),
        is_failure=lambda error: isinstance(error, OSError),
        clock=lambda: now[0],
        rng=random.Random(1),
    )
    with pytest.raises(KeyError):
        await breaker.call(failing(KeyError("mine")))
    assert breaker.state == "closed"
    await fails(breaker)
    expected = Backoff(first=10.0, jitter=0.5).delay(1, random.Random(1))
    now[0] = expected - 0.001
    with pytest.raises(CircuitOpen):
        await breaker.call(fine)
    now[0] = expected
    await breaker.call(fine)
    with pytest.raises(ValueError, match="1 or more, not 0"):
        CircuitBreaker(failures=0)


class Unsteady(Actor):
    """Fails as often as it is told, then answers the number of the attempt."""

    mailbox_capacity = 1

    def __init__(self, *errors: BaseException | None) -> None:
        super().__init__()
        self.errors = list(errors)
        self.times: list[float] = []

    async def on_receive(self, message: Any) -> int:
        self.times.append(asyncio.get_running_loop().time())
        error = self.errors.pop(0) if self.errors else None
        if isinstance(error, Timeout):
            await asyncio.sleep(1.5)
        elif error is not None:
            raise error
        return len(self.times)


@virtual_time
async def test_a_breaker_asks_actors() -> None:
    async with virtual_system() as system:
        breaker = CircuitBreaker(failures=1)
        ref = system.spawn(Unsteady, Timeout())
        with pytest.raises(Timeout):
            await breaker.ask(ref, "x", timeout=1.0)
        with pytest.raises(CircuitOpen):
            await breaker.ask(ref, "x")


@virtual_time
async def test_an_ask_is_repeated_with_growing_pauses() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Unsteady, Timeout(), MailboxFull(), MailboxFull())
        asked = ask_with_retry(ref, "x", attempts=4, timeout=1.0, pauses=STEADY)
        assert await asked == 4
        # An attempt that times out after 1 s, and the pauses 1, 2 and 3 s. The first handler goes on until 1.5 s.
        assert ref._cell.actor.times == [0.0, 2.0, 4.0, 7.0]  # type: ignore[attr-defined]


@virtual_time
async def test_attempts_and_time_are_bounded() -> None:
    async with virtual_system() as system:
        loop = asyncio.get_running_loop()
        ref = system.spawn(Unsteady, *[MailboxFull("full")] * 100)
        with pytest.raises(MailboxFull) as caught:
            await ask_with_retry(ref, "x", attempts=3, pauses=STEADY)
        assert caught.value.__notes__[-1] == "after 3 of 3 attempts" and loop.time() == 3.0
        with pytest.raises(MailboxFull) as caught:
            await ask_with_retry(ref, "x", attempts=50, within=2.5, pauses=STEADY)
        assert caught.value.__notes__[-1] == "after 2 of 50 attempts" and loop.time() == 4.0
        with pytest.raises(ValueError, match="attempts is 1 or more"):
            await ask_with_retry(ref, "x", attempts=0)


class Blocking(Actor):
    """Refuses each message, and has the loop blocked for longer than the pause that follows."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def on_receive(self, message: Any) -> None:
        self.seen.append(message)
        asyncio.get_running_loop().call_soon(time.sleep, 0.03)
        raise MailboxFull("full")


async def test_no_attempt_begins_after_a_pause_that_a_busy_loop_has_made_too_long() -> None:
    seen: list[Any] = []
    async with ActorSystem() as system:
        pauses = Backoff(first=0.01, jitter=0.0)
        with pytest.raises(MailboxFull) as caught:
            await ask_with_retry(system.spawn(Blocking, seen), "x", within=0.02, pauses=pauses)
    assert seen == ["x"], "the time was over when the pause ended"
    assert caught.value.__notes__[-1] == "after 1 of 3 attempts"


@virtual_time
async def test_other_errors_are_not_repeated() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Unsteady, KeyError("mine"))
        with pytest.raises(KeyError):
            await ask_with_retry(ref, "x")
        await ref.stop(block=False)
        with pytest.raises(ActorDeadError):
            await ask_with_retry(ref, "x")
        assert asyncio.get_running_loop().time() == 0.0


@virtual_time
async def test_a_clock_that_is_set_back_lengthens_the_pause_by_one_at_most() -> None:
    now = [3600.0]
    breaker = CircuitBreaker(failures=1, pause=Backoff(first=10.0, jitter=0.0), clock=lambda: now[0])
    await fails(breaker)
    now[0] = 0.0
    with pytest.raises(CircuitOpen) as refused:
        await breaker.call(fine)
    assert refused.value.retry_after == 10.0
    now[0] = 10.0
    await breaker.call(fine)
    assert breaker.state == "closed"
