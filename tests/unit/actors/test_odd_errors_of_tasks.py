"""An exception that is no ``Exception``, raised by an actor's task: a failure of this actor, and of no other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor, ActorFailed
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Odd(BaseException):
    """As pyo3's PanicException."""


class Worker(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "task":
            self.start_task(self.work())
        elif message == "pipe":
            self.pipe_to_self(self.work())
        elif message == "handler":
            self.odd()
        return message

    async def work(self) -> None:
        self.odd()

    def odd(self) -> None:
        raise Odd("odd")


@pytest.mark.parametrize("message", ["task", "pipe"])
@virtual_time
async def test_it_ends_an_actor_without_supervision_alone(message: str) -> None:
    async with virtual_system() as system:
        other, ref = system.spawn(Worker), system.spawn(Worker)
        failures: list[Any] = []
        system.events.subscribe(failures.append, ActorFailed)
        ref.tell(message)
        await asyncio.sleep(1.0)
        assert not ref.is_alive()
        assert [(each.where, type(each.error)) for each in failures] == [("task", Odd)]
        assert await other.ask("alive", block=False) == "alive"


@virtual_time
async def test_one_of_a_handler_stops_all_as_in_pykka() -> None:
    async with virtual_system() as system:
        other, ref = system.spawn(Worker), system.spawn(Worker)
        ref.tell("handler")
        await asyncio.sleep(1.0)
        assert not ref.is_alive() and not other.is_alive()


def test_system_exit_of_a_task_stops_all_and_leaves_the_loop() -> None:
    class Exits(Worker):
        def odd(self) -> None:
            raise SystemExit(3)

    loop = asyncio.new_event_loop()
    refs: list[Any] = []

    async def main() -> None:
        from actors import ActorSystem

        system = ActorSystem()
        refs.extend((system.spawn(Worker), system.spawn(Exits)))
        refs[1].tell("task")
        await asyncio.sleep(60)

    try:
        with pytest.raises(SystemExit):
            loop.run_until_complete(main())
        loop.run_until_complete(asyncio.sleep(0.05))
        assert not any(ref.is_alive() for ref in refs)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()
