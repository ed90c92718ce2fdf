"""A supervised, bounded pool of workers whose jobs sometimes crash; results come back through ask.

Run it with ``python examples/actors_workers.py``; it needs only the package itself.

The dispatcher hands each job to an idle worker, and the worker replies to the asker. While no worker is idle,
jobs wait in the dispatcher's bounded queue; when the queue is full, the dispatcher refuses the job. A job
that crashes its worker fails the ask, and the restarted worker takes the next job.
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
    Request,
    Supervision,
    handles,
)


@dataclass(frozen=True)
class Job(Request[int]):
    """Square a number."""

    number: int


@dataclass(frozen=True)
class AssignedJob:
    """A job for a worker, and the future that gets its result."""

    job: Job
    reply: Future[Any]


@dataclass(frozen=True)
class Idle:
    """A worker has nothing to do: it has started, restarted, or finished its job."""

    worker: ActorRef[Any]


class Worker(Actor):
    def __init__(self, boss: ActorRef[Any]) -> None:
        super().__init__()
        self.boss = boss
        self.current: AssignedJob | None = None

    def on_start(self) -> None:
        self.boss.tell(Idle(self.actor_ref), urgent=True)

    @handles(AssignedJob)
    async def work(self, message: AssignedJob) -> None:
        self.current = message
        await asyncio.sleep(0.01)
        if message.job.number % 7 == 3:
            raise RuntimeError(f"job {message.job.number} is poison")
        message.reply.try_set(message.job.number**2)
        self.current = None
        self.boss.tell(Idle(self.actor_ref), urgent=True)

    def on_failure(self, kind: Any, error: Any, trace: Any) -> None:
        if self.current is not None:
            self.current.reply.try_fail(error)


class Dispatcher(Actor):
    supervision = Supervision(
        intensity=Intensity(restarts=20, window=10.0), backoff=Backoff(first=0.005, most=0.1)
    )

    def __init__(self, workers: int, most_waiting: int) -> None:
        super().__init__()
        self.workers, self.most_waiting = workers, most_waiting
        self.idle: deque[ActorRef[Any]] = deque()
        self.waiting: deque[AssignedJob] = deque()

    def on_start(self) -> None:
        for number in range(self.workers):
            self.spawn(Worker, self.actor_ref, name=f"worker-{number}")

    @handles(Idle)
    def on_idle(self, message: Idle) -> None:
        self.idle.append(message.worker)
        self.assign()

    @handles(Job)
    def on_job(self, message: Job) -> None:
        if len(self.waiting) >= self.most_waiting and not self.idle:
            raise MailboxFull(f"{self.most_waiting} jobs wait already")
        self.waiting.append(AssignedJob(message, self.take_reply()))
        self.assign()

    def assign(self) -> None:
        while self.idle and self.waiting:
            assigned = self.waiting.popleft()
            if not assigned.reply.done():  # otherwise the asker gave up
                self.idle.popleft().tell(assigned)


async def main() -> None:
    logging.getLogger("actors").setLevel(logging.CRITICAL)  # each failure is logged with its traceback
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
            await worker  # a worker may be about to restart
        restarts = sum(each.restarts for each in system.statistics())
        print(f"{len(squares)} results, the last is {squares[-1]}")
        print(f"{len(crashed)} crashes ({', '.join(crashed)}), {restarts} restarts")
        print(f"{len(refused)} refused: {refused}")
        # Every ask got a result or an error, and each crash caused one restart.
        assert len(squares) + len(crashed) + len(refused) == len(asks) and restarts == len(crashed)
        assert crashed and refused and len(system.paths()) == 4
    print("Good news everyone!")


if __name__ == "__main__":
    asyncio.run(main())
