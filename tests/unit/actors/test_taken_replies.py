"""What ``take_reply`` returns where nobody waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Taker(Actor):
    """Takes the reply of a message, or takes it twice; notes what settling says. Forwards what comes with a taker."""

    def __init__(self, said: list[bool]) -> None:
        super().__init__()
        self.said = said

    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, tuple):
            other, inner = message
            other.forward(inner, self.take_reply())
            return
        reply = self.take_reply()
        if message == "twice":
            again = self.take_reply()
            self.said.append(again.try_set("second"))
        if message == "fail":
            self.said.append(reply.try_fail(ValueError()))
        else:
            self.said.append(reply.try_set(message))


@virtual_time
@pytest.mark.parametrize("message", ["tell", "fail"])
async def test_the_reply_of_a_tell_says_that_nobody_waits(message: str) -> None:
    async with virtual_system() as system:
        said: list[bool] = []
        system.spawn(Taker, said).tell(message)
        await asyncio.sleep(1)
        assert said == [False]


@virtual_time
async def test_a_second_take_of_one_reply_says_that_nobody_waits() -> None:
    async with virtual_system() as system:
        said: list[bool] = []
        assert await system.spawn(Taker, said).ask("twice", block=False, timeout=5) == "twice"
        assert said == [False, True]


@virtual_time
async def test_a_tell_that_is_forwarded_with_its_reply_is_handled_and_nobody_waits() -> None:
    async with virtual_system() as system:
        said: list[bool] = []
        system.spawn(Taker, []).tell((system.spawn(Taker, said), "forwarded"))
        await asyncio.sleep(1)
        assert said == [False]
