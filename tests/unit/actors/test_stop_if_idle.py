"""Stops that accept no message which nobody will handle, and what a dead actor's asker knows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pykka import ActorRegistry

from actors import Actor, ActorDeadError, ActorFailed, ActorSystem, DeadLetter, Future, NoAnswer
from tests.unit.actors.pools import until


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


async def test_piped_work_that_ends_after_an_idle_stop_is_no_failure() -> None:
    events: list[Any] = []

    class Piping(Idler):
        async def on_receive(self, message: str) -> Any:
            done = asyncio.Event()
            self.pipe_to_self(done.wait())
            await asyncio.sleep(0)
            self.tried.append(self.stop_if_idle())
            done.set()
            for _ in range(5):  # the work ends before the stop
                await asyncio.sleep(0)
            return self.tried

    ends: list[str] = []
    async with ActorSystem() as system:
        system.events.subscribe(events.append, ActorFailed, DeadLetter)
        ref = system.spawn(Piping, ends, name="piping")
        assert await ref.ask("", block=False) == [True]
        await until(lambda: ends)
    assert ends == ["/piping"] and events == []


@pytest.mark.parametrize("how", ["asks a dead actor", "raises it"])
async def test_a_handlers_own_dead_letter_error_is_not_taken_for_the_askers(how: str) -> None:
    class Middle(Actor):
        async def on_receive(self, other: Any) -> Any:
            if how == "raises it":
                raise ActorDeadError("somebody else")
            return await other.ask("", block=False)

    async with ActorSystem() as system:
        dead = system.spawn(Idler, [])
        await dead.stop(block=False)
        with pytest.raises(ActorDeadError) as direct:
            await dead.ask("", block=False)
        assert type(direct.value) is ActorDeadError
        with pytest.raises(NoAnswer) as indirect:
            await system.spawn(Middle).ask(dead, block=False)
        cause = indirect.value.__cause__
        assert type(cause) is ActorDeadError and str(cause) == str(indirect.value)


async def test_an_actor_with_a_stashed_message_does_not_stop() -> None:
    class Connecting(Idler):
        def on_receive(self, message: str) -> Any:
            if message == "wait":
                return self.stash()
            if message == "open":
                return self.unstash_all()
            return super().on_receive(message)

        def unstash_all(self) -> None:
            self.become(super().on_receive)
            super().unstash_all()

    async with ActorSystem() as system:
        ref = system.spawn(Connecting, [])
        waiting = ref.ask("wait", block=False)
        assert await ref.ask("stop", block=False) == [False]
        ref.tell("open")
        assert await waiting == [False]
        assert await ref.ask("stop", block=False) == [False, True]


@pytest.mark.parametrize("what", ["ask", "ask that was given up", "tell"])
async def test_an_ask_that_was_put_aside_and_given_up_does_not_keep_an_actor(what: str) -> None:
    letters: list[Any] = []

    class Connecting(Idler):
        def on_receive(self, message: str) -> Any:
            return self.stash() if message == "wait" else super().on_receive(message)

    async with ActorSystem() as system:
        system.events.subscribe(letters.append, DeadLetter)
        ref = system.spawn(Connecting, [])
        if what == "tell":
            ref.tell("wait")
        else:
            waiting = ref.ask("wait", block=False)
        assert await ref.ask("", block=False) == []
        if what == "ask that was given up":
            waiting.cancel()
        assert await ref.ask("stop", block=False) == [what == "ask that was given up"]
        await ref.stop(block=False)
    assert len(letters) == (what != "ask that was given up")
