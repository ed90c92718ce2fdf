"""Search the actor runtime for wedges: ``make search-actors MINUTES=60 SEED=1``.

Three hostile worlds, by turns, one seed after the other:

- *cancel*: foreign code cancels tasks of actors, as ``asyncio.all_tasks()`` gives them to anybody;
- *close*: the loop is closed under the actors in the middle of their work;
- *preempt*: threads send to small mailboxes and lose the processor at any line of the runtime.

In each, every ask must be settled, every actor must answer, be restarted or be dead, and a stop must end.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

from actors import (
    Actor,
    ActorDeadError,
    ActorSystem,
    Backoff,
    Intensity,
    Interrupted,
    Strategy,
    Supervision,
    Wait,
)
from actors.testing import SimLoop, simulate
from actors.testing.preempt import Preempted, simulate_threads

RUNTIMES_TASKS = ("Cell._follow", "_run_start_hooks", "_outcome", "Actor._pipe")
"""The coroutines of tasks that run actors' code."""


class Worker(Actor):
    """Sleeps, fails, pipes and stops as its messages say; its hooks wait too."""

    async def on_start(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0)

    async def on_receive(self, message: Any) -> Any:
        if message == "fail":
            await asyncio.sleep(0)
            raise OSError(message)
        if message == "pipe":
            self.pipe_to_self(asyncio.sleep(0.001, "piped"))
        elif message == "sleep":
            await asyncio.sleep(0.003)
        return message

    async def on_stop(self) -> None:  # type: ignore[override]
        await asyncio.sleep(0.001)

    async def on_failure(self, *_: Any) -> None:  # type: ignore[override]
        await asyncio.sleep(0.001)


def policy(rng: random.Random) -> Supervision:
    """Draw a supervision that never gives up."""
    return Supervision(
        intensity=Intensity(restarts=10_000, window=1.0),
        backoff=Backoff(first=0.001, most=0.004),
        strategy=rng.choice(tuple(Strategy)),
    )


class Parent(Actor):
    """Has three workers, and hands out their refs."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng
        for name in "abc":
            self.spawn(Worker, name=name, supervision=policy(rng))

    def on_receive(self, _: Any) -> Any:
        return self.children


async def work(system: ActorSystem, rng: random.Random, settled: list[Any]) -> None:
    """Ask, tell and stop at random; note each ask."""
    parent = await system.spawn(Parent, rng, supervision=policy(rng))
    for _ in range(30):
        children = parent._cell.children.values()
        if not children:
            await asyncio.sleep(0.01)
            continue
        ref = rng.choice([cell.ref for cell in children])
        message = rng.choice(("echo", "sleep", "pipe", "fail", "fail"))
        if rng.random() < 0.7:
            settled.append(ref.ask(message, block=False))
        else:
            ref.notify(message)
        if rng.random() < 0.05:
            ref.stop(block=False)
        await asyncio.sleep(rng.choice((0.0, 0.0, 0.001, 0.01)))


def cancel(seed: int) -> None:
    """Cancel tasks of actors from outside, at any turn of the loop."""

    async def scenario(sim: Any) -> None:
        rng = sim.rng_for("cancel")

        def strike() -> None:
            if rng.random() < 0.1:
                tasks = [
                    task
                    for task in asyncio.all_tasks(sim.loop)
                    if getattr(task.get_coro(), "__qualname__", "") in RUNTIMES_TASKS
                ]
                # A set has no order that a seed would repeat.
                tasks.sort(key=lambda task: int(task.get_name().rpartition("-")[2]))
                if tasks:
                    rng.choice(tasks).cancel()

        sim.loop.virtual.on_turn = strike
        asks: list[Any] = []
        await work(sim.system, sim.rng, asks)
        async with asyncio.timeout(600):
            for each in asks:
                try:
                    await each
                except (ActorDeadError, Interrupted, OSError):
                    continue
        sim.loop.virtual.on_turn = None

    simulate(scenario, seed=seed, mode=("loop", "actors", "harsh")[seed % 3])


def close(seed: int) -> None:
    """Close the loop under the actors."""
    rng = random.Random(seed)
    loop = SimLoop()
    loop.set_exception_handler(lambda *_: None)
    asks: list[Any] = []
    system: Any = None

    async def begin() -> None:
        nonlocal system
        system = ActorSystem(clock=loop.clock, rng=rng)
        await work(system, rng, asks)

    working = loop.create_task(begin())
    for _ in range(rng.randrange(200)):
        loop.call_soon(loop.stop)
        loop.run_forever()
    refs = [] if system is None else [cell.ref for cell in system.walk()]
    left = asyncio.all_tasks(loop)
    loop.close()
    for task in (working, *left):
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    assert all(ask.done() for ask in asks), f"{sum(not ask.done() for ask in asks)} asks wait for ever"
    assert not any(ref.is_alive() for ref in refs), "actors of a closed loop are alive"
    assert not any(ref.notify("anybody?") for ref in refs)


class Small(Actor):
    """Has room for one or two messages; its senders wait."""

    overflow = Wait()

    def __init__(self, seen: list[Any]) -> None:
        super().__init__()
        self.seen = seen

    def on_receive(self, message: Any) -> None:
        self.seen.append(message)


def preempt(seed: int) -> None:
    """Send from threads that lose the processor at any line."""
    rng = random.Random(seed)
    count, senders = rng.randrange(1, 4), rng.randrange(1, 4)
    seen: list[Any] = []

    async def scenario(threads: Preempted) -> None:
        system = ActorSystem(mailbox_capacity=rng.randrange(1, 3))
        ref = await system.spawn(Small, seen)

        def send(who: int) -> None:
            for number in range(count):
                ref.tell((who, number))

        for who in range(senders):
            threads.start(send, who)
        for number in range(count):
            await ref.send((senders, number))
        for _ in range(100):  # virtual seconds: nobody waits for time
            if not threads.unfinished and len(seen) == count * (senders + 1):
                break
            await asyncio.sleep(1)
        else:
            raise AssertionError(
                f"{threads.unfinished} senders wait for ever, {len(seen)} messages are handled"
            )
        assert (await system.stop()).clean

    _, threads = simulate_threads(seed, scenario)
    assert not threads.errors, threads.errors
    for who in range(senders + 1):
        assert [number for each, number in seen if each == who] == list(range(count)), seen


WORLDS: dict[str, Callable[[int], None]] = {"cancel": cancel, "close": close, "preempt": preempt}


def search(
    worlds: list[str], seeds: range, seconds: float = float("inf"), most: int = 20
) -> tuple[int, list[str]]:
    """Try seeds until the time is over; return how many runs there were, and a line for each failure.

    Args:
        worlds: which ones.
        seeds: the seeds to try.
        seconds: most real seconds.
        most: failures after which to end.
    """
    until = time.monotonic() + seconds
    runs = 0
    failures: list[str] = []
    for seed in seeds:
        for world in worlds:
            if time.monotonic() >= until or len(failures) >= most:
                return runs, failures
            runs += 1
            try:
                WORLDS[world](seed)
            except Exception as error:
                first = str(error).splitlines()[0] if str(error) else ""
                failures.append(f"{world} seed {seed}: {type(error).__name__}: {first}")
    return runs, failures


def main() -> int:
    """Run the search; return 1 if something was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to search")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--world", choices=sorted(WORLDS), action="append", help="only this one")
    args = parser.parse_args()
    logging.disable()
    warnings.simplefilter("ignore")
    runs, failures = search(
        args.world or list(WORLDS), range(args.seed, sys.maxsize), seconds=60 * args.minutes
    )
    for failure in failures:
        print(failure)
    print(f"{runs} runs from seed {args.seed}, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
