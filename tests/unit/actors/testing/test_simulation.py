"""Simulated runs: virtual time, replay by seed, deadlocks, tasks left behind."""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections import deque
from typing import Any

import pytest

from actors import Actor, ActorSystem, Backoff, Intensity, Supervision
from actors._core.context import current
from actors.testing import (
    MODES,
    CannotSimulate,
    Livelock,
    Sim,
    SimLoop,
    SimulationFailed,
    explore,
    search,
    simulate,
)


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class Ping(Actor):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    async def on_receive(self, message: Any) -> Any:
        self.log.append(f"{self._cell.name} {message}")
        if message % 2:
            await asyncio.sleep(0.5)
        return message


async def crowd(system: ActorSystem) -> list[str]:
    log: list[str] = []
    refs = [system.spawn(Ping, log, name=f"p{number}") for number in range(6)]
    for number in range(5):
        for ref in refs:
            ref.tell(number)
    for ref in refs:
        await ref.ask(100, block=False)
    return log


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_trace(mode: str) -> None:
    runs = [simulate(crowd, seed=seed, mode=mode) for seed in (1, 1, 2)]
    assert runs[0].trace == runs[1].trace and runs[0].value == runs[1].value
    assert len(runs[0].trace) == 36
    if mode != "loop":
        assert runs[0].trace != runs[2].trace
    assert sorted(runs[0].trace) == sorted(runs[2].trace)


def test_an_hour_of_timers_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks: list[float] = []
    waits: list[float | None] = []
    select = selectors.DefaultSelector.select

    def record(selector: Any, timeout: float | None = None) -> Any:
        waits.append(timeout)
        return select(selector, timeout)

    class Clock(Actor):
        def on_start(self) -> None:
            self.set_timer("tick", 60, "tick", every=60)

        def on_receive(self, message: Any) -> None:
            ticks.append(self.system.loop.time())

    async def scenario(system: ActorSystem) -> None:
        system.spawn(Clock)
        await asyncio.sleep(3601)

    monkeypatch.setattr(selectors.DefaultSelector, "select", record)
    outcome = simulate(scenario)
    assert waits and set(waits) == {0}, "the selector never waits in real time"
    assert len(ticks) == 60 and ticks[-1] == pytest.approx(3600)
    assert outcome.seconds == pytest.approx(3601, abs=1)


def test_a_deadlock_names_the_actors_that_wait() -> None:
    class Mute(Actor):
        def on_receive(self, message: Any) -> None:
            self.kept = self.take_reply()

    class Client(Actor):
        def __init__(self, to: Any) -> None:
            super().__init__()
            self.to = to

        async def on_receive(self, message: Any) -> Any:
            return await self.to.ask("please", block=False)

    async def scenario(system: ActorSystem) -> None:
        mute = system.spawn(Mute, name="mute")
        await system.spawn(Client, mute, name="client").ask(1, block=False)

    with pytest.raises(SimulationFailed, match="Deadlock") as caught:
        simulate(scenario, seed=7)
    text = str(caught.value)
    assert "outside waits for /client: int is handling" in text
    assert "/mute has taken 1 replies" in text
    assert "replay: simulate(scenario, seed=7, mode='actors')" in text
    assert "/mute <- str" in text


def test_a_livelock_ends() -> None:
    class Busy(Actor):
        def on_receive(self, message: Any) -> None:
            self.actor_ref.tell(message)

    async def scenario(system: ActorSystem) -> None:
        system.spawn(Busy).tell(1)
        await asyncio.Event().wait()

    for mode in MODES:
        with pytest.raises(SimulationFailed, match="Livelock"):
            simulate(scenario, mode=mode, max_stuck=500)
    with pytest.raises(SimulationFailed, match="more than 100 turns"):
        simulate(scenario, max_steps=100)
    with pytest.raises(SimulationFailed, match="of real time"):
        simulate(scenario, wall=0.05)


def test_the_loop_stops_at_its_bounds_and_refuses_threads() -> None:
    loop = SimLoop(max_steps=20)
    try:
        with pytest.raises(CannotSimulate, match="thread"):
            loop.run_until_complete(asyncio.to_thread(time.sleep, 1))

        async def for_ever() -> None:
            while True:
                await asyncio.sleep(3600)

        with pytest.raises(Livelock):
            loop.run_until_complete(for_ever())
        loop.virtual.more(100)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(1))
    finally:
        loop.close()


def test_asyncio_keeps_its_callbacks_where_the_shuffled_loop_expects_them() -> None:
    plain = SimLoop()
    assert type(plain._ready) is deque
    plain.close()
    orders = set()
    for seed in range(10):
        loop = SimLoop(shuffle=random.Random(seed))
        order: list[int] = []
        for number in range(5):
            loop.call_soon(order.append, number)
        loop.call_later(1, loop.stop)
        loop.run_forever()
        loop.close()
        assert sorted(order) == [0, 1, 2, 3, 4]
        orders.add(tuple(order))
    assert len(orders) > 5


def test_threads_are_refused() -> None:
    async def scenario(system: ActorSystem) -> None:
        system.spawn(Threaded)

    class ThreadedCell(Actor._cell_class):  # type: ignore[misc, name-defined]
        threaded = True
        __slots__ = ()

    class Threaded(Actor):
        _cell_class = ThreadedCell

    with pytest.raises(SimulationFailed, match=r"CannotSimulate: /Threaded-1 .* has a thread of its own"):
        simulate(scenario)


def test_leftover_tasks_and_unseen_errors_fail_the_run() -> None:
    kept: list[Any] = []

    async def leaves_a_task(system: ActorSystem) -> None:
        kept.append(asyncio.create_task(asyncio.sleep(10_000)))

    with pytest.raises(SimulationFailed, match="left behind: the task"):
        simulate(leaves_a_task)

    async def fails_unseen(system: ActorSystem) -> None:
        system.loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="ZeroDivisionError"):
        simulate(fails_unseen)


def test_a_top_level_actor_that_gives_up_fails_the_run_unless_allowed() -> None:
    async def scenario(system: ActorSystem) -> None:
        policy = Supervision(intensity=Intensity(restarts=0), backoff=Backoff(first=0.01))
        system.spawn(Echo, supervision=policy).tell(ValueError("no"))
        await asyncio.sleep(1)

    with pytest.raises(SimulationFailed, match="gave up"):
        simulate(scenario)
    simulate(scenario, may_escalate=True)


def test_errors_of_the_scenario_name_the_seed_and_skips_pass_through() -> None:
    async def wrong(system: ActorSystem) -> None:
        assert await system.spawn(Echo).ask(1, block=False) == 2

    failure = search(wrong, seeds=range(3))
    assert failure is not None and failure.seed == 0 and failure.mode == "actors"
    assert isinstance(failure.error, AssertionError)
    with pytest.raises(SimulationFailed, match="seed=5, mode='pct'"):
        explore(wrong, seeds=[5], mode="pct")

    async def skips(system: ActorSystem) -> None:
        pytest.skip("not here")

    with pytest.raises(pytest.skip.Exception):
        simulate(skips)

    async def does_not_raise(system: ActorSystem) -> None:
        with pytest.raises(ValueError):
            pass

    with pytest.raises(SimulationFailed, match="DID NOT RAISE"):
        simulate(does_not_raise)
    with pytest.raises(ValueError, match="mode must be one of"):
        simulate(skips, mode="wild")


def test_a_scenario_can_take_the_whole_simulation() -> None:
    async def scenario(sim: Sim) -> float:
        assert sim.system.paths() == []
        sim.system.spawn(Echo, name="e").tell(1)
        await sim.settle()
        assert sim.trace == [("/e", "int")]
        return sim.rng.random()

    assert simulate(scenario, seed=3).value == simulate(scenario, seed=3, mode="pct").value


class Whose(Actor):
    async def on_receive(self, _: Any) -> bool:
        return current.get() is self._cell


@pytest.mark.parametrize("mode", MODES)
def test_each_coroutine_handler_begins_as_its_own_actors_code(mode: str) -> None:
    async def scenario(system: ActorSystem) -> None:
        ref = system.spawn(Whose)
        assert [await ref.ask(number, block=False) for number in range(3)] == [True] * 3

    simulate(scenario, mode=mode)
