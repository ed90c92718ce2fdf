"""Asks that are given up, in threads that lose the processor at any line, while messages come and go around them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from actors import Actor, ActorFailed, ActorSystem, ThreadedActor, Wait
from actors.testing.preempt import Preempted, simulate_threads


@dataclass
class Records:
    """What was sent, asked and handled in one run."""

    asks: list[Any] = field(default_factory=list)
    """Those that nobody gives up."""
    told: list[tuple[int, int]] = field(default_factory=list)
    handled: list[tuple[int, int, bool]] = field(default_factory=list)


class Notes:
    """Notes the sender, number and lane of each message."""

    overflow = Wait()

    def __init__(self, records: Records) -> None:
        super().__init__()
        self.records = records

    def on_receive(self, message: tuple[int, int, bool]) -> None:
        self.records.handled.append(message)


class Plain(Notes, Actor):
    """On the loop."""


class Threaded(Notes, ThreadedActor):
    """In a thread."""


def send(dice: random.Random, ref: Any, records: Records, who: int) -> None:
    """Tell and ask from a thread; give up most of the asks."""
    for number in range(dice.randrange(1, 6)):
        urgent = dice.random() < 0.5
        message = (who, number, urgent)
        if dice.random() < 0.3:
            ref.tell(message, urgent=urgent)
            records.told.append(message[:2])
            continue
        ask = ref.ask(message, block=False, urgent=urgent)
        if dice.random() < 0.7:
            ask.cancel()
        else:
            records.asks.append(ask)


def given_up(seed: int) -> None:
    """Give up asks while the actor, on the loop or in a thread, takes its messages."""
    rng = random.Random(seed)
    records = Records()

    async def scenario(threads: Preempted) -> None:
        system = ActorSystem(mailbox_capacity=rng.randrange(1, 5), rng=rng, clock=threads.clock)
        defects: list[ActorFailed] = []
        system.events.subscribe(defects.append, ActorFailed)
        ref: Any = await system.spawn(rng.choice((Plain, Threaded)), records)
        for who in range(rng.randrange(1, 4)):
            threads.start(send, random.Random(rng.random()), ref, records, who)

        def missing() -> set[Any]:
            return {*records.told} - {(who, number) for who, number, _ in records.handled}

        for _ in range(100):  # virtual seconds: nobody waits for time
            if not threads.unfinished and all(each.done() for each in records.asks) and not missing():
                break
            await asyncio.sleep(1)
        assert not threads.unfinished, f"{threads.unfinished} senders wait for ever"
        assert all(each.done() for each in records.asks), "asks wait for ever"
        assert not missing(), f"messages are lost: {missing()}"
        assert (await system.stop(500)).clean
        assert not defects, defects

    _, threads = simulate_threads(seed, scenario)
    assert not threads.errors, threads.errors
    assert len({*records.handled}) == len(records.handled), f"one was handled twice: {records.handled}"
    for who, _, lane in records.handled:
        numbers = [number for each, number, urgent in records.handled if (each, urgent) == (who, lane)]
        assert numbers == sorted(numbers), f"out of order: {numbers}"
