"""An event loop whose time is virtual: when nothing is ready, the clock jumps to the next timer.

An hour of backoffs costs milliseconds, and the same run gives the same times. Nothing ready and no
timer means that nobody will ever do anything again: :class:`Deadlock`.

The selector that jumps is an argument of the loop's public constructor. Only the shuffled loop
touches asyncio's insides (``_ready``, the queue of callbacks); a test says when that breaks.
"""

from __future__ import annotations

import asyncio
import random
import selectors
import time
from collections import deque
from collections.abc import Callable
from typing import Any

MAX_STEPS = 1_000_000
"""Turns of the loop that one simulation may take."""

MAX_STUCK = 100_000
"""Turns that it may take without time going on."""

RESOLUTION = 1e-6
"""Seconds within which timers are due at once: enough for simulations of two centuries."""

MAX_WALL = 60.0
"""Seconds by the clock on the wall."""

_WALL_EVERY = 256


class Deadlock(Exception):
    """Nothing is ready and no timer is set: whoever waits will wait for ever."""


class Livelock(Exception):
    """The simulation took more turns, or more of our time, than it may."""


class CannotSimulate(Exception):
    """Something that has a thread of its own: no seed decides when a thread runs."""


class VirtualSelector(selectors.DefaultSelector):
    """Holds the virtual clock; instead of waiting it moves the clock on."""

    def __init__(self, max_steps: int, max_stuck: int, wall: float) -> None:
        super().__init__()
        self.now = 0.0
        """Seconds since the simulation began."""
        self.steps = 0
        """Turns of the loop so far."""
        self.failure: BaseException | None = None
        """What the next turn is to raise out of the loop."""
        self.describe: Callable[[], str] = str
        """Says who waits for whom, for a :class:`Deadlock`."""
        self._max_steps, self._max_stuck, self._wall = max_steps, max_stuck, wall
        self._moved_at = 0
        self._began = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return at once; ``timeout`` seconds have passed if nothing else was to do.

        Raises:
            Deadlock: there is nothing to wait for.
            Livelock: a bound is reached.
        """
        self.steps += 1
        failure, self.failure = self.failure, None
        if failure is not None:
            raise failure
        self._check_bounds()
        if timeout is not None and timeout <= 0:
            return []
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            raise Deadlock(f"nothing is left to happen at {self.now:.6f} s\n{self.describe()}".rstrip())
        self.now += timeout
        self._moved_at = self.steps
        return []

    def more(self, steps: int) -> None:
        """Allow some more turns, for cleaning up."""
        self._max_steps = self.steps + steps
        self._moved_at = self.steps
        self._began = time.monotonic()

    def _check_bounds(self) -> None:
        if self.steps > self._max_steps:
            raise Livelock(f"more than {self._max_steps} turns of the loop\n{self.describe()}")
        if self.steps - self._moved_at > self._max_stuck:
            raise Livelock(
                f"{self._max_stuck} turns of the loop and it is still {self.now:.6f} s\n{self.describe()}"
            )
        if self.steps % _WALL_EVERY == 0 and time.monotonic() - self._began > self._wall:
            raise Livelock(f"not done after {self._wall:g} s of real time\n{self.describe()}")


class _Shuffled(deque[Any]):
    """A queue of callbacks that gives any of them next. Each comes at last, with probability 1."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    def popleft(self) -> Any:
        chosen = self._rng.randrange(len(self))
        self[0], self[chosen] = self[chosen], self[0]
        return super().popleft()


class SimLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time.

    Args:
        shuffle: chance that picks the next callback among those that are ready (legal for
            asyncio's documentation, although much code relies on first come, first served); None
            keeps their order.
        max_steps: turns before :class:`Livelock`.
        max_stuck: turns without time going on before :class:`Livelock`.
        wall: real seconds before :class:`Livelock`. One callback that never ends is not noticed.
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
        # asyncio fires what is due within its clock's resolution; a nanosecond is less than a float's
        # step from 2**24 seconds on, and a timer would be nearly due for ever.
        self._clock_resolution = RESOLUTION
        if shuffle is not None:
            self._ready = _Shuffled(shuffle)

    def time(self) -> float:
        """Virtual seconds."""
        return self.virtual.now

    def clock(self) -> int:
        """Virtual nanoseconds, for ``ActorSystem(clock=...)``."""
        return round(self.virtual.now * 1e9)

    def fail(self, error: BaseException) -> None:
        """Have the next turn raise ``error`` out of the loop; the first one wins."""
        if self.virtual.failure is None:
            self.virtual.failure = error

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        """Refuse: a worker thread has its own time.

        Raises:
            CannotSimulate: always.
        """
        raise CannotSimulate(f"{func!r} would run in a thread; a simulation has only one")
