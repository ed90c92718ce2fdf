"""The task that an actor's coroutine handlers share, cancelled by somebody who has kept it from an earlier message."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor, Interrupted
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Keeps(Actor):
    """Keeps its handler's task, for others to cancel."""

    def __init__(self) -> None:
        super().__init__()
        self.held: asyncio.Task[Any] | None = None

    async def wait(self, message: Any) -> Any:
        if message == "keep":
            self.held = asyncio.current_task()
        # Virtual time stands still until the next one: the turn is not over.
        await asyncio.sleep(0 if message == "keep" else 1)
        return message

    def on_receive(self, message: Any) -> Any:
        if message == "cancel":  # a plain handler, in the turn of the coroutine handler before it
            assert self.held is not None
            self.held.cancel()
            return None
        return self.wait(message)


@pytest.mark.parametrize("stood_by", [False, True])
@virtual_time
async def test_a_cancellation_between_two_handlers_hits_neither(stood_by: bool) -> None:
    async with virtual_system() as system:
        ref = system.spawn(Keeps)
        if stood_by:
            await ref.ask("first", block=False)
        ref.tell("keep")
        ref.tell("cancel")
        assert await ref.ask("next", block=False) == "next"
        assert await ref.ask("last", block=False) == "last"
        assert ref.statistics().failed == 0


@virtual_time
async def test_a_cancellation_of_an_idle_actors_task_hits_no_message() -> None:
    async with virtual_system() as system:
        ref = system.spawn(Keeps)
        await ref.ask("keep", block=False)
        held = ref._cell.actor.held
        assert held is not None
        held.cancel()
        assert await ref.ask("next", block=False) == "next"
        assert held.done() and ref.statistics().failed == 0


@virtual_time
async def test_a_cancellation_under_way_hits_the_message_at_hand() -> None:
    """The messages share the task: whom it was meant for is unknown. As docs/actors.md says."""
    async with virtual_system() as system:
        ref = system.spawn(Keeps)
        await ref.ask("keep", block=False)
        later = ref.ask("next", block=False)
        await asyncio.sleep(0.5)
        ref._cell.actor.held.cancel()
        with pytest.raises(Interrupted):
            await later
        assert await ref.ask("last", block=False) == "last"
