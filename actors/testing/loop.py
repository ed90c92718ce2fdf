"""An event loop in virtual time: when no callback is ready, the clock jumps to the next timer.

While a connection or a pipe is open, or a child process of asyncio's runs, time is real: the clock jumps over nothing that may still answer.

An hour of backoffs takes milliseconds, and repeated runs give the same times. If no callback is ready and no
timer is set, nothing can ever happen again: :class:`Deadlock`.

The clock jumps in a selector that is passed to the loop's public constructor. Only the shuffled loop uses a
private part of asyncio (``_ready``, the queue of callbacks); a test fails if a new Python version changes it.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import selectors
import socket
import time
import weakref
from asyncio import futures
from collections import deque
from collections.abc import Callable
from types import MethodType
from typing import Any

MAX_STEPS = 1_000_000
"""Most turns of the loop in one simulation."""

MAX_STUCK = 100_000
"""Most turns of the loop without progress of virtual time."""

RESOLUTION = 1e-6
"""Timers within this many seconds of each other are due together; enough for two simulated centuries."""

MAX_WALL = 60.0
"""Most real seconds of one simulation."""

_WALL_EVERY = 256  # turns between two looks at the real clock


class Deadlock(Exception):
    """No callback is ready and no timer is set: the tasks that wait will wait for ever."""


class Livelock(Exception):
    """The simulation took more turns or more real time than allowed."""


class CannotSimulate(Exception):
    """The scenario starts a thread, and no seed can decide when a thread runs."""


class VirtualSelector(selectors.DefaultSelector):
    """A selector that advances the virtual clock instead of waiting.

    Args:
        max_steps: turns before :class:`Livelock`.
        max_stuck: turns without progress of virtual time before :class:`Livelock`.
        wall: real seconds before :class:`Livelock`.
    """

    def __init__(self, max_steps: int, max_stuck: int, wall: float) -> None:
        super().__init__()
        self.now = 0.0
        """Virtual seconds since the simulation began."""
        self.steps = 0
        """Turns of the loop so far."""
        self.failure: BaseException | None = None
        """An exception that the next turn raises out of the loop."""
        self.describe: Callable[[], str] = str
        """Describes which actor waits for which, for the text of :class:`Deadlock` and :class:`Livelock`."""
        self.on_turn: Callable[[], object] | None = None
        """Called in each turn; may cancel tasks."""
        self.on_idle: Callable[[], bool] | None = None
        """Called when the loop has nothing to do now; tells whether another thread has done something."""
        self.own_files: frozenset[int] = frozenset()
        """The loop's own file descriptors, which wake it."""
        self.children: weakref.WeakSet[asyncio.SubprocessTransport] = weakref.WeakSet()
        """Child processes that may run. Python 3.11 learns of their ends in a thread, without a file."""
        self._max_steps, self._max_stuck, self._wall = max_steps, max_stuck, wall
        self._moved_at = 0
        self._began = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return at once, and advance the clock by ``timeout`` seconds if no file is ready.

        While real IO is pending it waits for it, and the clock goes with the real one.

        Raises:
            Deadlock: there is nothing to wait for.
            Livelock: a bound is exceeded.
        """
        self.steps += 1
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self._check_bounds()
        if self.on_turn is not None:
            self.on_turn()
        if timeout is not None and timeout <= 0:
            return []
        events = super().select(0)
        while not events and self.on_idle is not None and self.on_idle():
            events = super().select(0)
        if events:
            return events
        if self._io_pending():
            return self._wait_for_io(timeout)
        if timeout is None:
            raise Deadlock(f"nothing can happen after {self.now:.6f} s\n{self.describe()}".rstrip())
        self.now += timeout
        self._moved_at = self.steps
        return []

    def _io_pending(self) -> bool:
        """Tell whether a connection or pipe is open, or a child process runs.

        A listening socket does not count: who connects is one of the others.
        """
        if any(child.get_returncode() is None for child in tuple(self.children)):
            return True
        files = self.get_map()
        return len(files) > len(self.own_files) and any(
            key.fd not in self.own_files and not _listens(key.fd) for key in list(files.values())
        )

    def _wait_for_io(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait in real time: no timer may fire before an answer that takes less time has come."""
        begun = time.monotonic()
        left = self._began + self._wall - begun
        events = super().select(max(0.0, left if timeout is None else min(left, timeout)))
        passed = time.monotonic() - begun
        self.now += passed if timeout is None else min(passed, timeout)
        self._moved_at = self.steps
        if not events and time.monotonic() - self._began > self._wall:
            raise Livelock(f"waited for IO: not done after {self._wall:g} s of real time\n{self.describe()}")
        return events

    def more(self, steps: int) -> None:
        """Allow that many more turns, for cleaning up."""
        self._max_steps = self.steps + steps
        self._moved_at = self.steps
        self._began = time.monotonic()

    def _check_bounds(self) -> None:
        if self.steps > self._max_steps:
            raise Livelock(f"more than {self._max_steps} turns of the loop\n{self.describe()}")
        if self.steps - self._moved_at > self._max_stuck:
            raise Livelock(
                f"{self._max_stuck} turns of the loop, and time stays at {self.now:.6f} s\n{self.describe()}"
            )
        if self.steps % _WALL_EVERY == 0 and time.monotonic() - self._began > self._wall:
            raise Livelock(f"not done after {self._wall:g} s of real time\n{self.describe()}")


def _listens(fd: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(fd)) as copy:
            return bool(copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:  # a pipe
        return False


class Shuffled(deque[Any]):
    """A queue (of callbacks, of actors) that returns a random one next. Each comes eventually, with probability 1."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def popleft(self) -> Any:
        chosen = self._rng.randrange(len(self))
        self[0], self[chosen] = self[chosen], self[0]
        return super().popleft()


class ShuffledCallbacks(Shuffled):
    """The loop's queue of callbacks: a random one next, but those of connections and pipes first, in order.

    asyncio's transports rely on that order: a protocol's ``connection_made`` comes before whoever waits for the connection.
    """

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self._of_io: deque[asyncio.Handle] = deque()

    def append(self, handle: asyncio.Handle, /) -> None:
        """Add a callback that is ready."""
        if _is_of_io(handle):
            self._of_io.append(handle)
        else:
            super().append(handle)

    def popleft(self) -> Any:
        """Take the next one."""
        return self._of_io.popleft() if self._of_io else super().popleft()

    def __len__(self) -> int:
        return super().__len__() + len(self._of_io)

    def __bool__(self) -> bool:
        return len(self) > 0

    def clear(self) -> None:
        """Forget all."""
        super().clear()
        self._of_io.clear()


def _is_of_io(handle: Any) -> bool:
    """Tell whether a callback belongs to a transport, a protocol, or the loop's own work with sockets."""
    callback = handle._callback
    while type(callback) is functools.partial:
        callback = callback.func
    if callback is futures._set_result_unless_cancelled:  # type: ignore[attr-defined]
        return (
            type(handle) is asyncio.Handle
        )  # a new transport is ready; as a timer, it is the end of a sleep
    return type(callback) is MethodType and isinstance(
        callback.__self__, (asyncio.BaseTransport, asyncio.BaseProtocol, asyncio.AbstractEventLoop)
    )


class SimLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time.

    Args:
        shuffle: random numbers that pick the next callback among those that are ready, after those of
            connections and pipes. asyncio's documentation allows any order, although much code relies on first
            come, first served. None keeps the order.
        max_steps: turns before :class:`Livelock`.
        max_stuck: turns without progress of virtual time before :class:`Livelock`.
        wall: real seconds before :class:`Livelock`, checked between turns: a callback that never returns is
            not noticed.
    """

    def __init__(
        self,
        *,
        shuffle: random.Random | None = None,
        max_steps: int = MAX_STEPS,
        max_stuck: int = MAX_STUCK,
        wall: float = MAX_WALL,
    ) -> None:
        self.virtual = VirtualSelector(max_steps, max_stuck, wall)
        super().__init__(self.virtual)
        self.virtual.own_files = frozenset(key.fd for key in self.virtual.get_map().values())
        # asyncio fires timers that are due within its clock's resolution. Its default of a nanosecond is less
        # than the step of a float beyond 2**24 seconds, and a timer could stay almost due for ever.
        self._clock_resolution = RESOLUTION
        if shuffle is not None:
            self._ready = ShuffledCallbacks(shuffle)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.virtual.now

    def clock(self) -> int:
        """Return the virtual time in nanoseconds, for ``ActorSystem(clock=...)``."""
        return round(self.virtual.now * 1e9)

    def fail(self, error: BaseException) -> None:
        """Make the next turn raise ``error`` out of the loop. Only the first error counts."""
        if self.virtual.failure is None:
            self.virtual.failure = error

    async def subprocess_exec(self, *args: Any, **options: Any) -> Any:
        """See :meth:`asyncio.loop.subprocess_exec`."""
        return self._child(await super().subprocess_exec(*args, **options))

    async def subprocess_shell(self, *args: Any, **options: Any) -> Any:
        """See :meth:`asyncio.loop.subprocess_shell`."""
        return self._child(await super().subprocess_shell(*args, **options))

    def _child(
        self, made: tuple[asyncio.SubprocessTransport, Any]
    ) -> tuple[asyncio.SubprocessTransport, Any]:
        self.virtual.children.add(made[0])
        return made

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Refuse, because a worker thread runs in real time.

        Raises:
            CannotSimulate: always.
        """
        raise CannotSimulate(f"{func!r} would run in another thread; a simulation has only one")
