"""``pipe_to_self`` of a future whose error is no ``Exception``: the outcome, not the piping actor's failure."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from actors import Actor, Future, Piped, Supervision
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Odd(BaseException):
    """What is no error."""


class Tool(Actor):
    def on_receive(self, message: Any) -> Any:
        if message == "exit":
            sys.exit(2)
        raise message()


class Front(Actor):
    """Pipes what it is given, and answers with what has come."""

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, Piped):
            self.reply.try_set(message)
        else:
            self.reply = self.take_reply()
            self.pipe_to_self(message, tag="tag")


def mapped(future: Future[Any]) -> Any:
    return future.map(str)


@virtual_time
@pytest.mark.parametrize("of", [lambda future: future, mapped, Future.as_asyncio])
@pytest.mark.parametrize(
    ("message", "error"), [("exit", SystemExit), (Odd, Odd), (GeneratorExit, GeneratorExit)]
)
async def test_the_failure_of_another_actor_arrives(
    of: Callable[[Any], Any], message: Any, error: type[BaseException]
) -> None:
    async with virtual_system() as system:
        tool, front = system.spawn(Tool, supervision=Supervision()), system.spawn(Front)
        bystander = system.spawn(Actor)
        piped = await front.ask(of(tool.ask(message, block=False)), block=False, timeout=5)
        assert isinstance(piped, Piped) and isinstance(piped.error, error) and piped.tag == "tag"
        await asyncio.sleep(1)
        assert front.is_alive() and bystander.is_alive()
