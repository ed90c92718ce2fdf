"""The scenarios on this project's runtime; they use its public API only."""

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
from tests.bench.actors.tally import Tally


class EchoActor(Echo, Actor):
    mailbox_capacity = 1_000_000


class CounterActor(Counter, Actor):
    mailbox_capacity = 1_000_000


class CoroutineEchoActor(Actor):
    """Answers as :class:`EchoActor` does, from a coroutine."""

    async def on_receive(self, message: Any) -> Any:
        return message


def ask(count: int, kind: type[Actor] = EchoActor) -> Result:
    """Await asks one by one."""

    async def main() -> Result:
        async with ActorSystem() as system:
            ref = system.spawn(kind)

            async def work(calls: int) -> None:
                for _ in range(calls):
                    reply = await ref.ask(MESSAGE, block=False)
                expect(reply, MESSAGE)

            return await rate_async(work, count)

    return asyncio.run(main())


def ask_coroutine(count: int) -> Result:
    """Await asks of a coroutine handler one by one."""
    return ask(count, CoroutineEchoActor)


def tell(count: int) -> Result:
    """Send tells, then one ask; its answer means that all tells are handled."""

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


async def _spawn_and_stop_all(count: int, newest_first: bool) -> Result:
    async with ActorSystem() as system:
        gc.collect()
        begun = time.perf_counter()
        refs: list[ActorRef[Any]] = [system.spawn(EchoActor) for _ in range(count)]
        await refs[-1].ask(MESSAGE, block=False)  # the last actor has started, so all have
        started = time.perf_counter()
        order = reversed(refs) if newest_first else refs
        for stopped in [ref.stop(block=False) for ref in order]:
            expect(await stopped, True)
        ended = time.perf_counter()
    return {
        "per_second": count / (ended - begun),
        "spawn_us": (started - begun) / count * 1e6,
        "stop_us": (ended - started) / count * 1e6,
    }


def spawn_and_stop(count: int) -> Result:
    """Spawn ``count`` actors, then stop them, oldest first."""

    async def main() -> Result:
        await _spawn_and_stop_all(500, newest_first=False)
        return await _spawn_and_stop_all(count, newest_first=False)

    return asyncio.run(main())


def _stops(count: int, newest_first: bool) -> Result:
    """Measure microseconds per stop with Python's cyclic garbage collector off: the median of a few runs.

    The collector's passes cost more the more objects are alive, in any program. With it, a stop among 30,000
    actors cost four times as much as among 1,000; without it, the same.
    """

    async def main() -> Result:
        await _spawn_and_stop_all(500, newest_first)
        gc.disable()
        runs = [await _spawn_and_stop_all(count, newest_first) for _ in range(SLICES)]
        return {"stop_us": statistics.median(run["stop_us"] for run in runs)}

    return asyncio.run(main())


def stop_oldest_first(count: int) -> Result:
    """Measure the cost per stop of ``count`` stops, oldest first."""
    return _stops(count, newest_first=False)


def stop_newest_first(count: int) -> Result:
    """Measure the cost per stop of ``count`` stops, newest first."""
    return _stops(count, newest_first=True)


async def _spawn_idle(system: ActorSystem, count: int) -> list[ActorRef[Any]]:
    """Spawn actors and have each handle a message, so that objects created at first use are included."""
    refs: list[ActorRef[Any]] = [system.spawn(EchoActor) for _ in range(count)]
    for ref in refs:
        await ref.ask(MESSAGE, block=False)
    gc.collect()
    return refs


def memory(count: int) -> Result:
    """Measure resident KiB per idle actor."""

    async def main() -> Result:
        async with ActorSystem() as system:
            first = await _spawn_idle(system, 100)
            before = rss_kib()
            idle = await _spawn_idle(system, count)
            after = rss_kib()
            expect(len(first) + len(idle), count + 100)
            return {"kib": (after - before) / count}

    return asyncio.run(main())


def memory_traced(count: int) -> Result:
    """Measure KiB per idle actor with tracemalloc, which counts all Python objects and nothing else."""

    async def main() -> Result:
        async with ActorSystem() as system:
            await _spawn_idle(system, 100)
            tracemalloc.start()
            idle = await _spawn_idle(system, count)
            traced = tracemalloc.get_traced_memory()[0]
            expect(len(idle), count)
            return {"kib": traced / count / 1024}

    return asyncio.run(main())


def thread_lone(count: int) -> Result:
    """Make blocking asks one by one from a thread without a loop, to an actor on the background loop."""
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
    """Send all asks, then get all answers: the thread waits for the loop once, not for each ask."""
    ref = EchoActor.start()

    def work(calls: int) -> None:
        for reply in [ref.ask(MESSAGE, block=False) for _ in range(calls)]:
            expect(reply.get(timeout=30), MESSAGE)

    try:
        return rate(work, count)
    finally:
        ref.stop()


class Pass(Actor):
    """A middle stage, which waits for room in the next stage's mailbox."""

    mailbox_capacity = 1_000

    def __init__(self, following: ActorRef[Any]) -> None:
        super().__init__()
        self.next = following

    async def on_receive(self, message: Any) -> None:
        """Send the message to the next stage."""
        await self.next.send(message)


class Last(Actor):
    """The last stage, which counts the messages."""

    mailbox_capacity = 1_000

    def __init__(self, tally: Tally) -> None:
        super().__init__()
        self.tally = tally

    async def on_receive(self, message: Any) -> None:
        """Count the message."""
        self.tally.take(message)


def pipeline(count: int) -> Result:
    """Send messages through three bounded stages; the sender waits for room as well."""

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


class Busy(Actor):
    """Computes for a millisecond of processor time per message, then sends itself the next one."""

    handled = 0

    def on_receive(self, message: Any) -> Any:
        """Work, and go on."""
        end = time.thread_time() + 0.001
        while time.thread_time() < end:
            pass
        self.handled += 1
        self.actor_ref.tell(message)


class BusyCoroutine(Busy):
    async def on_receive(self, message: Any) -> None:
        """Work in a coroutine that waits for nothing."""
        super().on_receive(message)


class BusySometimes(Busy):
    def on_receive(self, message: Any) -> Any:
        """Work in a coroutine at every eighth message."""
        return self._later(message) if self.handled % 8 == 7 else super().on_receive(message)

    async def _later(self, message: Any) -> None:
        super().on_receive(message)


async def _latency(kind: type[Busy], count: int) -> Result:
    async with ActorSystem(stop_grace=0.1) as system:
        refs = [system.spawn(kind) for _ in range(10)]
        for ref in refs:
            for _ in range(100):
                ref.tell(MESSAGE)
        await asyncio.sleep(0.05)
        late: list[float] = []
        begun = time.perf_counter()
        for _ in range(count):
            asleep = time.perf_counter()
            await asyncio.sleep(0.002)
            late.append((time.perf_counter() - asleep - 0.002) * 1e3)
        took = time.perf_counter() - begun
        handled = sum(ref.statistics().processed for ref in refs)
    return {"late_ms": statistics.median(late), "most_ms": max(late), "per_second": handled / took}


def latency_plain(count: int) -> Result:
    """Sleep ``count`` times beside busy plain handlers."""
    return asyncio.run(_latency(Busy, count))


def latency_coroutine(count: int) -> Result:
    """Sleep ``count`` times beside busy coroutine handlers."""
    return asyncio.run(_latency(BusyCoroutine, count))


def latency_mixed(count: int) -> Result:
    """Sleep ``count`` times beside actors whose handlers are coroutines sometimes."""
    return asyncio.run(_latency(BusySometimes, count))
