"""Workers for the tests of pools and routers."""

from __future__ import annotations

import asyncio
from typing import Any

from actors import (
    Actor,
    Backoff,
    Router,
    Supervision,
)

QUICK = Supervision(backoff=Backoff(first=0.001, most=0.002))


class Worker(Actor):
    """Records its messages; answers with its own name."""

    def __init__(self, seen: list[tuple[str, Any]] | None = None) -> None:
        super().__init__()
        self.seen = [] if seen is None else seen

    def on_receive(self, message: Any) -> Any:
        if message == "stop yourself":
            return self.stop()
        if isinstance(message, BaseException):
            raise message
        self.seen.append((self.actor_ref.name, message))
        return self.actor_ref.name


class Held(Worker):
    """Holds each message until the gate opens."""

    mailbox_capacity = 2

    def __init__(self, gate: asyncio.Event, seen: list[tuple[str, Any]]) -> None:
        super().__init__(seen)
        self.gate = gate

    async def on_receive(self, message: Any) -> Any:
        if message == "slow":
            await asyncio.sleep(0.02)
        await self.gate.wait()
        return super().on_receive(message)


async def until(condition: Any, seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


async def names(router: Router[Any], messages: Any) -> list[str]:
    return [await router.ask(message, block=False) for message in messages]
