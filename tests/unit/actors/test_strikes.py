"""Ctrl-C that hits the runtime itself, wherever Python looks for signals: no actor is deaf, and every stop ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from actors import (
    STOP_ON_FAILURE,
    Actor,
    ActorDeadError,
    ActorRef,
    ActorStopped,
    ActorSystem,
    Backoff,
    Interrupted,
    Strategy,
    Supervision,
)
from actors._core import following, supervision, termination
from actors._core.begun import pause
from actors._core.cell import Cell
from actors._core.procedure import Procedure
from actors._core.promise import Promise
from actors._core.standby import Standby
from actors._core.turns import Turns
from tests.unit.actors.strikes import Strike, strikes

BACKOFF = Backoff(first=0.001, most=0.001, jitter=0.0)
SOON = Supervision(backoff=BACKOFF)
TOGETHER = Supervision(backoff=BACKOFF, strategy=Strategy.ONE_FOR_ALL)

MANY = 10 if sys.version_info < (3, 12) else 0
"""Places that are found at least: see :func:`strikes`."""

pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
"""What a call returns is lost with Ctrl-C behind it, and a coroutine says so."""


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """No lines of the log: there are hundreds. What is left of the runs goes here, and in no later test."""
    logging.disable()
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


class Noting(Actor):
    """Notes its last hooks."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def on_stop(self) -> None:
        self.notes.append("stop")


class Plain(Noting):
    def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message


class AtOnce(Noting):
    async def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message


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


class World:
    """A loop with two actors, which Ctrl-C hits."""

    def __init__(self, kind: type[Noting], policy: Supervision) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda *_: None)  # tasks that Ctrl-C has ended
        self.notes: list[str] = []
        self.ends: list[str] = []
        self.asks: list[Any] = []
        self._kind, self._policy = kind, policy

    async def begin(self, warm: bool) -> None:
        """Start the actors; a task stands by for a coroutine handler if they are warm."""
        self.system = ActorSystem()
        self.system.events.subscribe(lambda event: self.ends.append(event.path), ActorStopped)
        self.ref: ActorRef[Any] = await self.system.spawn(self._kind, self.notes, supervision=self._policy)
        self.other: ActorRef[Any] = await self.system.spawn(Plain, [], supervision=self._policy)
        for number in range(2 if warm else 0):
            await self.ref.ask(number, block=False)
            await asyncio.sleep(0)

    def struck(self, strike: Strike, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run what is struck; tell whether it was. Ctrl-C leaves the loop then, once."""
        left = 0
        with strike:
            try:
                self.loop.run_until_complete(work())
            except KeyboardInterrupt:
                left += 1
        for _ in range(2):
            try:
                self.loop.run_until_complete(self._turns())
            except KeyboardInterrupt:
                left += 1
            except RuntimeError:  # what was struck has come to its end, which stops the loop
                continue
        assert left == bool(strike.place), f"{strike.place}: Ctrl-C has left the loop {left} times"
        return bool(strike.place)

    async def _turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> None:
        """All asks are settled, the actor answers or is dead, and the stop ends."""
        async with asyncio.timeout(5):
            for ask in (*self.asks, self.ref.ask("here", block=False)):
                try:
                    await ask
                except (ActorDeadError, Interrupted):
                    continue
            assert (await self.system.stop()).clean
        assert self.notes.count("stop") <= 1
        assert sorted(self.ends) == sorted((self.ref.path, self.other.path))


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


FAILING = (
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
        finally:
            world.loop.close()
    assert places > MANY


@pytest.mark.parametrize("kind", [Plain, AtOnce])
def test_a_stop_that_ctrl_c_hits_at_its_beginning_runs_the_last_hook_once(kind: type[Noting]) -> None:
    places = 0
    for strike in strikes(termination.request_stop, Cell.request_stop, termination._stop, Procedure.__init__):
        world = World(kind, SOON)

        async def stop(world: World = world) -> None:
            world.asks.append(world.ref.stop(block=False))
            await world.asks[0]

        try:
            world.loop.run_until_complete(world.begin(True))
            places += world.struck(strike, stop)
            try:
                world.loop.run_until_complete(world.end())
            except TimeoutError:
                pytest.fail(f"{world.ref._cell.state} for ever after Ctrl-C at {strike.place}")
            assert world.notes == ["stop"] or "_stop" in strike.place, strike.place
        finally:
            world.loop.close()
    assert places > MANY / 2
