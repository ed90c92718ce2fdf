"""The watch finds blocks of the event loop.

The handlers block until the watch has seen them, however long that takes, so no test depends on the machine's
speed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors import Actor, ActorSystem, LoopBlocked
from actors.tracing import LoopWatch

LIMIT = 30.0
"""Seconds after which a test gives up."""

THRESHOLD = 0.05

LONGER = 3 * THRESHOLD
"""Seconds that a block lasts after the watch has seen it."""


def block_until(condition: Callable[[], bool]) -> None:
    """Keep the calling thread busy until the condition holds, and ``LONGER`` after that."""
    end = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < end, "the watch has not seen the block"
        time.sleep(THRESHOLD / 10)
    time.sleep(LONGER)


async def turn_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(THRESHOLD / 10)


class Blocker(Actor):
    def on_receive(self, message: Callable[[], bool]) -> None:
        block_until(message)


class Coroutine(Actor):
    async def on_receive(self, message: Callable[[], bool]) -> None:
        await asyncio.sleep(0)
        block_until(message)


class Impatient(threading.Event):
    """A stop event whose waits are short, so that the watch asks the loop very often."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(0.001)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    # Not at_level: where a test sets another level within it, pytest restores this one, for all later tests.
    caplog.set_level(logging.ERROR, "actors")
    return caplog


@pytest.mark.parametrize("kind", [Blocker, Coroutine])
async def test_a_report_names_the_actor_and_the_code(kind: type[Any], log: pytest.LogCaptureFixture) -> None:
    heard: list[LoopBlocked] = []

    def guilty() -> list[LoopBlocked]:
        return [event for event in heard if event.path == "/guilty"]

    began = time.monotonic()
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        ref = system.spawn(kind, name="guilty")
        with LoopWatch(system, threshold=THRESHOLD, every=0) as watch:
            await turn_until(lambda: watch._loop_thread is not None)
            await ref.ask(lambda: "/guilty" in log.text, block=False)
            await turn_until(lambda: bool(guilty()))
    (event,) = guilty()  # one block gives one report, although it lasts several thresholds
    assert "block_until(message)" in event.stack and "block_until(message)" in log.text
    assert LONGER <= event.seconds < time.monotonic() - began
    assert watch.blocks == len(heard)


async def test_a_loop_that_waits_for_a_processor_is_the_machines_fault(
    log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler in which it happens is not to blame."""
    heard: list[LoopBlocked] = []
    monkeypatch.setattr(LoopWatch, "_queued", lambda _watch: time.monotonic())  # as if it did nothing else
    log.set_level(logging.WARNING, "actors")
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        ref = system.spawn(Blocker, name="innocent")
        with LoopWatch(system, threshold=THRESHOLD, every=0) as watch:
            await turn_until(lambda: watch._loop_thread is not None)
            await ref.ask(lambda: "waited for a processor" in log.text, block=False)
            await turn_until(lambda: bool(heard))
    assert LONGER <= heard[0].starved <= heard[0].seconds
    assert not [each for each in log.records if each.levelno > logging.WARNING]


@pytest.mark.skipif(not Path("/proc/thread-self/schedstat").exists(), reason="the kernel does not tell")
async def test_a_handler_that_sleeps_waits_for_no_processor() -> None:
    heard: list[LoopBlocked] = []
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        ref = system.spawn(Blocker, name="guilty")
        with LoopWatch(system, threshold=THRESHOLD, every=0) as watch:
            await turn_until(lambda: watch._loop_thread is not None)
            assert watch._queued() > 0
            await ref.ask(lambda: watch.blocks > 0, block=False)
            await turn_until(lambda: bool(heard))
    assert all(0 <= each.starved <= each.seconds for each in heard)


async def test_a_loop_that_runs_no_python_code_is_a_warning_of_one_line(
    log: pytest.LogCaptureFixture,
) -> None:
    """A busy machine is nobody's fault: the stack would show the program's start only."""
    lock = threading.Lock()
    lock.acquire()
    log.set_level(logging.WARNING, "actors")

    def free() -> None:
        while not log.records:
            threading.Event().wait(THRESHOLD / 10)
        lock.release()

    async with ActorSystem() as system:
        with LoopWatch(system, threshold=THRESHOLD) as watch:
            await turn_until(lambda: watch._loop_thread is not None)
            freed = asyncio.create_task(asyncio.to_thread(free))
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(lock.acquire)
            await freed
    (record,) = log.records
    assert record.levelno == logging.WARNING and "\n" not in record.getMessage()
    assert "has not turned for" in record.getMessage()


async def test_a_loop_that_turns_is_not_blocked() -> None:
    async with ActorSystem() as system:
        watch = LoopWatch(system, threshold=LIMIT)
        answered = 0
        request_sign = watch._request_sign

        def count(turned: threading.Event) -> bool:
            nonlocal answered
            answered += 1
            return request_sign(turned)

        watch._request_sign = count  # type: ignore[method-assign]
        stop = Impatient()
        thread = threading.Thread(target=watch._watch, args=(stop,))
        thread.start()
        await turn_until(lambda: answered > 20)
        stop.set()
        await asyncio.to_thread(thread.join, LIMIT)
    assert not thread.is_alive() and watch.blocks == 0


@pytest.mark.slow
async def test_reports_are_rationed_and_blocks_counted() -> None:
    heard: list[LoopBlocked] = []
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        with LoopWatch(system, threshold=THRESHOLD, every=10 * LIMIT) as watch:
            await turn_until(lambda: watch._loop_thread is not None)
            for _ in range(3):
                before = watch.blocks
                block_until(lambda seen=before: watch.blocks > seen)  # type: ignore[misc]
                assert watch.blocks == before + 1, "one block is counted once"
                await asyncio.sleep(0)
            assert watch.blocks >= 3
            await turn_until(lambda: bool(heard))
    assert len(heard) == 1 and heard[0].path is None


async def test_the_thread_lives_from_start_to_stop() -> None:
    async with ActorSystem() as system:
        before = set(threading.enumerate())
        watch = LoopWatch(system, threshold=THRESHOLD)
        assert set(threading.enumerate()) <= before
        watch.start()
        watch.start()
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
        watch.stop()
        await asyncio.to_thread(thread.join, LIMIT)
        assert not thread.is_alive()


async def test_the_thread_ends_with_the_loop() -> None:
    loop = asyncio.new_event_loop()
    watch = LoopWatch(ActorSystem(loop=loop), threshold=THRESHOLD)
    watch.start()
    thread = watch._thread
    assert thread is not None
    loop.close()
    await asyncio.to_thread(thread.join, LIMIT)
    assert not thread.is_alive()


@pytest.mark.parametrize("threshold", [0, -1])
def test_a_threshold_is_positive(threshold: float) -> None:
    loop = asyncio.new_event_loop()
    try:
        with pytest.raises(ValueError, match="more than 0 seconds"):
            LoopWatch(ActorSystem(loop=loop), threshold=threshold)
    finally:
        loop.close()
