"""Actors that Ctrl-C hits, on a loop that goes on afterwards."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorStopped,
    ActorSystem,
    Backoff,
    Interrupted,
    Strategy,
    Supervision,
)
from tests.unit.actors.strikes import Strike

BACKOFF = Backoff(first=0.001, most=0.001, jitter=0.0)
SOON = Supervision(backoff=BACKOFF)
TOGETHER = Supervision(backoff=BACKOFF, strategy=Strategy.ONE_FOR_ALL)

MANY = 10
"""Places that are found at least."""

LOST_COROUTINES = "ignore:coroutine .* was never awaited:RuntimeWarning"
"""What a call returns is lost with Ctrl-C behind it, and a coroutine says so."""


def silence() -> Iterator[None]:
    """Log nothing: there are hundreds of lines. What is left of the runs goes here, and in no later test."""
    logging.disable()
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


class Noting(Actor):
    """Notes its last hooks."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def on_stop(self) -> None:
        self.notes.append("stop")


class Plain(Noting):
    def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message


class AtOnce(Noting):
    async def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError
        return message


class World:
    """A loop with two actors, which Ctrl-C hits."""

    def __init__(self, kind: type[Noting], policy: Supervision) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda *_: None)  # tasks that Ctrl-C has ended
        self.notes: list[str] = []
        self.ends: list[str] = []
        self.asks: list[Any] = []
        self.kind, self._policy = kind, policy

    async def begin(self, warm: bool) -> None:
        """Start the actors; a task stands by for a coroutine handler if they are warm."""
        self.system = ActorSystem()
        self.system.events.subscribe(lambda event: self.ends.append(event.path), ActorStopped)
        self.ref: ActorRef[Any] = await self.system.spawn(self.kind, self.notes, supervision=self._policy)
        self.other: ActorRef[Any] = await self.system.spawn(Plain, [], supervision=self._policy)
        for number in range(2 if warm else 0):
            await self.ref.ask(number, block=False)
            await asyncio.sleep(0)

    def struck(self, strike: Strike, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run what is struck; tell whether it was. Ctrl-C leaves the loop then, once."""
        left = 0
        with strike:
            try:
                self.loop.run_until_complete(work())
            except KeyboardInterrupt:
                left += 1
        for _ in range(2):
            try:
                self.loop.run_until_complete(self.turns())
            except KeyboardInterrupt:
                left += 1
            except RuntimeError:  # what was struck has come to its end, which stops the loop
                continue
        assert left == bool(strike.place), f"{strike.place}: Ctrl-C has left the loop {left} times"
        return bool(strike.place)

    async def turns(self) -> None:
        """Let the loop take some turns."""
        for _ in range(10):
            await asyncio.sleep(0)

    async def end(self) -> None:
        """All asks are settled, the actor answers or is dead, and the stop ends."""
        async with asyncio.timeout(5):
            for ask in (*self.asks, self.ref.ask("here", block=False)):
                try:
                    await ask
                except (ActorDeadError, Interrupted):
                    continue
            assert (await self.system.stop()).clean
        assert self.notes.count("stop") <= 1
        assert sorted(self.ends) == sorted((self.ref.path, self.other.path))
