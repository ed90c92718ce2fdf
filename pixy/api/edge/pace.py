"""Decide how many requests begin before the event loop gives way, and whose are next.

If a thousand connections send a request at the same time, all of these would begin in one turn of the loop. Whoever
comes then, even a probe, would wait for all of them, and again in each further turn that his connection needs. So
requests begin for :data:`TURN` in a turn; the others wait for the next turns, and callers with few of them do not wait
behind callers with many.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final

TURN: Final = 0.005
"""Seconds from the first request that begins in a turn to the last one."""
BATCH: Final = 32
"""Requests that have waited and begin in one turn."""
STEPS: Final = 16
"""Steps of long requests (:data:`pixy.api.limits.STEP`), or pieces of what arrives, that have waited and are done in one turn, if
that takes no longer than :data:`TURN`. With 4 of them, requests of 20 KB beside many small ones got a third of their rate: 620
instead of 1,830 a second, while the small ones, 9,000 a second, gained a twentieth.
"""
HANDSHAKES: Final = 4
"""TLS handshakes that begin in one turn. Their work comes later, where no clock sees it: half a millisecond each."""
PROBE: Final = "probe "
"""Stands before the address of who asks whether the daemon works: such a request waits for other probes only."""


class Pace:
    """Gives requests their turns, for all listeners of a process. For one event loop, so it needs no lock.

    Args:
        clock: seconds.
        batch: requests that have waited and begin in one turn, if that takes no longer than :data:`TURN`.
    """

    def __init__(self, clock: Callable[[], float], batch: int = BATCH) -> None:
        self._clock = clock
        self._batch = batch
        self._began: float | None = None
        """The clock's time at which the first request of this turn began; None: none has begun."""
        self._turns = False
        """True if another turn is to come."""
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._late: list[tuple[str, asyncio.Future[None]]] = []
        """Those for whom there was no time in this turn."""
        self._first = False
        """True if this turn is theirs: newcomers, who come before them in it, would take all of its time once more."""
        self.number = 0
        """Of this turn; while nobody begins, it stays the same."""
        self.arrived = 0
        """Requests since the last turn, counted by whoever lets a few begin without :meth:`enter`; ``batch`` if others wait."""

    def enter(self, caller: str) -> asyncio.Future[None] | None:
        """Begin a request; or return what :meth:`wait` takes.

        Args:
            caller: the address, as nobody is recognized yet; with :data:`PROBE` before it for a probe.
        """
        if not self._waiting and not self._late and not self._first:
            began = self._began
            if began is None:
                self._begin()
                return None
            if self._clock() - began < TURN:
                return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        return turn

    def queue(self, caller: str) -> asyncio.Future[None]:
        """Return what :meth:`wait` takes, also if there is time: for what takes long only after it has begun. Few begin in a turn.

        Args:
            caller: as for :meth:`enter`.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        if not self._turns:
            self._turns = True
            asyncio.get_running_loop().call_soon(self._next)
        return turn

    async def wait(self, turn: asyncio.Future[None], caller: str) -> None:
        """Wait for the turn of a request.

        Args:
            turn: as returned by :meth:`enter`.
            caller: as told there.
        """
        again: asyncio.Future[None] | None = turn
        while again is not None:
            await again
            again = self.again(caller)

    def again(self, caller: str) -> asyncio.Future[None] | None:
        """Begin a request that has waited; or, if others of this turn have taken long, return what it has to wait for once more."""
        began = self._began
        if began is None:
            self._begin()
            return None
        if self._clock() - began < TURN:
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._late.append((caller, turn))
        return turn

    def _begin(self) -> None:
        """Begin the first request of this turn."""
        self._began = self._clock()
        if not self._turns:
            self._turns = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        """Begin a turn of the loop: let some of those who wait begin, caller by caller; first those who were late."""
        waiting, left = self._waiting, self._batch
        self.number += 1
        self._began, self.arrived, self._first = None, 0, bool(self._late)
        if self._first:
            for caller, turn in reversed(self._late):
                waiting.setdefault(caller, deque()).appendleft(turn)
                waiting.move_to_end(caller, last=False)
            self._late.clear()
        if not waiting:
            self._turns = False
            return
        while waiting and left:
            caller, queue = waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                waiting[caller] = queue
            if not turn.done():  # else the client has gone
                turn.set_result(None)
                left -= 1
        if waiting or self._first:
            self.arrived = self._batch
        asyncio.get_running_loop().call_soon(self._next)


__all__ = ["BATCH", "HANDSHAKES", "PROBE", "STEPS", "TURN", "Pace"]
