"""The program that is watched: thousands of actors that are replaced and messaged all the time, and the console.

As a process it prints the console's address. For each line on its input it then prints its figures since the last one, as JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import random
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actors import Actor, ActorError, ActorSystem, Backoff, Intensity, Supervision, handles
from actors.console import serve
from tests.bench.console.steps import Steps

SECTIONS = 50
EVERY = 0.02
"""Seconds between two rounds of churn."""
REPLACED = 50
"""Actors that are replaced in a second; one of 5,000 lives for 100 seconds."""
MESSAGES = 500
"""Messages in a second."""
_PATIENT = Supervision(
    intensity=Intensity(restarts=10_000, window=1.0), backoff=Backoff(first=0.01, most=0.1)
)


@dataclass(frozen=True)
class Work:
    """Take some time. ``then`` is a worker to ask, or None."""

    then: Any = None
    fail: bool = False


@dataclass(frozen=True)
class Replace:
    """Stop the oldest worker and start a new one."""


class Worker(Actor):
    """Works, asks others, fails now and then."""

    @handles(Work)
    async def work(self, message: Work) -> int:
        """Wait for a moment, and for the other one."""
        if message.fail:
            raise OSError("no space left on device")
        await asyncio.sleep(0.005)
        if message.then is not None:
            with contextlib.suppress(ActorError):
                await message.then.ask(Work(), block=False)
        return 1


class Section(Actor):
    """Has workers.

    Args:
        size: how many.
        workers: the list that it keeps them in.
    """

    def __init__(self, size: int, workers: list[Any]) -> None:
        super().__init__()
        self.size, self.made = size, 0
        self.workers = workers

    def on_start(self) -> None:
        """Start them all."""
        for _ in range(self.size):
            self._start()

    @handles(Replace)
    def replace(self, _message: Replace) -> None:
        """Replace the oldest worker."""
        self.workers.pop(0).stop(block=False)
        self._start()

    def _start(self) -> None:
        self.made += 1
        self.workers.append(self.spawn(Worker, name=f"worker-{self.made}", supervision=_PATIENT))


class Fleet:
    """The actors, and what happens to them.

    Args:
        system: theirs.
        actors: how many.
    """

    def __init__(self, system: ActorSystem, actors: int) -> None:
        self.system = system
        self.rng = random.Random(34)
        self.rounds = 0
        self.workers: list[list[Any]] = [[] for _ in range(SECTIONS)]
        self.sections = [
            system.spawn(Section, actors // SECTIONS - 1, workers, name=f"section-{number}")
            for number, workers in enumerate(self.workers)
        ]

    def _worker(self) -> Any:
        return self.rng.choice(self.rng.choice(self.workers))

    def round(self) -> None:
        """Replace and message some actors."""
        self.rounds += 1
        for _ in range(round(REPLACED * EVERY)):
            self.rng.choice(self.sections).tell(Replace())
        for number in range(round(MESSAGES * EVERY)):
            other = self._worker() if number % 5 == 0 else None
            self._worker().tell(Work(other, fail=number == 0 and self.rounds % 25 == 0))

    async def churn(self) -> None:
        """Go on until cancelled. Rounds that a busy machine makes late are left out: made up for, they would be a flood."""
        while True:
            await asyncio.sleep(EVERY)
            self.round()


@contextlib.asynccontextmanager
async def _quiet() -> AsyncIterator[None]:
    """Leave the failures, which are meant, out of the log for a block."""
    logger = logging.getLogger("actors")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.asynccontextmanager
async def watchable(actors: int) -> AsyncIterator[tuple[str, Fleet]]:
    """Run the fleet and its console for a block; yield the console's address, too."""
    async with _quiet(), ActorSystem("fleet") as system, serve(system) as address:
        fleet = Fleet(system, actors)
        while sum(map(len, fleet.workers)) < SECTIONS * (actors // SECTIONS - 1):
            await asyncio.sleep(0.01)
        churning = asyncio.create_task(fleet.churn(), name="churn")
        try:
            yield address, fleet
        finally:
            churning.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await churning  # raises what it has ended with


def figures(steps: Steps, fleet: Fleet) -> dict[str, Any]:
    """Describe the process since the steps were reset."""
    used, at = time.process_time(), time.monotonic()
    found = {
        "used": used,
        "at": at,
        "steps": steps.counts.total(),
        "long": steps.long,
        "longest": dict(steps.longest),
        "computed": steps.computed,
        "collection": steps.collection,
        "replaced": fleet.rounds * round(REPLACED * EVERY),
        "messages": fleet.rounds * round(MESSAGES * EVERY),
    }
    gc.collect()  # after the figures: it is no part of them
    status = Path("/proc/self/status").read_text()
    found["rss"] = int(status.split("VmRSS:")[1].split()[0]) / 1024
    found["objects"] = len(gc.get_objects())
    steps.reset()
    return {**found, "used_after": time.process_time(), "at_after": time.monotonic()}


async def main(actors: int) -> None:
    """Serve until the input ends."""
    steps = Steps()
    async with watchable(actors) as (address, fleet):
        gc.collect()
        gc.freeze()  # as docs/console.md recommends
        print(address, flush=True)
        with steps.measured():
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps(figures(steps, fleet)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
