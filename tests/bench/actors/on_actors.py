"""The scenarios on this project's runtime, through its public API only."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
import tracemalloc
from typing import Any

from actors import Actor, ActorRef, ActorSystem
from tests.bench.actors.handlers import (
    HOW_MANY,
    MESSAGE,
    SLICES,
    Counter,
    Echo,
    Result,
    expect,
    rate,
    rate_async,
    rss_kib,
)
from tests.bench.actors.stages import Tally


class EchoActor(Echo, Actor):
    mailbox_capacity = 1_000_000


class CounterActor(Counter, Actor):
    mailbox_capacity = 1_000_000


def ask(count: int) -> Result:
    """Asks that are awaited one by one."""

    async def main() -> Result:
        async with ActorSystem() as system:
            ref = system.spawn(EchoActor)

            async def work(calls: int) -> None:
                for _ in range(calls):
                    reply = await ref.ask(MESSAGE, block=False)
                expect(reply, MESSAGE)

            return await rate_async(work, count)

    return asyncio.run(main())


def tell(count: int) -> Result:
    """Tells, and then one ask behind them: when it is answered, all are handled."""

    async def main() -> Result:
        async with ActorSystem() as system:
            ref = system.spawn(CounterActor)
            sent = 0

            async def work(calls: int) -> None:
                nonlocal sent
                for _ in range(calls):
                    ref.tell(MESSAGE)
                sent += calls
                expect(await ref.ask(HOW_MANY, block=False), sent)

            return await rate_async(work, count)

    return asyncio.run(main())


async def _life(count: int, newest_first: bool) -> Result:
    async with ActorSystem() as system:
        gc.collect()
        begun = time.perf_counter()
        refs: list[ActorRef[Any]] = [system.spawn(EchoActor) for _ in range(count)]
        await refs[-1].ask(MESSAGE, block=False)  # the last has started, so all have
        lives = time.perf_counter()
        order = reversed(refs) if newest_first else refs
        for stopped in [ref.stop(block=False) for ref in order]:
            expect(await stopped, True)
        ended = time.perf_counter()
    return {
        "per_second": count / (ended - begun),
        "spawn_us": (lives - begun) / count * 1e6,
        "stop_us": (ended - lives) / count * 1e6,
    }


def spawn_and_stop(count: int) -> Result:
    """Spawn that many, then stop them in the order of their birth."""

    async def main() -> Result:
        await _life(500, newest_first=False)
        return await _life(count, newest_first=False)

    return asyncio.run(main())


def _stops(count: int, newest_first: bool) -> Result:
    """The median of a few lives without Python's cyclic collector.

    Its passes cost more the more objects live, in any program: with it, one of 30,000 actors cost
    four times one of 1,000, without it the same.
    """

    async def main() -> Result:
        await _life(500, newest_first)
        gc.disable()
        lives = [await _life(count, newest_first) for _ in range(SLICES)]
        return {"stop_us": statistics.median(life["stop_us"] for life in lives)}

    return asyncio.run(main())


def stop_oldest_first(count: int) -> Result:
    """What one of that many stops costs, in the order of birth."""
    return _stops(count, newest_first=False)


def stop_newest_first(count: int) -> Result:
    """What one of that many stops costs, the youngest first."""
    return _stops(count, newest_first=True)


async def _crowd(system: ActorSystem, count: int) -> list[ActorRef[Any]]:
    """Living actors that have each handled a message: what is made at first use is there."""
    refs: list[ActorRef[Any]] = [system.spawn(EchoActor) for _ in range(count)]
    for ref in refs:
        await ref.ask(MESSAGE, block=False)
    gc.collect()
    return refs


def memory(count: int) -> Result:
    """Resident KiB an idle actor."""

    async def main() -> Result:
        async with ActorSystem() as system:
            first = await _crowd(system, 100)
            before = rss_kib()
            crowd = await _crowd(system, count)
            after = rss_kib()
            expect(len(first) + len(crowd), count + 100)
            return {"kib": (after - before) / count}

    return asyncio.run(main())


def memory_traced(count: int) -> Result:
    """The same by tracemalloc, which sees Python's objects only but all of them."""

    async def main() -> Result:
        async with ActorSystem() as system:
            await _crowd(system, 100)
            tracemalloc.start()
            crowd = await _crowd(system, count)
            traced = tracemalloc.get_traced_memory()[0]
            expect(len(crowd), count)
            return {"kib": traced / count / 1024}

    return asyncio.run(main())


def thread_lone(count: int) -> Result:
    """Blocking asks, one by one, from a thread without a loop; the actor is on the background's."""
    ref = EchoActor.start()

    def work(calls: int) -> None:
        for _ in range(calls):
            reply = ref.ask(MESSAGE)
        expect(reply, MESSAGE)

    try:
        return rate(work, count)
    finally:
        ref.stop()


def thread_pipelined(count: int) -> Result:
    """Send all, then get all: the thread waits for the loop once, not each time."""
    ref = EchoActor.start()

    def work(calls: int) -> None:
        for reply in [ref.ask(MESSAGE, block=False) for _ in range(calls)]:
            expect(reply.get(timeout=30), MESSAGE)

    try:
        return rate(work, count)
    finally:
        ref.stop()


class Pass(Actor):
    """A middle stage: a coroutine that waits for room in the next one."""

    mailbox_capacity = 1_000

    def __init__(self, following: ActorRef[Any]) -> None:
        super().__init__()
        self.next = following

    async def on_receive(self, message: Any) -> None:
        """Pass it on."""
        await self.next.send(message)


class Last(Actor):
    """The last stage keeps the books."""

    mailbox_capacity = 1_000

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally

    async def on_receive(self, message: Any) -> None:
        """Count it."""
        self.tally.take(message)


def pipeline(count: int) -> Result:
    """Messages through three bounded stages; the feeder waits for room as well."""

    async def main() -> Result:
        tally = Tally(count)
        async with ActorSystem() as system:
            last = system.spawn(Last, tally)
            first = system.spawn(Pass, system.spawn(Pass, last))
            while tally.more():
                await first.send(tally.next())
            while not tally.complete():
                await asyncio.sleep(0.001)
        return tally.result()

    return asyncio.run(main())
