"""Search the actor runtime for wedges: ``make search-actors MINUTES=60 SEED=1``.

Five hostile worlds, by turns, one seed after the other:

- *cancel*: foreign code cancels tasks of actors, as ``asyncio.all_tasks()`` gives them to anybody;
- *close*: the loop is closed under the actors in the middle of their work;
- *preempt*: threads send to small mailboxes and lose the processor at any line of the runtime;
- *threaded*: the same with actors that have threads, which ask each other, fail, are restarted and stop;
- *given up*: such threads give up most of their asks, which leave the mailbox while the actor takes messages.

In each, every ask must be settled, every actor must answer, be restarted or be dead, and a stop must end.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import random
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
    ThreadedActor,
    Wait,
)
from actors.testing import SimLoop, simulate
from actors.testing.preempt import Preempted, simulate_threads
from tests.search.given_up import given_up

RUNTIMES_TASKS = ("_follow", "_run_start_hooks", "_outcome", "pipe.<locals>.piping")
"""The coroutines of tasks that run actors' code."""
TURNS = (1.0, 5e-6)
"""Seconds of an actor's turn, of which each reading of the simulated clock takes a millionth: long, or two messages."""


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
        system = ActorSystem(
            mailbox_capacity=rng.randrange(1, 3), clock=threads.clock, turn_time=rng.choice(TURNS)
        )
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


@dataclass
class Records:
    """What happened in one run."""

    wrong: list[BaseException] = field(default_factory=list)
    seen: list[Any] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)


class Life:
    """What one instance of a :class:`Bare` has lived through, and whether its thread is inside of it."""

    def __init__(self) -> None:
        self.inside = False
        self.hooks: list[str] = []

    @contextlib.contextmanager
    def enter(self, hook: str) -> Iterator[None]:
        """Note a handler or hook that runs."""
        assert not self.inside, f"{hook} runs beside {self.hooks[-1]}"
        assert not {"on_stop", "before_restart"} & {*self.hooks}, f"{hook} runs after {self.hooks[-1]}"
        assert hook != "on_receive" or "crash" not in self.hooks, (
            "a message is handled by an instance that has failed"
        )
        self.inside = True
        self.hooks.append(hook)
        try:
            time.sleep(0)  # a line of its own, where the thread may lose the baton
            yield
        finally:
            self.inside = False


class Bare(ThreadedActor):
    """Asks its peer, fails and stops, as its messages say; has no hooks."""

    overflow = Wait()

    def __init__(self, records: Records, peer: Any) -> None:
        super().__init__()
        self.records, self.peer, self.life = records, peer, Life()
        records.lives.append(self.life)

    def _in(self, hook: str, then: Callable[[], Any] = lambda: None) -> Any:
        try:
            with self.life.enter(hook):
                return then()
        except AssertionError as error:
            self.records.wrong.append(error)
            raise

    def on_receive(self, message: Any) -> Any:
        return self._in("on_receive", lambda: self._handle(*message))

    def _handle(self, who: int, number: int, what: str) -> Any:
        self.records.seen.append((self.actor_ref, who, number))
        if what in ("fail", "crash"):
            self.life.hooks.append(what)
            raise OSError(what)
        if what == "ask" and self.peer is not None:
            return self.peer.ask((who + 100, number, "echo"))
        if what == "stop":
            self.stop()
        return number


class Hooked(Bare):
    """Has hooks."""

    def on_start(self) -> None:
        self._in("on_start")

    def on_stop(self) -> None:
        self._in("on_stop")

    def before_restart(self, _: Any) -> None:
        self._in("before_restart")

    def after_restart(self, _: Any) -> None:
        self._in("after_restart")


def send_at_random(dice: random.Random, refs: list[Any], asks: list[Any], who: int) -> None:
    """Ask, tell and stop actors from a thread."""
    for number in range(dice.randrange(1, 5)):
        ref = dice.choice(refs)
        what = dice.choice(("echo", "ask", "ask", "fail", "fail", "stop" if number else "echo"))
        try:
            match dice.randrange(4):
                case 0:  # without an asker it is the actor that fails
                    ref.tell((who, number, "crash" if what == "fail" else what))
                case 1:
                    ref.ask((who, number, what))
                case _:
                    asks.append(ref.ask((who, number, what), block=False))
            if dice.random() < 0.05:
                ref.stop(block=dice.random() < 0.5)
        except (ActorDeadError, OSError):
            continue


def threaded(seed: int) -> None:
    """Ask and tell actors with threads from other threads; all lose the processor at any line."""
    rng = random.Random(seed)
    records = Records()
    asks: list[Any] = []

    async def scenario(threads: Preempted) -> None:
        system = ActorSystem(
            mailbox_capacity=rng.randrange(1, 3),
            rng=rng,
            clock=threads.clock,
            turn_time=rng.choice(TURNS),
            stop_grace=1000.0,
        )
        kinds, policies = rng.choices((Bare, Hooked), k=2), [policy(rng) for _ in range(2)]
        back = system.spawn(kinds[0], records, None, supervision=policies[0])
        # A thread that waits for an actor that is restarted together with its own waits until it is abandoned.
        alone = all(each.strategy is Strategy.ONE_FOR_ONE for each in policies)
        front = system.spawn(kinds[1], records, back if alone else None, supervision=policies[1])
        if rng.random() < 0.5:
            await asyncio.sleep(0)
        for who in range(rng.randrange(1, 4)):
            threads.start(send_at_random, random.Random(rng.random()), [front, back], asks, who)
        if rng.random() < 0.7:
            await for_a_while(lambda: not threads.unfinished and all(each.done() for each in asks))
            waiting = sum(not each.done() for each in asks)
            assert not threads.unfinished, f"{threads.unfinished} senders wait for ever before the stop"
            assert not waiting, f"{waiting} asks wait for ever before the stop"
        report = await system.stop(500)
        assert report.clean, report.left
        assert not any(life.inside for life in records.lives), "a handler runs after the stop"
        await for_a_while(lambda: not threads.unfinished and not threads.actors)
        assert not threads.unfinished, f"{threads.unfinished} senders wait for ever"
        assert not threads.actors, f"{threads.actors} threads of actors do not end"
        waiting = sum(not each.done() for each in asks)
        assert not waiting, f"{waiting} asks wait for ever"

    _, threads = simulate_threads(seed, scenario)
    assert not threads.errors, threads.errors
    assert not records.wrong, records.wrong
    assert len({*map(str, records.seen)}) == len(records.seen), f"a message was handled twice: {records.seen}"
    for key in {(ref, who) for ref, who, _ in records.seen}:
        numbers = [number for ref, who, number in records.seen if (ref, who) == key]
        assert key[1] >= 100 or numbers == sorted(numbers), f"out of order: {numbers}"


async def for_a_while(done: Callable[[], bool]) -> None:
    """Wait up to 100 virtual seconds until something is so: a second passes when nobody can run."""
    for _ in range(100):
        if done():
            return
        await asyncio.sleep(1)


WORLDS: dict[str, Callable[[int], None]] = {
    "cancel": cancel,
    "close": close,
    "preempt": preempt,
    "threaded": threaded,
    "given-up": given_up,
}


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
            gc.disable()  # a collection in the middle runs lines of the runtime: the seed would not repeat its run
            try:
                WORLDS[world](seed)
            except Exception as error:
                first = str(error).splitlines()[0] if str(error) else ""
                failures.append(f"{world} seed {seed}: {type(error).__name__}: {first}")
            finally:
                gc.enable()
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
