"""Threads beside a simulated loop, preempted at points that a seed chooses.

Real threads, of which one at a time runs: the others wait for the baton. The one that runs may lose it before any
line of the runtime's own code, which finds the races that a preemption of some milliseconds would show once in a
million runs. Locks, queues and threads of the runtime (those of :class:`~actors.ThreadedActor`) are replaced by
ones that hand the baton on instead of blocking.

    with Preempted(random.Random(seed), loop) as threads:
        system = ActorSystem(loop=loop, clock=threads.clock)
        threads.start(ref.tell, "from a thread")
        loop.run_until_complete(...)
"""

from __future__ import annotations

import asyncio
import gc
import random
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from actors import _future, _ref, _threaded
from actors._core import mailbox, promise, supervision, termination, waiting
from actors.testing.loop import SimLoop

TRACED = {
    str(Path(str(module.__file__)).resolve())
    for module in (_future, _ref, _threaded, mailbox, promise, supervision, termination, waiting)
} | {
    str(Path(str(mailbox.__file__)).with_name(name).resolve())
    for name in (
        "cell.py",
        "closing.py",
        "handling.py",
        "last_hooks.py",
        "lifecycle.py",
        "room.py",
        "turns.py",
    )
}
"""The files in which a thread may lose the baton."""

BETWEEN_SWITCHES = 12
"""Lines between two switches, on average."""


class _Runner:
    """One thread: ``go`` is released when it gets the baton, ``blocked`` tells whether it cannot use it."""

    def __init__(self) -> None:
        self.go = threading.Semaphore(0)
        self.blocked: Callable[[], bool] | None = None
        self.done = False


class CoopLock:
    """Stands in for ``threading.Lock``: who finds it taken hands the baton on until it is free."""

    def __init__(self, threads: Preempted) -> None:
        self._threads = threads
        self._held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; a timeout is not simulated: whoever waits with one waits until it is free.

        Args:
            blocking: whether to wait.
            timeout: seconds; only that there is one counts.
        """
        while self._held:
            if not blocking:
                return False
            self._threads.wait_until(lambda: not self._held)
        self._held = True
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._held = False

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_exc: object) -> None:
        self.release()


class CoopRLock(CoopLock):
    """Stands in for ``threading.RLock``."""

    def __init__(self, threads: Preempted) -> None:
        super().__init__(threads)
        self._owner = self._depth = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See :meth:`CoopLock.acquire`; the thread that has the lock takes it once more."""
        if self._owner != threading.get_ident():
            if not super().acquire(blocking, timeout):
                return False
            self._owner = threading.get_ident()
        self._depth += 1
        return True

    def release(self) -> None:
        """Give the lock back, when it has been released as often as it was taken."""
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            super().release()

    def _is_owned(self) -> bool:
        return self._owner == threading.get_ident()


class CoopQueue:
    """Stands in for ``queue.SimpleQueue``: a ``get`` from an empty one hands the baton on until there is something."""

    def __init__(self, threads: Preempted) -> None:
        self._threads = threads
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        """Add an item."""
        self._items.append(item)

    def get(self) -> Any:
        """Take the oldest item."""
        self._threads.wait_until(lambda: bool(self._items))
        return self._items.popleft()


class Preempted:
    """Runs functions in threads beside a simulated loop; a context manager, in the loop's thread.

    Args:
        rng: decides who runs.
        loop: the loop; when it has nothing to do, the threads go on.
    """

    def __init__(self, rng: random.Random, loop: SimLoop) -> None:
        self._rng, self._loop = rng, loop
        self._main = self._running = _Runner()
        self._runners = [self._main]
        self._left = 0
        self.errors: list[BaseException] = []
        """Exceptions of the functions."""
        self.switches = 0
        """How often the baton went from one thread to another."""
        self._readings = 0
        self._actors: list[_Runner] = []

    def __enter__(self) -> Preempted:
        fake = SimpleNamespace(
            Lock=lambda: CoopLock(self),
            RLock=lambda: CoopRLock(self),
            Thread=self._actors_thread,
            TIMEOUT_MAX=threading.TIMEOUT_MAX,
            get_ident=threading.get_ident,
        )
        self._replaced: list[tuple[Any, str, Any]] = [
            (module, "threading", fake) for module in (mailbox, _future, _threaded)
        ]
        self._replaced.append((_threaded, "queue", SimpleNamespace(SimpleQueue=lambda: CoopQueue(self))))
        self._exchange()
        self._loop.virtual.on_idle = self._idle
        gc.disable()  # it would run finalizers of earlier runs at any line
        self._tracing = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(self._tracing)
        gc.enable()
        self._loop.virtual.on_idle = None
        self._exchange()

    def _exchange(self) -> None:
        for index, (module, name, other) in enumerate(self._replaced):
            self._replaced[index] = module, name, getattr(module, name)
            setattr(module, name, other)

    def _actors_thread(
        self, *, target: Callable[..., object], args: tuple[Any, ...], name: str, daemon: bool
    ) -> SimpleNamespace:
        """Stand in for ``threading.Thread`` in a :class:`~actors.ThreadedActor`."""
        return SimpleNamespace(
            start=lambda: self._actors.append(self.start(target, *args)), name=name, daemon=daemon
        )

    def start(self, function: Callable[..., object], *args: Any) -> _Runner:
        """Run a function in a thread of its own, from now on, whenever it has the baton.

        Args:
            function: what the thread runs.
            args: for it.
        """
        runner = _Runner()

        def run() -> None:
            runner.go.acquire()
            sys.settrace(self._trace)
            try:
                function(*args)
            except BaseException as error:
                self.errors.append(error)
            finally:
                sys.settrace(None)
                runner.done = True
                self._hand_on(wait=False)

        threading.Thread(target=run, daemon=True).start()
        self._runners.append(runner)
        return runner

    def clock(self) -> int:
        """Return the virtual time in nanoseconds, and go on by one microsecond: ``ActorSystem(clock=...)``.

        With the real clock a seed does not repeat its run: on a busy machine an actor's turn is over earlier.
        """
        self._readings += 1
        return self._loop.clock() + 1000 * self._readings

    def wait_until(self, free: Callable[[], bool]) -> None:
        """Hand the baton on until ``free()`` is true."""
        runner = self._running
        runner.blocked = lambda: not free()
        while not free():
            self._hand_on()
        runner.blocked = None

    @property
    def unfinished(self) -> int:
        """Functions that have not returned, without those of actors' threads."""
        return sum(not each.done for each in self._runners) - 1 - self.actors

    @property
    def actors(self) -> int:
        """Threads of actors that have not ended."""
        return sum(not each.done for each in self._actors)

    # -- the baton --------------------------------------------------------------------------------

    def _trace(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._line if frame.f_code.co_filename in TRACED else None

    def _line(self, _frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left <= 0:
                self._left = self._rng.randrange(2 * BETWEEN_SWITCHES)
                self._hand_on()
        return self._line

    def _idle(self) -> bool:
        """Let another thread run, as the loop has nothing to do; tell whether there was one."""
        return self._hand_on(others=True)

    def _hand_on(self, *, wait: bool = True, others: bool = False) -> bool:
        me = self._running
        ready = [
            each
            for each in self._runners
            if not each.done
            and not (others and each is me)
            and not (each.blocked is not None and each.blocked())
        ]
        if not ready:
            if not others and me is not self._main:
                ready = [self._main]  # the loop notices that nothing can happen any more
            else:
                return False
        chosen = ready[self._rng.randrange(len(ready))]
        if chosen is not me:
            self.switches += 1
            self._running = chosen
            chosen.go.release()
            if wait:
                me.go.acquire()
        return True


def simulate_threads(
    seed: int, scenario: Callable[[Preempted], Any], *, wall: float = 20.0
) -> tuple[Any, Preempted]:
    """Run ``async def scenario(threads)`` with preempted threads; return its value, and the threads.

    Args:
        seed: seed of all decisions.
        scenario: the coroutine function.
        wall: most real seconds.

    Raises:
        Deadlock: nothing can happen any more: a wake-up was lost.
    """
    loop = SimLoop(wall=wall)
    try:
        with Preempted(random.Random(seed), loop) as threads:
            return loop.run_until_complete(_with_loop(scenario, threads)), threads
    finally:
        asyncio.set_event_loop(None)
        loop.close()


async def _with_loop(scenario: Callable[[Preempted], Any], threads: Preempted) -> Any:
    return await scenario(threads)


__all__ = ["CoopLock", "CoopQueue", "CoopRLock", "Preempted", "simulate_threads"]
