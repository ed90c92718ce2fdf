"""A supervised pool of workers: jobs that sometimes crash, restarts, results through ask, bounded.

Run it with ``python examples/actors_workers.py``; it needs nothing but the package.

The dispatcher hands each job to an idle worker and lets the worker answer the asker. Jobs wait in the
dispatcher's own bounded queue while no worker is idle; one more is refused. A job that crashes its
worker ends that worker's life: the asker learns of it, and the next life takes the next job.
"""

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Any

from actors import (
    Actor,
    ActorDeadError,
    ActorRef,
    ActorSystem,
    Backoff,
    Future,
    Intensity,
    MailboxFull,
    Supervision,
)


@dataclass(frozen=True)
class Job:
    number: int


@dataclass(frozen=True)
class Assigned:
    """A job for a worker, and to whom its result goes."""

    job: Job
    reply: Future[Any]


@dataclass(frozen=True)
class Idle:
    """A worker has nothing to do: it has started (again), or has done its job."""

    worker: ActorRef[Any]


class Worker(Actor):
    def __init__(self, boss: ActorRef[Any]) -> None:
        super().__init__()
        self.boss = boss
        self.at: Assigned | None = None

    def on_start(self) -> None:
        self.boss.tell(Idle(self.actor_ref), urgent=True)

    async def on_receive(self, message: Assigned) -> None:
        self.at = message
        await asyncio.sleep(0.01)
        if message.job.number % 7 == 3:
            raise RuntimeError(f"job {message.job.number} is poison")
        message.reply.try_set(message.job.number**2)
        self.at = None
        self.boss.tell(Idle(self.actor_ref), urgent=True)

    def on_failure(self, kind: Any, error: Any, trace: Any) -> None:
        if self.at is not None:
            self.at.reply.try_fail(error)


class Dispatcher(Actor):
    supervision = Supervision(
        intensity=Intensity(restarts=20, window=10.0), backoff=Backoff(first=0.005, most=0.1)
    )

    def __init__(self, workers: int, most_waiting: int) -> None:
        super().__init__()
        self.workers, self.most_waiting = workers, most_waiting
        self.idle: deque[ActorRef[Any]] = deque()
        self.waiting: deque[Assigned] = deque()

    def on_start(self) -> None:
        for number in range(self.workers):
            self.spawn(Worker, self.actor_ref, name=f"worker-{number}")

    def on_receive(self, message: Job | Idle) -> None:
        if isinstance(message, Idle):
            self.idle.append(message.worker)
        elif len(self.waiting) >= self.most_waiting and not self.idle:
            raise MailboxFull(f"{self.most_waiting} jobs wait already")
        else:
            self.waiting.append(Assigned(message, self.take_reply()))
        while self.idle and self.waiting:
            assigned = self.waiting.popleft()
            if not assigned.reply.done():  # else its asker gave up
                self.idle.popleft().tell(assigned)


async def main() -> None:
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # failures are logged with tracebacks
    async with ActorSystem() as system:
        dispatcher = await system.spawn(Dispatcher, workers=3, most_waiting=20, name="pool")
        asks = [dispatcher.ask(Job(number), block=False, timeout=10) for number in range(30)]
        squares, crashed, refused = [], [], []
        for number, ask in enumerate(asks):
            try:
                squares.append(await ask)
            except RuntimeError as error:
                crashed.append(str(error))
            except (MailboxFull, ActorDeadError):
                refused.append(number)
        for worker in system.find("/pool/*"):
            await worker  # until its next life has begun, if it is between two
        restarts = sum(each.restarts for each in system.statistics())
        print(f"{len(squares)} results, the last is {squares[-1]}")
        print(f"{len(crashed)} crashes ({', '.join(crashed)}), {restarts} restarts")
        print(f"{len(refused)} refused: {refused}")
        # Every ask had an answer of one kind or another, and each crash cost one life.
        assert len(squares) + len(crashed) + len(refused) == len(asks) and restarts == len(crashed)
        assert crashed and refused and len(system.paths()) == 4
    print("Good news everyone!")


if __name__ == "__main__":
    asyncio.run(main())
