"""Stops that accept no message which nobody will handle, and what a dead actor's asker knows."""

from __future__ import annotations

from typing import Any

import pytest
from pykka import ActorRegistry

from actors import Actor, ActorDeadError, ActorSystem, Future, NoAnswer


class Idler(Actor):
    """Tries to stop at "stop", takes the reply over at "keep"."""

    def __init__(self, ends: list[str]) -> None:
        super().__init__()
        self.ends = ends
        self.tried: list[bool] = []
        self.kept: list[Future[Any]] = []

    def on_receive(self, message: str) -> Any:
        if message == "keep":
            self.kept.append(self.take_reply())
        elif message == "stop":
            self.tried.append(self.stop_if_idle())
        return self.tried

    def on_stop(self) -> None:
        self.ends.append(self.path)


async def test_an_actor_with_a_message_does_not_stop_and_one_without_refuses_the_next() -> None:
    ends: list[str] = []
    async with ActorSystem() as system:
        ref = system.spawn(Idler, ends, name="idler")
        ref.tell("stop")
        assert await ref.ask("", block=False) == [False], "the ask was there already"
        tried = ref.ask("stop", block=False)
        assert ref.is_alive()
        assert await tried == [False, True]
        # The handler has ended, on_stop has not begun: nothing more is accepted.
        assert not ref.is_alive() and ends == []
        with pytest.raises(ActorDeadError):
            ref.tell("late")
        await ref.stop(block=False)
        while not ends:
            await system.spawn(Idler, []).stop(block=False)
        assert ends == ["/idler"] and ref.actor_stopped.is_set()
        assert ActorRegistry.get_by_urn(ref.actor_urn) is None
        again = system.spawn(Idler, ends, name="idler")
        assert await again.ask("", block=False) == []


async def test_an_asker_knows_whether_his_message_was_handled() -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Idler, [])
        kept, waiting = ref.ask("keep", block=False), None
        ref.stop(block=False)
        waiting = ref.ask("", block=False)
        with pytest.raises(NoAnswer):
            await kept
        with pytest.raises(ActorDeadError) as refused:
            await waiting
        assert type(refused.value) is ActorDeadError
