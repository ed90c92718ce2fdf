"""Code of others that the runtime calls: whatever it raises is its own failure, and no cancellation or exit of the runtime."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from actors import (
    DROP_NEW,
    Actor,
    ActorDeadError,
    ActorError,
    ActorFailed,
    ActorRestarting,
    ActorStarted,
    ActorStopped,
    ActorSystem,
    Backoff,
    DeadLetter,
    Dropped,
    Event,
    Instrument,
    Supervision,
    Unhandled,
)
from actors._core.remains import without_traceback
from actors.patterns import CircuitBreaker
from actors.tracing import Crashes, Tracer
from actors.tracing.monitor import Monitor
from tests.unit.actors.virtual_time import virtual_system, virtual_time

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))

errors = pytest.mark.parametrize("error", [asyncio.CancelledError, GeneratorExit, SystemExit, KeyError])


class Failing:
    """Raises whenever it is called."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error, self.calls = error, 0

    def __call__(self, *_: Any) -> Any:
        self.calls += 1
        raise self.error


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message


class Full(Actor):
    mailbox_capacity = 1
    overflow = DROP_NEW


@virtual_time
@errors
@pytest.mark.parametrize("kind", [ActorStarted, ActorStopped, ActorFailed, ActorRestarting])
async def test_a_subscriber_that_fails_is_removed_and_lives_go_on(
    kind: type[Event], error: type[BaseException]
) -> None:
    fails, heard = Failing(error), []  # type: ignore[var-annotated]
    async with virtual_system() as system:
        system.events.subscribe(fails, kind)
        system.events.subscribe(heard.append, kind)
        ref = await system.spawn(Echo, supervision=SOON)
        ref.tell("fail")
        assert await ref.ask("here", block=False, timeout=5) == "here"
        async with asyncio.timeout(5):
            assert await ref.stop(block=False) is True
    assert fails.calls == 1 and heard, "the others hear all the same"


@virtual_time
@errors
async def test_a_subscriber_that_fails_is_no_error_of_the_sender(error: type[BaseException]) -> None:
    dropped, dead, unhandled = (Failing(error) for _ in range(3))
    async with virtual_system() as system:
        system.events.subscribe(dropped, Dropped)
        system.events.subscribe(dead, DeadLetter)
        system.events.subscribe(unhandled, Unhandled)
        ref = await system.spawn(Full)
        for _ in range(3):
            ref.tell("one too many")
        await asyncio.sleep(1)
        async with asyncio.timeout(5):
            await ref.stop(block=False)
        assert ref.notify("too late") is False
        with pytest.raises(ActorDeadError):
            ref.tell("too late")
    assert [each.calls for each in (dropped, dead, unhandled)] == [1, 1, 1]


@virtual_time
@errors
@pytest.mark.parametrize("point", ["admit", "asked", "begin", "end"])
async def test_an_instrument_that_fails_is_removed(point: str, error: type[BaseException]) -> None:
    fails = Failing(error)
    odd = type("Odd", (Instrument,), {point: fails})()
    async with virtual_system() as system:
        system.instrument(odd)
        ref = await system.spawn(Echo)
        for _ in range(2):
            assert await ref.ask("here", block=False, timeout=5) == "here"
        assert system.hooks_in_use is None
    assert fails.calls == 1


@virtual_time
@errors
async def test_a_filter_of_the_log_that_fails_holds_up_no_restart(error: type[BaseException]) -> None:
    fails, logger = Failing(error), logging.getLogger("actors")
    logger.addFilter(fails)
    try:
        async with virtual_system() as system:
            ref = await system.spawn(Echo, supervision=SOON)
            ref.tell("fail")
            assert await ref.ask("here", block=False, timeout=5) == "here"
    finally:
        logger.removeFilter(fails)
    assert fails.calls


@virtual_time
@errors
async def test_a_decision_that_fails_escalates(error: type[BaseException]) -> None:
    async with virtual_system() as system:
        ref = await system.spawn(Echo, supervision=Supervision(decide=Failing(error)))
        ref.tell("fail")
        async with asyncio.timeout(5):
            assert isinstance((await system.failure).__cause__, ValueError)


@virtual_time
@errors
async def test_a_listener_to_traces_that_fails_is_removed_alone(error: type[BaseException]) -> None:
    fails, heard = Failing(error), []  # type: ignore[var-annotated]
    async with virtual_system() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        tracer.listen(fails)
        tracer.listen(heard.append)
        ref = await system.spawn(Echo)
        for _ in range(2):
            await ref.ask("here", block=False, timeout=5)
        await asyncio.sleep(1)
    assert fails.calls == 1 and len(heard) == 2


@virtual_time
@errors
async def test_reports_outlive_a_redact_function_that_fails(error: type[BaseException]) -> None:
    async with virtual_system() as system:
        with Crashes(system, redact=Failing(error)) as crashes:
            ref = await system.spawn(Echo, supervision=SOON)
            ref.tell("fail")
            await asyncio.sleep(1)
        assert [each["shown"] for each in crashes.reports()] == [f"redact failed: {error.__name__}"]
        shown = Monitor(system, redact=Failing(error))._shown(DeadLetter("secret", "/a", None, "stopped"))
        assert shown == {"type": "DeadLetter", "redact_failed": error.__name__}


@virtual_time
@errors
async def test_a_call_through_a_breaker_has_its_value(error: type[BaseException]) -> None:
    async def down() -> None:
        raise OSError("down")

    fails = Failing(error)
    breaker = CircuitBreaker(failures=1, on_change=fails)
    with pytest.raises(OSError, match="down"):
        await breaker.call(down)
    assert fails.calls == 1 and breaker.state == "open"


@virtual_time
@errors
async def test_a_message_whose_class_cannot_be_hashed_is_handled(error: type[BaseException]) -> None:
    class Meta(type):
        __hash__ = Failing(error)  # type: ignore[assignment]

    class Odd(metaclass=Meta):
        pass

    message = Odd()
    async with virtual_system() as system:
        ref = await system.spawn(Echo)
        assert await ref.ask(message, block=False, timeout=5) is message


@errors
def test_an_error_that_cannot_be_copied_is_kept_in_words(error: type[BaseException]) -> None:
    fails = Failing(error)

    class Odd(Exception):
        def __new__(cls, *args: Any) -> Any:
            return super().__new__(cls, *args) if not fails.calls else fails()

        __str__ = fails

    odd = Odd("why")
    fails.calls = 1
    kept = without_traceback(odd)
    assert type(kept) is ActorError and str(kept) == "Odd"


@virtual_time
@errors
async def test_a_function_that_makes_the_message_of_cancelled_work_fails_its_actor(
    error: type[BaseException],
) -> None:
    class Piping(Actor):
        def on_receive(self, message: Any) -> Any:
            if message != "pipe":
                return message
            self.pipe_to_self(asyncio.sleep(60), on_error=Failing(error))
            for task in self._cell.tasks or ():
                task.cancel()
            return None

    async with ActorSystem() as system:
        ref = await system.spawn(Piping, supervision=SOON)
        await ref.ask("pipe", block=False)
        await asyncio.sleep(1)
        assert await ref.ask("here", block=False, timeout=5) == "here"
        assert ref.statistics().restarts == 1
