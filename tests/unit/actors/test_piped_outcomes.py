"""``pipe_to_self``: each outcome reaches the actor, however many there are, and their number has a bound."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from actors import Actor, ActorSystem, MailboxFull, Piped, ThreadedActor, TooManyTasks
from actors._core.mailbox import PRIORITY_FACTOR
from actors.testing import Invariants
from tests.unit.actors.pools import until


class Piping(Actor):
    """Pipes as many values as a message says, and handles nothing until the gate opens."""

    mailbox_capacity = 1

    def __init__(self, gate: Any) -> None:
        super().__init__()
        self.gate, self.got = gate, list[Any]()

    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, Piped):
            self.got.append(message.value)
        elif message == "got":
            return self.got
        else:
            for number in range(message):
                self.pipe_to_self(asyncio.sleep(0, number))
            await self.gate.wait()
        return None


class PipingInThread(ThreadedActor):
    mailbox_capacity = 1
    use_daemon_thread = True

    def __init__(self, gate: Any) -> None:
        super().__init__()
        self.gate, self.got = gate, list[Any]()

    def on_receive(self, message: Any) -> Any:
        if isinstance(message, Piped):
            self.got.append(message.value)
        elif message == "got":
            return self.got
        else:
            for number in range(message):
                self.pipe_to_self(asyncio.sleep(0, number))
            self.gate.wait(30)
        return None


async def outcomes_wait(ref: Any, many: int) -> None:
    await until(lambda: len(ref._cell.mailbox._priority or ()) >= many)


async def none_waits(ref: Any) -> None:
    await until(lambda: not len(ref._cell.mailbox))


@pytest.mark.parametrize(("kind", "event"), [(Piping, asyncio.Event), (PipingInThread, threading.Event)])
async def test_outcomes_beyond_the_bound_of_urgent_messages_reach_the_actor(
    kind: type[Actor], event: type[Any]
) -> None:
    many = 5 * PRIORITY_FACTOR
    async with ActorSystem() as system:
        ref = system.spawn(kind, gate := event())
        ref.tell(many)
        await outcomes_wait(ref, many)
        with pytest.raises(MailboxFull):
            ref.tell("others are refused", urgent=True)
        gate.set()
        await none_waits(ref)
        assert sorted(await ref.ask("got", block=False)) == list(range(many))


async def test_outcomes_beyond_that_bound_are_bounded_by_max_tasks() -> None:
    class Few(Piping):
        max_tasks = 4

        async def on_receive(self, message: Any) -> Any:
            if message != "pipe":
                return await super().on_receive(message)
            while True:
                unused = asyncio.sleep(0)
                try:
                    self.pipe_to_self(unused)
                except TooManyTasks as error:
                    if "wait in its full mailbox" in str(error):
                        assert unused.cr_frame is None, "it is not closed: Python will warn"
                        return len(self._cell.mailbox)
                await asyncio.sleep(0)

    async with ActorSystem() as system:
        ref = system.spawn(Few, asyncio.Event())
        waited = await ref.ask("pipe", block=False)
        assert PRIORITY_FACTOR + 4 <= waited <= PRIORITY_FACTOR + 8
        await none_waits(ref)
        assert len(await ref.ask("got", block=False)) >= waited


async def test_the_invariants_allow_outcomes_beyond_that_bound() -> None:
    invariants = Invariants()
    async with ActorSystem() as system:
        invariants.install(system)
        ref = system.spawn(Piping, gate := asyncio.Event())
        ref.tell(2 * PRIORITY_FACTOR)
        await outcomes_wait(ref, 2 * PRIORITY_FACTOR)
        gate.set()
        await none_waits(ref)
        assert len(await ref.ask("got", block=False)) == 2 * PRIORITY_FACTOR
    assert not invariants.violations
