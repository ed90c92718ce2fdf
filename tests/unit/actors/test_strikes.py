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
from actors._core import (
    closing,
    crash_reports,
    dead_letters,
    death_watch,
    following,
    lifecycle,
    stopping,
    supervision,
    termination,
    waiting,
)
from actors._core.begun import pause
from actors._core.cell import Cell
from actors._core.mailbox import Mailbox
from actors._core.procedure import Procedure
from actors._core.promise import Callback, Promise
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
        self.kind, self._policy = kind, policy

    async def begin(self, warm: bool) -> None:
        """Start the actors; a task stands by for a coroutine handler if they are warm."""
        self.system = ActorSystem()
        self.system.events.subscribe(lambda event: self.ends.append(event.path), ActorStopped)
        self.ref: ActorRef[Any] = await self.system.spawn(self.kind, self.notes, supervision=self._policy)
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


class Owing(Noting):
    """Owes replies, has tasks, and is busy then."""

    mailbox_capacity = 3

    def __init__(self, notes: list[str]) -> None:
        super().__init__(notes)
        self.owed: list[Any] = []

    async def on_receive(self, message: str) -> None:
        if message == "owe":
            self.owed.append(self.take_reply())
        elif message == "work":
            self.start_task(self._work())
        else:
            await asyncio.Event().wait()

    async def _work(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append("cancelled")


class Watching(Noting):
    """Watches another actor."""

    def __init__(self, notes: list[str], ref: ActorRef[Any]) -> None:
        super().__init__(notes)
        self.watch(ref)

    def on_receive(self, message: Any) -> None:
        self.notes.append(type(message).__name__)


class Burial(World):
    """An actor with all that its end has to answer."""

    async def begin(self, warm: bool) -> None:
        """Start the actors, and fill the mailbox."""
        self.system = ActorSystem(stop_grace=0.001)
        ref = self.ref = await self.system.spawn(Owing, self.notes)
        for _ in range(2):
            await self.system.spawn(Watching, self.notes, ref)
            self.asks.append(ref.ask("owe", block=False))
            ref.tell("work")
            await self._turns()
        ref.tell("busy")
        await self._turns()
        self.asks.extend(ref.ask("waits", block=False) for _ in range(3))
        self.asks.extend(self.loop.create_task(ref.send("waits for room")) for _ in range(2))
        await self._turns()
        self.asks.extend(ref.stop(block=False) for _ in range(2))

    async def stop(self) -> None:
        """What is struck: not the watchers' ends."""
        await termination.stop_now(self.ref._cell)
        await self._turns()

    async def end(self) -> None:
        """All who wait for the actor have heard."""
        async with asyncio.timeout(5):
            await termination.stop_now(self.ref._cell)
            for ask in self.asks:
                try:
                    assert await ask is True
                except ActorDeadError:
                    continue
            while self.notes.count("Terminated") < 2 or self.notes.count("cancelled") < 2:
                await asyncio.sleep(0)
            assert (await self.system.stop()).clean
        assert self.notes.count("Terminated") == self.notes.count("cancelled") == 2


BURIAL = (
    closing.close,
    dead_letters.answer_dead_letter,
    death_watch.tell_watchers,
    stopping.settle,
    termination._end_tasks,
    termination._release,
    termination.bury,
    Mailbox.drain,
    Mailbox._take_all,
)


def test_who_waits_for_an_actor_hears_of_its_end_after_ctrl_c_in_its_burial() -> None:
    places = 0
    for strike in strikes(*BURIAL):
        world = Burial(Owing, SOON)
        try:
            world.loop.run_until_complete(world.begin(False))
            places += world.struck(strike, world.stop)
            try:
                world.loop.run_until_complete(world.end())
            except TimeoutError:
                pytest.fail(f"somebody waits for ever after Ctrl-C at {strike.place}")
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
