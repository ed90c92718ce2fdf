"""The loop that does not turn."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from actors import Actor, ActorSystem, LoopBlocked
from actors.tracing import LoopWatch


class Blocker(Actor):
    def on_receive(self, message: float) -> None:
        time.sleep(message)


class Coroutine(Actor):
    async def on_receive(self, message: float) -> None:
        await asyncio.sleep(0)
        time.sleep(message)


@pytest.mark.parametrize("kind", [Blocker, Coroutine])
async def test_names_the_actor_and_the_code(kind: type[Any], caplog: Any) -> None:
    heard: list[LoopBlocked] = []
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        ref = system.spawn(kind, name="guilty")
        with LoopWatch(system, threshold=0.05) as watch, caplog.at_level(logging.ERROR, "actors"):
            await asyncio.sleep(0.15)
            assert watch.blocks == 0
            await ref.ask(0.25, block=False)
            await asyncio.sleep(0.05)
    assert watch.blocks == 1
    (event,) = heard
    assert event.path == "/guilty" and "time.sleep(message)" in event.stack
    assert 0.05 < event.seconds < 1
    assert "/guilty" in caplog.text and "time.sleep(message)" in caplog.text


async def test_reports_are_rationed_and_blocks_counted() -> None:
    heard: list[LoopBlocked] = []
    async with ActorSystem() as system:
        system.events.subscribe(heard.append, LoopBlocked)
        with LoopWatch(system, threshold=0.03, every=60) as watch:
            for _ in range(3):
                await asyncio.sleep(0.06)
                time.sleep(0.12)
            await asyncio.sleep(0.05)
    assert watch.blocks == 3 and len(heard) == 1
    assert heard[0].path is None


async def test_costs_no_thread_until_started_and_none_after() -> None:
    async with ActorSystem() as system:
        before = set(threading.enumerate())
        watch = LoopWatch(system, threshold=0.02)
        assert set(threading.enumerate()) <= before
        watch.start()
        watch.start()
        (thread,) = set(threading.enumerate()) - before
        assert thread.daemon
        watch.stop()
        await asyncio.sleep(0.1)
        assert not thread.is_alive()


async def test_the_thread_ends_with_the_loop() -> None:
    loop = asyncio.new_event_loop()
    watch = LoopWatch(ActorSystem(loop=loop), threshold=0.01)
    watch.start()
    thread = watch._thread
    assert thread is not None
    loop.close()
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
