"""A filter of the program's own that raises: the runtime's lines of the log are no reason to do anything else."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actors import Actor, ActorSystem, LoopBlocked
from actors.patterns import CircuitBreaker
from actors.tracing import LoopWatch, Tracer
from tests.unit.actors.virtual_time import virtual_system, virtual_time


@pytest.fixture(autouse=True)
def refusing() -> Iterator[None]:
    def refuse(record: logging.LogRecord) -> bool:
        if "cannot be logged" in record.getMessage():
            return True
        raise KeyError("the filter's own")

    logger = logging.getLogger("actors")
    logger.addFilter(refuse)
    yield
    logger.removeFilter(refuse)


async def test_a_call_through_a_breaker_has_its_value() -> None:
    def fail(_: Any) -> None:
        raise OSError("on_change")

    async def fine() -> str:
        return "fine"

    async def down() -> None:
        raise OSError("down")

    breaker = CircuitBreaker(failures=1, clock=lambda: now[0], on_change=fail)
    now = [0.0]
    with pytest.raises(OSError, match="down"):
        await breaker.call(down)
    now[0] = 1000.0
    assert await breaker.call(fine) == "fine" and breaker.state == "closed"


async def test_a_listener_to_traces_that_fails_is_removed_alone() -> None:
    def fail(_: Any) -> None:
        raise OSError("listener")

    heard: list[Any] = []
    async with ActorSystem() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        tracer.listen(fail)
        tracer.listen(heard.append)
        ref = system.spawn(Actor)
        for _ in range(2):
            await ref.ask("", block=False)
        await asyncio.sleep(0)
    assert len(heard) == 2 and fail not in tracer._listeners


async def test_a_blocked_loop_is_reported_as_an_event() -> None:
    heard: list[Any] = []
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        watch = LoopWatch(system)
        watch._report(sys._getframe(), time.monotonic(), 0.0)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(heard) == 1


@virtual_time
async def test_a_program_ends_with_its_own_error() -> None:
    class Slow(Actor):
        async def on_stop(self) -> None:  # type: ignore[override]
            await released.wait()

    released = asyncio.Event()
    system = virtual_system(stop_timeout=1.0)
    with pytest.raises(OSError, match="the program's own"):
        async with system:
            await system.spawn(Slow)
            raise OSError("the program's own")
    released.set()
    assert (await system.stop()).clean
