"""Ctrl-C that hits a handler: the program gets it, and the actor goes on as after any failure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor, ActorSystem, Backoff, Interrupted, Supervision

SOON = Supervision(backoff=Backoff(first=0.001, most=0.001, jitter=0.0))


class Plain(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "ctrl-c":
            raise KeyboardInterrupt  # as the signal's handler does, in the middle of any code
        return message


class Waiting(Actor):
    async def on_receive(self, message: Any) -> Any:
        await asyncio.sleep(0)
        if message == "ctrl-c":
            raise KeyboardInterrupt
        return message


@pytest.mark.parametrize("kind", [Plain, Waiting])
@pytest.mark.parametrize("asked", [True, False])
def test_ctrl_c_in_a_supervised_handler_ends_run_forever(kind: type[Actor], asked: bool) -> None:
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    async def begin() -> None:
        made.append(ActorSystem())
        made.append(await made[0].spawn(kind, supervision=SOON))
        made.append(made[1].ask("ctrl-c", block=False) if asked else made[1].tell("ctrl-c"))

    async def end() -> None:
        system, ref, reply = made
        if asked:
            with pytest.raises(Interrupted):
                await reply
        assert await ref.ask("still here", block=False) == "still here"
        assert (await system.stop(30)).clean

    try:
        begun = loop.create_task(begin())
        with pytest.raises(KeyboardInterrupt):
            loop.run_forever()
        assert begun.done()
        loop.run_until_complete(end())
    finally:
        loop.close()


async def test_a_constructors_error_is_the_spawners_whatever_happens_meanwhile() -> None:
    class Broken(Actor):
        def __init__(self) -> None:
            super().__init__()
            self.system.top.clear()  # as the end of the loop does
            raise OSError("broken")

    async with ActorSystem() as system:
        with pytest.raises(OSError, match="broken"):
            system.spawn(Broken)
