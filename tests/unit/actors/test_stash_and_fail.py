"""A handler that puts its message aside and then raises: the message is in the stash, and comes back from it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor, Backoff, Directive, OnError, Supervision
from tests.unit.actors.virtual_time import virtual_system, virtual_time

RESTART = Supervision(backoff=Backoff(first=0.01))
RESUME = Supervision(OnError(otherwise=Directive.RESUME))


class Fails(Actor):
    seen: list[tuple[int, Any]]

    def __init__(self, seen: list[tuple[int, Any]]) -> None:
        super().__init__()
        self.seen = seen

    def on_receive(self, message: Any) -> Any:
        lives = self._cell.restarts
        self.seen.append((lives, message))
        if message == "fails" and len(self.seen) == 1:
            self.stash()
            raise ValueError("after the stash")
        if message == "wanted":
            self.unstash_all()
        return lives


@virtual_time
async def test_after_a_restart_the_message_comes_back_before_the_others() -> None:
    seen: list[tuple[int, Any]] = []
    async with virtual_system() as system:
        ref = system.spawn(Fails, seen, supervision=RESTART)
        ref.tell("fails")
        ref.tell("next")
        await asyncio.sleep(1.0)
        assert seen == [(0, "fails"), (1, "fails"), (1, "next")]


@virtual_time
async def test_with_resume_it_stays_in_the_stash() -> None:
    seen: list[tuple[int, Any]] = []
    async with virtual_system() as system:
        ref = system.spawn(Fails, seen, supervision=RESUME)
        ref.tell("fails")
        ref.tell("wanted")
        await asyncio.sleep(1.0)
        assert seen == [(0, "fails"), (0, "wanted"), (0, "fails")]


@virtual_time
async def test_an_asker_has_his_error_and_it_does_not_come_back() -> None:
    seen: list[tuple[int, Any]] = []
    async with virtual_system() as system:
        ref = system.spawn(Fails, seen, supervision=RESTART)
        with pytest.raises(ValueError, match="after the stash"):
            await ref.ask("fails", block=False)
        assert await ref.ask("wanted", block=False) == 0
        await asyncio.sleep(1.0)
        assert seen == [(0, "fails"), (0, "wanted")]
