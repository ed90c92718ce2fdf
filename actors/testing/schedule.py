"""Dispatchers that choose, by a seed, which actor handles its next message.

Any choice is legal: mailboxes stay first in, first out, so the order of one sender's messages is
kept; nothing promises an order between actors.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import TYPE_CHECKING

from actors._system import Dispatcher
from actors.testing.loop import CannotSimulate

if TYPE_CHECKING:
    from actors._core.cell import Cell

FAIR = 500
"""Steps in a row after which PCT sends an actor to the back: nobody may keep the others out."""


class SeededDispatcher(Dispatcher):
    """Each step goes to any of the actors that have something to do, all equally likely.

    In one turn of the loop it makes 0, 1, 2, ... steps, half as likely each. So what waits in tasks
    (coroutine handlers, the scenario itself) is now ahead of the actors, now behind.

    Args:
        rng: chance; all decisions come from it.
        loop: the loop to work on; None takes the one that runs when the first actor is scheduled.
    """

    def __init__(self, rng: random.Random, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.rng = rng
        self.steps = 0
        """Steps made so far."""
        self._loop = loop
        self._ready: dict[Cell, None] = {}
        self._armed = False

    def schedule(self, cell: Cell) -> None:
        """See :class:`actors._system.Dispatcher`. Twice is once.

        Raises:
            CannotSimulate: the actor has a thread of its own.
        """
        if cell.threaded:
            raise CannotSimulate(f"{cell.path} has a thread of its own; no seed decides when it runs")
        self._ready[cell] = None
        if not self._armed:
            self._arm()

    def _arm(self) -> None:
        self._armed = True
        loop = self._loop or asyncio.get_running_loop()
        # Not in the context of whichever actor happens to send a message now.
        loop.call_soon(self._turn, context=contextvars.Context())

    def _turn(self) -> None:
        self._armed = False
        try:
            while self._ready and self.rng.random() < 0.5:
                cell = self.choose(list(self._ready))
                del self._ready[cell]
                self.steps += 1
                if cell.step():
                    self._ready[cell] = None
        finally:
            if self._ready and not self._armed:
                self._arm()

    def choose(self, ready: list[Cell]) -> Cell:
        """Who goes next; ``ready`` is never empty."""
        return ready[self.rng.randrange(len(ready))]


class PCTDispatcher(SeededDispatcher):
    """Probabilistic concurrency testing: random priorities, changed at a few random points.

    The ready actor with the highest priority always goes next; at ``depth - 1`` points the one that
    would go gets the lowest. A bug that needs ``depth`` ordered events is found with a probability
    that has a lower bound (Burckhardt et al., 2010), where uniform choice finds long detours poorly.
    The length of the run is not known beforehand, so it is guessed by chance too.
    """

    def __init__(
        self, rng: random.Random, *, depth: int = 3, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(rng, loop=loop)
        length = int(2 ** rng.uniform(3.0, 12.0))
        self._changes = {rng.randrange(length) for _ in range(depth - 1)}
        self._priorities: dict[Cell, float] = {}
        self._lowest = 0.0
        self._last: Cell | None = None
        self._in_a_row = 0

    def choose(self, ready: list[Cell]) -> Cell:
        """The one with the highest priority."""
        for cell in ready:
            if cell not in self._priorities:
                self._priorities[cell] = self.rng.random()
        first = max(ready, key=self._priorities.__getitem__)
        self._in_a_row = self._in_a_row + 1 if first is self._last else 0
        if self.steps in self._changes or self._in_a_row >= FAIR:
            self._lowest -= 1.0
            self._priorities[first] = self._lowest
            self._in_a_row = 0
            first = max(ready, key=self._priorities.__getitem__)
        self._last = first
        return first
