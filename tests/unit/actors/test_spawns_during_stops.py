"""A stop ends, whoever spawns meanwhile: the system, or the parent, takes no more actors until it is done."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from actors import Actor, ActorStopped, ActorSystem, Backoff, SpawnRefused, Supervision
from actors._core.termination import STOPS_AT_ONCE
from tests.unit.actors.virtual_time import virtual_system, virtual_time

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))
MANY = 500
"""A test is over after so many replacements: nothing else would end it."""


class Plain(Actor):
    def on_receive(self, message: Any) -> Any:
        if isinstance(message, BaseException):
            raise message
        return message


class Hooked(Plain):
    async def on_stop(self) -> None:
        await asyncio.sleep(0)


class Parent(Plain):
    """Replaces each of its children that stops."""

    replaced = 0

    def on_start(self) -> None:
        self.spawn(Plain)
        self.system.events.subscribe(self._replace, ActorStopped)

    def _replace(self, event: ActorStopped) -> None:
        if event.path.startswith(self.path + "/") and Parent.replaced < MANY:
            self.spawn(Plain)
            Parent.replaced += 1


@virtual_time
@pytest.mark.parametrize("actor_class", [Plain, Hooked])
async def test_a_stop_ends_though_each_stopped_actor_is_to_be_replaced(actor_class: type[Actor]) -> None:
    system, refusals, replaced = virtual_system(), [], 0

    def replace(_: ActorStopped) -> None:
        nonlocal replaced
        try:
            if replaced < MANY:
                system.spawn(actor_class)
                replaced += 1
        except SpawnRefused as refused:
            refusals.append(refused)
            raise

    system.events.subscribe(replace, ActorStopped)
    await system.spawn(actor_class)
    await system.spawn(actor_class)
    assert (await system.stop(1)).clean
    assert (replaced, len(refusals), system.paths()) == (0, 2, [])
    ref = system.spawn(actor_class)  # a stop does not close the system, and the subscriber is still there
    await ref.stop(block=False)
    assert replaced == 1, "a refusal does not end the subscription"
    assert (await system.stop(1)).clean


@virtual_time
async def test_a_spawn_by_a_last_hook_or_by_others_is_refused_during_a_stop() -> None:
    refusals: list[SpawnRefused] = []

    class Spawning(Actor):
        async def on_stop(self) -> None:
            await asyncio.sleep(1)
            for spawn in (self.system.spawn, self.spawn):
                try:
                    spawn(Plain)
                except SpawnRefused as refused:
                    refusals.append(refused)

    system = virtual_system()
    await system.spawn(Spawning)
    stop = asyncio.ensure_future(system.stop())
    await asyncio.sleep(0.5)
    with pytest.raises(SpawnRefused, match="'system' is stopping"):
        system.spawn(Plain)
    assert (await stop).clean and len(refusals) == 2 and system.paths() == []
    assert await system.spawn(Plain).ask("back", block=False) == "back"
    await system.stop()


@virtual_time
@pytest.mark.parametrize("end", ["restart", "stop", "system"])
async def test_a_parent_that_replaces_its_children_restarts_and_stops(end: str) -> None:
    Parent.replaced = 0
    system = virtual_system()
    parent = await system.spawn(Parent, supervision=SOON)
    if end == "restart":
        parent.tell(OSError())
        assert await parent.ask("back", block=False) == "back"
        assert parent.statistics().restarts == 1 and len(system.paths()) == 2
    elif end == "stop":
        await parent.stop(block=False)
        assert system.paths() == []
    assert (await system.stop(1)).clean
    assert Parent.replaced == 0


@virtual_time
async def test_a_stop_of_many_actors_lets_other_callbacks_run() -> None:
    system = virtual_system()
    for _ in range(3 * STOPS_AT_ONCE):
        system.spawn(Plain)
    await asyncio.sleep(0)
    left: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: left.append(len(system.paths())))
    assert (await system.stop(1)).clean
    assert left and left[0] >= STOPS_AT_ONCE


def test_a_stop_that_has_run_out_of_time_takes_actors_again() -> None:
    class Stubborn(Actor):
        async def on_stop(self) -> None:
            await asyncio.Event().wait()

    async def main() -> None:
        system = ActorSystem(hook_timeout=0.05, stop_grace=0.05)
        await system.spawn(Stubborn)
        assert not (await system.stop(0.001)).clean
        assert await system.spawn(Plain).ask("there", block=False) == "there"
        assert not (await system.stop()).left

    asyncio.run(main())


def test_nothing_is_spawned_for_actors_that_end_with_their_loop() -> None:
    spawned: list[int] = []

    async def main() -> None:
        system = ActorSystem()

        class Counted(Plain):
            def __init__(self) -> None:
                super().__init__()
                spawned.append(threading.get_ident())

        system.events.subscribe(lambda _: system.spawn(Counted), ActorStopped)
        await system.spawn(Counted)

    asyncio.run(main())
    assert len(spawned) == 1
