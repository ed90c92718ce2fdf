"""Dispatchers that choose at random, from a seed, which actor handles its next message.

Every choice is legal. Mailboxes stay first in, first out, which keeps the order of one sender's messages, and
the runtime promises no order between actors.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from typing import TYPE_CHECKING

from actors._core.dispatcher import Dispatcher
from actors.testing.loop import CannotSimulate

if TYPE_CHECKING:
    from actors._core.cell import Cell

MAX_IN_A_ROW = 500
"""Steps of one actor in a row after which PCT gives it the lowest priority, so that others run too."""


class SeededDispatcher(Dispatcher):
    """Give each step to one of the ready actors, all equally likely.

    In one turn of the loop it makes 0, 1, 2, ... steps, each number half as likely as the one before. So
    tasks (coroutine handlers, the scenario itself) run sometimes before and sometimes after the actors.

    Args:
        rng: random numbers for all decisions.
        loop: the loop to run on; None takes the loop that runs when the first actor is scheduled.
    """

    def __init__(self, rng: random.Random, *, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.rng = rng
        self.steps = 0
        """Number of steps made so far."""
        self._loop = loop
        self._ready: dict[Cell, None] = {}
        self._armed = False

    def schedule(self, cell: Cell) -> None:
        """Mark an actor as ready, see :class:`actors._core.dispatcher.Dispatcher`. A second call has no effect.

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
        # A fresh context, because the current one belongs to the actor that sends a message now.
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
        """Choose the actor that goes next; ``ready`` is never empty."""
        return ready[self.rng.randrange(len(ready))]


class PCTDispatcher(SeededDispatcher):
    """Probabilistic concurrency testing (PCT): random priorities that change at a few random points.

    The ready actor with the highest priority goes next; at ``depth - 1`` random steps this actor gets the
    lowest priority instead. PCT finds a bug that needs ``depth`` ordered events with a guaranteed minimum
    probability (Burckhardt et al., 2010), while uniform choice rarely takes long detours. The length of the
    run is not known in advance, so it is drawn at random too.

    Args:
        rng: random numbers for all decisions.
        depth: number of ordered events that the bug needs, at least 1.
        loop: the loop to run on; None takes the loop that runs when the first actor is scheduled.
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
        """Choose the actor with the highest priority."""
        for cell in ready:
            if cell not in self._priorities:
                self._priorities[cell] = self.rng.random()
        first = max(ready, key=self._priorities.__getitem__)
        self._in_a_row = self._in_a_row + 1 if first is self._last else 0
        if self.steps in self._changes or self._in_a_row >= MAX_IN_A_ROW:
            self._lowest -= 1.0
            self._priorities[first] = self._lowest
            self._in_a_row = 0
            first = max(ready, key=self._priorities.__getitem__)
        self._last = first
        return first
