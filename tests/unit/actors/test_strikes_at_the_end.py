"""Ctrl-C that hits the end of an actor, wherever Python looks for signals: all who wait hear, and every stop ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from actors import Actor, ActorDeadError, ActorRef, ActorSystem
from actors._core import actions, closing, dead_letters, death_watch, stopping, termination
from actors._core.cell import Cell
from actors._core.mailbox import Mailbox
from actors._core.procedure import Procedure
from tests.unit.actors.strikes import strikes
from tests.unit.actors.struck import LOST_COROUTINES, MANY, SOON, AtOnce, Noting, Plain, World, silence

pytestmark = pytest.mark.filterwarnings(LOST_COROUTINES)


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    """No lines of the log."""
    yield from silence()


class Owing(Noting):
    """Owes replies, has tasks, puts messages aside, and is busy then."""

    mailbox_capacity = 3

    def __init__(self, notes: list[str]) -> None:
        super().__init__(notes)
        self.owed: list[Any] = []

    async def on_receive(self, message: str) -> None:
        if message == "owe":
            self.owed.append(self.take_reply())
        elif message == "work":
            self.start_task(self._work())
        elif message == "put aside":
            self.stash()
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
            await self.turns()
            self.asks.append(ref.ask("put aside", block=False))
            await self.turns()
        ref.tell("busy")
        await self.turns()
        self.asks.extend(ref.ask("waits", block=False) for _ in range(3))
        self.asks.extend(self.loop.create_task(ref.send("waits for room")) for _ in range(2))
        await self.turns()
        self.asks.extend(ref.stop(block=False) for _ in range(2))

    async def stop(self) -> None:
        """What is struck: not the watchers' ends."""
        await termination.stop_now(self.ref._cell)
        await self.turns()

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
    closing._take_all,
    closing.close,
    closing.drain,
    closing.take_put_aside,
    dead_letters.answer_dead_letter,
    death_watch.tell_watchers,
    stopping.settle,
    termination._end_tasks,
    termination._release,
    termination.bury,
    Mailbox.put_back,
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


class PutsAside(Actor):
    """Puts all aside, until it is to go on."""

    notes: list[Any]

    def __init__(self, notes: list[Any]) -> None:
        super().__init__()
        self.notes, self.goes_on = notes, False

    def on_receive(self, message: Any) -> Any:
        if message == "go on":
            self.goes_on = True
            self.unstash_all()
        elif self.goes_on:
            self.notes.append(message)
        else:
            self.stash()
        return message


async def _put_aside(world: World) -> list[Any]:
    """Start an actor that has nothing but three asks that it has put aside; return these."""
    world.system = ActorSystem()
    world.ref = await world.system.spawn(PutsAside, world.notes, supervision=SOON)
    asks = [world.ref.ask(number, block=False) for number in range(3)]
    await world.turns()
    return asks


def test_who_has_asked_what_was_put_aside_hears_after_ctrl_c_in_a_burial_without_a_hook() -> None:
    places = 0
    for strike in strikes(*BURIAL):
        world = World(Plain, SOON)

        async def stop(world: World = world) -> None:
            world.asks.append(world.ref.stop(block=False))
            await world.asks[0]

        async def end(asks: list[Any], world: World = world) -> None:
            async with asyncio.timeout(5):
                for ask in asks:
                    with pytest.raises(ActorDeadError):
                        await ask
                assert (await world.system.stop()).clean

        try:
            asks = world.loop.run_until_complete(_put_aside(world))
            places += world.struck(strike, stop)
            try:
                world.loop.run_until_complete(end(asks))
            except TimeoutError:
                pytest.fail(f"somebody waits for ever after Ctrl-C at {strike.place}")
        finally:
            world.loop.close()
    assert places > MANY


def test_what_was_put_aside_is_handled_once_after_ctrl_c_as_the_actor_takes_it_up_again() -> None:
    places = 0
    for strike in strikes(actions.unstash_all, Mailbox.put_back):
        world = World(Plain, SOON)

        async def go_on(world: World = world) -> None:
            world.ref.ask("go on", block=False)
            await world.turns()

        async def end(asks: list[Any], world: World = world) -> None:
            async with asyncio.timeout(5):
                await world.ref.ask("go on", block=False)
                assert [await ask for ask in asks] == [0, 1, 2]
                assert (await world.system.stop()).clean

        try:
            asks = world.loop.run_until_complete(_put_aside(world))
            places += world.struck(strike, go_on)
            try:
                world.loop.run_until_complete(end(asks))
            except TimeoutError:
                pytest.fail(f"lost after Ctrl-C at {strike.place}")
            assert world.notes == [0, 1, 2], f"after Ctrl-C at {strike.place}"
        finally:
            world.loop.close()
    assert places >= 3


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
