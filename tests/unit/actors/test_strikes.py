"""Ctrl-C that hits the runtime itself, wherever Python looks for signals: no actor is deaf."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from actors import STOP_ON_FAILURE, Supervision
from actors._core import crash_reports, following, lifecycle, supervision, termination, waiting
from actors._core.begun import pause
from actors._core.cell import Cell
from actors._core.procedure import Procedure
from actors._core.promise import Callback, Promise
from actors._core.standby import Standby
from actors._core.turns import Turns
from tests.unit.actors.strikes import strikes
from tests.unit.actors.struck import (
    LOST_COROUTINES,
    MANY,
    SOON,
    TOGETHER,
    AtOnce,
    Noting,
    Plain,
    World,
    silence,
)

pytestmark = pytest.mark.filterwarnings(LOST_COROUTINES)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """No lines of the log."""
    yield from silence()


class Yielding(Noting):
    async def on_receive(self, message: Any) -> Any:
        await asyncio.sleep(0)
        return message


class Waiting(Noting):
    async def on_receive(self, message: Any) -> Any:
        if message == "fail":
            self.start_task(self._fail())
        waiter = self._cell.loop.create_future()
        self._cell.loop.call_soon(waiter.set_result, None)
        await waiter
        return message

    async def _fail(self) -> None:
        raise ValueError


TURNS = (Turns.at_once, Turns._run, Turns._run_all, Cell.run, Cell.handling_context)
TASKS = (following.begin, Standby.take, Standby.__await__, Standby._hand_over, Standby._came_back)
SETTLING = (Promise.try_set, Promise._settle, Promise._tell)
FOLLOWING = (following._follow, following._take_turn, following._standby, pause)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", [Plain, AtOnce, Yielding, Waiting])
def test_an_actor_hears_after_ctrl_c_in_its_turn(kind: type[Noting], alone: bool, warm: bool) -> None:
    places = 0
    for strike in strikes(*TURNS, *TASKS, *FOLLOWING, *SETTLING):
        world = World(kind, SOON)

        async def ask(world: World = world) -> None:
            world.asks.append(world.ref.ask("asked", block=False))
            if not alone:
                world.asks.append(world.other.ask("asked", block=False))
            for each in world.asks:
                await each

        try:
            world.loop.run_until_complete(world.begin(warm))
            struck = world.struck(strike, ask)
            try:
                world.loop.run_until_complete(world.end())
            except TimeoutError:
                pytest.fail(f"deaf after Ctrl-C at {strike.place}")
            assert world.ref._cell.restarts == 0 and (struck or world.notes == ["stop"])
        finally:
            world.loop.close()
        places += struck
    assert places > MANY


def test_a_callback_comes_once_after_ctrl_c_in_the_settling() -> None:
    places = 0
    for strike in strikes(*SETTLING, Callback.schedule):
        world = World(Waiting, SOON)
        waits: list[asyncio.Task[Any]] = []

        async def ask(world: World = world, waits: list[asyncio.Task[Any]] = waits) -> None:
            world.asks.extend(world.ref.ask(number, block=False) for number in range(2))
            waits.append(asyncio.ensure_future(asyncio.wait(world.asks)))
            await waits[0]

        try:
            world.loop.run_until_complete(world.begin(False))
            places += world.struck(strike, ask)
            try:
                done, pending = world.loop.run_until_complete(asyncio.wait_for(waits[0], 5))
            except TimeoutError:
                pytest.fail(f"asyncio.wait() waits for ever after Ctrl-C at {strike.place}")
            assert done == set(world.asks) and not pending, strike.place
            assert not any(ask.target for ask in world.asks), strike.place
            world.loop.run_until_complete(world.end())
        finally:
            world.loop.close()
    assert places > MANY


FAILING = (
    supervision._decide,
    supervision._history_of,
    crash_reports.report,
    supervision.suspend,
    supervision.Restart.__init__,
    supervision.Restart.run,
    termination.cut_off,
    Cell.cut_off,
    Procedure.__init__,
    Procedure._step,
)


@pytest.mark.parametrize("policy", [STOP_ON_FAILURE, SOON, TOGETHER])
@pytest.mark.parametrize("kind", [Plain, AtOnce, Waiting])
def test_a_failure_comes_to_its_end_after_ctrl_c(kind: type[Noting], policy: Supervision) -> None:
    places = 0
    for strike in strikes(supervision.fail, *FAILING):
        world = World(kind, policy)

        async def fail(world: World = world) -> None:
            world.ref.tell("fail")
            world.asks.append(world.ref.ask("behind", block=False))
            await asyncio.sleep(0.003)

        try:
            world.loop.run_until_complete(world.begin(True))
            places += world.struck(strike, fail)
            try:
                world.loop.run_until_complete(world.end())
            except TimeoutError:
                pytest.fail(f"{world.ref._cell.state} for ever after Ctrl-C at {strike.place}")
            if policy is STOP_ON_FAILURE and not (
                strike.place.startswith("fail:") and "RESUME" in strike.place
            ):
                assert world.ref._cell.error is not None, f"lives on after Ctrl-C at {strike.place}"
        finally:
            world.loop.close()
    assert places > MANY


class Starting(Plain):
    async def on_start(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)


STARTING = (
    lifecycle._start,
    lifecycle._run_start_hooks,
    lifecycle._start_ended,
    lifecycle._running,
    lifecycle._tell_waiters,
    lifecycle._start_task_ended,
    Cell.resume,
    Cell.prepare,
    Cell.wake,
)


@pytest.mark.parametrize("kind", [Plain, Starting])
def test_an_actor_hears_after_ctrl_c_in_its_start(kind: type[Noting]) -> None:
    places = 0
    for strike in strikes(*STARTING):
        world = World(kind, SOON)
        started: list[asyncio.Task[Any]] = []

        async def start(world: World = world, started: list[asyncio.Task[Any]] = started) -> None:
            try:
                world.system.spawn(world.kind, world.notes, name="struck", supervision=SOON)
            finally:
                world.ref = world.system.lookup("/struck")  # type: ignore[assignment]
                started.append(asyncio.ensure_future(lifecycle.started(world.ref._cell)))
            await started[0]

        async def end(world: World = world, started: list[asyncio.Task[Any]] = started) -> None:
            async with asyncio.timeout(5):
                await started[0]
                assert await world.ref.ask("here", block=False) == "here"
                assert (await world.system.stop()).clean

        try:
            world.loop.run_until_complete(world.begin(False))
            places += world.struck(strike, start)
            try:
                world.loop.run_until_complete(end())
            except TimeoutError:
                pytest.fail(f"{world.ref._cell.state} for ever after Ctrl-C at {strike.place}")
        finally:
            world.loop.close()
    assert places > MANY / 2


@pytest.mark.parametrize("kind", [Plain, Starting])
def test_an_actor_hears_or_is_dead_after_ctrl_c_in_its_restart(kind: type[Noting]) -> None:
    places = 0
    for strike in strikes(*STARTING, lifecycle.begin, lifecycle.rebirth):
        world = World(kind, SOON)

        async def restart(world: World = world) -> None:
            world.ref.tell("fail")
            world.asks.append(world.ref.ask("behind", block=False))
            while not (world.ref._cell.restarts and world.ref._cell.state == lifecycle.RUNNING):
                await asyncio.sleep(0)
            await world.asks[0]

        try:
            world.loop.run_until_complete(world.begin(False))
            places += world.struck(strike, restart)
            try:
                world.loop.run_until_complete(world.end())
            except TimeoutError:
                pytest.fail(f"{world.ref._cell.state} for ever after Ctrl-C at {strike.place}")
        finally:
            world.loop.close()
    assert places > MANY


class Full(Plain):
    mailbox_capacity = 1


def test_who_waits_for_room_gets_in_after_ctrl_c_as_it_becomes_free() -> None:
    for strike in strikes(waiting.let_in, Promise.try_set):
        world = World(Full, SOON)

        async def send(world: World = world) -> None:
            world.asks.extend(world.loop.create_task(world.ref.send(number)) for number in range(5))
            await asyncio.wait(world.asks)

        try:
            world.loop.run_until_complete(world.begin(False))
            world.struck(strike, send)
            sends, world.asks = world.asks, []
            done, pending = world.loop.run_until_complete(asyncio.wait(sends, timeout=5))
            assert not pending, f"a sender waits for ever after Ctrl-C at {strike.place}"
            assert sum(each.exception() is not None for each in done) <= 1, "Ctrl-C hits one sender at most"
            world.loop.run_until_complete(world.end())
        finally:
            world.loop.close()
