"""Busy actors leave the loop to its other callbacks, after a time and after a number of messages."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

import pytest

from actors import Actor, ActorRef, ActorSystem
from actors._core.turns import THROUGHPUT
from actors.testing import SimLoop
from tests.unit.actors.virtual_time import virtual_system, virtual_time

MILLISECOND = 0.001


def work(seconds: float) -> None:
    """Take processor time: virtual time goes on although the loop does not."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    loop.virtual.now += seconds


class Plain(Actor):
    mailbox_capacity = 100_000

    def __init__(self, cost: float, log: list[Any]) -> None:
        super().__init__()
        self.cost, self.log = cost, log

    def on_receive(self, message: Any) -> Any:
        work(self.cost)
        self.log.append(message)


class Coroutine(Plain):
    async def on_receive(self, message: Any) -> None:
        super().on_receive(message)


class Sometimes(Plain):
    """Answers most messages at once and every eighth one in a coroutine that waits for nothing."""

    def on_receive(self, message: Any) -> Any:
        return self.later(message) if message % 8 == 0 else super().on_receive(message)

    async def later(self, message: Any) -> None:
        super().on_receive(message)


class Patient(Plain):
    turn_time = 20 * MILLISECOND


KINDS = pytest.mark.parametrize("kind", [Plain, Coroutine, Sometimes])


def busy(
    system: ActorSystem, kind: type[Plain], count: int, cost: float, messages: int
) -> list[ActorRef[Plain]]:
    refs = [system.spawn(kind, cost, []) for _ in range(count)]
    for ref in refs:
        for number in range(messages):
            ref.tell(number)
    return refs


async def late(times: int) -> list[float]:
    """Sleep for 2 ms again and again; return by how much each sleep was longer, in virtual seconds."""
    loop = asyncio.get_running_loop()
    found: list[float] = []
    for _ in range(times):
        begun = loop.time()
        await asyncio.sleep(2 * MILLISECOND)
        found.append(loop.time() - begun - 2 * MILLISECOND)
    return found


@KINDS
@virtual_time
async def test_a_timer_beside_ten_busy_actors_is_on_time(kind: type[Plain]) -> None:
    async with virtual_system() as system:
        refs = busy(system, kind, 10, MILLISECOND, 500)
        delays = await late(100)
        assert any(ref.statistics().mailbox.depth for ref in refs), "the actors were idle at the end"
        assert statistics.median(delays) < 15 * MILLISECOND, delays
        assert max(delays) < 30 * MILLISECOND, delays


@KINDS
@virtual_time
async def test_all_busy_actors_advance_alike(kind: type[Plain]) -> None:
    async with virtual_system() as system:
        refs = busy(system, kind, 10, MILLISECOND, 500)
        await late(100)
        handled = [500 - ref.statistics().mailbox.depth for ref in refs]
        assert max(handled) - min(handled) <= THROUGHPUT // 8, handled


@KINDS
@virtual_time
async def test_quick_messages_are_counted(kind: type[Plain]) -> None:
    """Handlers that take no time at all by the clock: no more than 64 in a row."""
    async with virtual_system() as system:
        log: list[Any] = []
        ref = system.spawn(kind, 0.0, log)
        await ref
        for number in range(4096):
            ref.tell(number)
        in_a_row, seen = [], 0
        while seen < 4096:
            await asyncio.sleep(0)
            in_a_row.append(len(log) - seen)
            seen = len(log)
        assert max(in_a_row) <= THROUGHPUT, max(in_a_row)
        assert log == list(range(4096))


async def in_a_row(ref: ActorRef[Any], log: list[Any], messages: int) -> int:
    await ref
    for number in range(messages):
        ref.tell(number)
    await asyncio.sleep(0)
    most, seen = 0, len(log)
    while seen < messages:
        await asyncio.sleep(0)
        most, seen = max(most, len(log) - seen), len(log)
    return most


@virtual_time
async def test_an_actor_may_have_a_turn_time_of_its_own() -> None:
    async with virtual_system(turn_time=2 * MILLISECOND) as system:
        for kind, expected in ((Plain, 2), (Patient, 20)):
            log: list[Any] = []
            assert await in_a_row(system.spawn(kind, MILLISECOND, log), log, 100) == expected


@virtual_time
async def test_a_slow_message_ends_the_turn() -> None:
    async with virtual_system() as system:
        log: list[Any] = []
        assert await in_a_row(system.spawn(Plain, 1.0, log), log, 10) == 1


@pytest.mark.parametrize("seconds", [0, -1, 61, float("inf"), float("nan")])
async def test_a_turn_time_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="turn_time is above 0 and at most 60 seconds"):
        ActorSystem(turn_time=seconds)

    class Bad(Actor):
        turn_time = seconds

    async with ActorSystem() as system:
        with pytest.raises(ValueError, match="turn_time"):
            system.spawn(Bad)


async def test_an_actor_woken_by_a_thread_gets_its_turn() -> None:
    """Threads add to the queue while the loop reads it; nobody is left behind."""
    log: list[Any] = []

    class Counting(Actor):
        mailbox_capacity = 100_000

        def on_receive(self, message: Any) -> Any:
            log.append(message)
            return len(log)

    def send(ref: ActorRef[Any]) -> None:
        for number in range(2_000):
            ref.tell(number)

    async with ActorSystem() as system:
        refs = [system.spawn(Counting) for _ in range(4)]
        await asyncio.gather(*(asyncio.to_thread(send, ref) for ref in refs))
        for ref in refs:
            await ref.ask("last", block=False)
        assert len(log) == 4 * 2_001


@virtual_time
async def test_a_foreign_callback_that_is_slow_does_not_starve_coroutine_handlers() -> None:
    """The cost of tasks is their own time, not what else the loop does in the same turn."""
    async with virtual_system() as system:
        loop = asyncio.get_running_loop()
        turns = 0

        def hog() -> None:
            nonlocal turns
            turns += 1
            work(5 * MILLISECOND)
            handle[0] = loop.call_soon(hog)

        handle = [loop.call_soon(hog)]
        refs = busy(system, Coroutine, 50, 0.0, 1)
        await asyncio.gather(*(ref.ask(1, block=False) for ref in refs))
        handle[0].cancel()
        assert turns < 30, turns
