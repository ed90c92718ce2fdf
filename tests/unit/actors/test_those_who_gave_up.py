"""Nothing is left of those who gave up their wait for a start or a stop, and of the subscriptions of the dead."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from actors import Actor, ActorStopped, AskCycleFound, DeadLetter
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Echo(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


class Reluctant(Actor):
    async def on_start(self) -> None:
        await asyncio.sleep(60)

    async def on_stop(self) -> None:
        await asyncio.sleep(10)


@virtual_time
async def test_waits_for_a_start_that_are_given_up_are_forgotten() -> None:
    async def wait() -> None:
        await ref

    async with virtual_system() as system:
        ref = system.spawn(Reluctant)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(wait(), 0.1)
        assert not ref._cell.start_waiters
        await wait()


@virtual_time
async def test_stops_that_run_out_of_time_are_forgotten() -> None:
    system = virtual_system()
    ref = await system.spawn(Reluctant)
    for _ in range(5):
        assert not (await system.stop(0.1)).clean
    assert not ref._cell.stop_waiters
    assert (await system.stop()).clean


@virtual_time
async def test_the_subscriptions_of_an_actor_end_with_it() -> None:
    async with virtual_system() as system, virtual_system() as other:
        gone: list[Any] = []
        for events in (system.events, other.events):
            ref = system.spawn(Echo)
            events.subscribe(ref, AskCycleFound, DeadLetter)
            assert events.wants(AskCycleFound)
            await ref.stop(block=False)
            assert not (events.wants(AskCycleFound) or events.wants(DeadLetter))
            gone.append(weakref.ref(ref))
            end = events.subscribe(ref, DeadLetter)  # it is dead already
            assert not events.wants(DeadLetter)
            end()
        del ref, end
        gc.collect()
        assert not any(each() for each in gone)


@virtual_time
async def test_an_actor_keeps_no_record_of_a_subscription_that_has_ended() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Echo)
        for _ in range(3):
            system.events.subscribe(ref, ActorStopped)()
        assert not ref._cell.subscriptions and not system.events.wants(ActorStopped)
