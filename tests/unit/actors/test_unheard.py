"""Asks that are refused and whose reply nobody takes are counted and logged."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Any

import pytest

from actors import Actor, ActorDeadError, ActorSystem, MailboxFull
from actors._core.unheard import PAUSE
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Counter(Actor):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self) -> int:
        self.count += 1
        return self.count


def reported(caplog: pytest.LogCaptureFixture) -> list[int]:
    lines = [record.getMessage() for record in caplog.records if record.name == "actors"]
    return [int(found[1]) for line in lines if (found := re.search(r"refused (\d+) ask", line))]


@pytest.mark.slow
@virtual_time
async def test_calls_through_a_proxy_that_are_refused_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    async with virtual_system(mailbox_capacity=1_000) as system:
        ref = system.spawn(Counter)
        await ref
        proxy = ref.proxy()
        with caplog.at_level(logging.WARNING, "actors"):
            for _ in range(50_000):
                proxy.add()
            assert reported(caplog) == [1], "the first one is reported at once"
            await asyncio.sleep(2 * PAUSE)
        handled = await proxy.count
        refused = system.unheard.total
        assert handled + refused == 50_000 and refused >= 49_000
        assert len(reported(caplog)) == 2 and sum(reported(caplog)) == refused
        assert "'await ref.send(...)' waits for room" in caplog.text


@virtual_time  # else a slow machine ends the actor's turns early, and the last send fills the mailbox
async def test_with_send_every_call_runs() -> None:
    async with virtual_system(mailbox_capacity=100) as system:
        proxy = system.spawn(Counter).proxy()
        for _ in range(5_000):
            await proxy.add.send()
        assert await proxy.count == 5_000
        assert system.unheard.total == 0


async def test_a_refusal_that_is_looked_at_is_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with ActorSystem(mailbox_capacity=1) as system:
        ref = system.spawn(Counter)
        await ref
        ref.tell(1)

        def ask() -> Any:
            return ref.ask("?", block=False)

        with pytest.raises(MailboxFull):
            await ask()
        assert isinstance(ask().exception(), MailboxFull)
        with pytest.raises(MailboxFull):
            ask().get()
        with pytest.raises(MailboxFull):
            await ask().map(str)
        assert isinstance((await asyncio.gather(ask(), return_exceptions=True))[0], MailboxFull)
    assert system.unheard.total == 0 and not reported(caplog)


async def test_calls_of_a_dead_actor_and_at_the_end_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with ActorSystem() as system:
        ref = system.spawn(Counter)
        proxy = ref.proxy()
        await ref.stop(block=False)
        for _ in range(3):
            proxy.add()
        assert reported(caplog) == [1]
    assert reported(caplog) == [1, 2], "the stop reports what was counted since"
    with pytest.raises(ActorDeadError):
        await ref.ask("?", block=False)


async def test_refusals_of_a_pool_are_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    async with ActorSystem(mailbox_capacity=1) as system:
        pool = system.spawn_pool(Counter, size=1)
        pool.tell(1)
        for _ in range(3):
            pool.ask("?", block=False)
    assert sum(reported(caplog)) == system.unheard.total == 3
