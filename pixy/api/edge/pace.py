"""How many requests begin before the event loop gives way, and whose are next.

Requests that a thousand connections send at the same time would all begin in one turn of the loop, and whoever comes
then, be it a probe, would wait for all of them, and once more in each turn that his connection takes. So a turn begins
requests for :data:`TURN`; the others wait for the next turns, and callers with few of them do not wait behind callers
with many.
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
STEPS: Final = 4
"""Steps of long requests (:data:`pixy.api.limits.STEP`), or pieces of what arrives, that have waited and are done in one turn."""
PROBE: Final = "probe "
"""Stands before the address of who asks whether the daemon works: such a request waits for other probes only."""


class Pace:
    """Gives requests their turns, for all listeners of a process. For one event loop, so it needs no lock.

    Args:
        clock: seconds.
        batch: requests that have waited and begin in one turn.
    """

    def __init__(self, clock: Callable[[], float], batch: int = BATCH) -> None:
        self._clock = clock
        self._batch = batch
        self._began: float | None = None
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    def enter(self, caller: str) -> asyncio.Future[None] | None:
        """Begin a request; or return what to wait for before.

        Args:
            caller: the address, as nobody is recognized yet; with :data:`PROBE` before it for a probe.
        """
        began = self._began
        if began is None:  # the first of this turn
            self._began = self._clock()
            asyncio.get_running_loop().call_soon(self._next)
            return None
        if not self._waiting and self._clock() - began < TURN:
            return None
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        return turn

    def _next(self) -> None:
        """A turn of the loop begins: let some of those who wait begin, caller by caller."""
        left = self._batch
        while self._waiting and left:
            caller, queue = self._waiting.popitem(last=False)
            turn = queue.popleft()
            if queue:
                self._waiting[caller] = queue
            if not turn.done():  # else the client has gone
                turn.set_result(None)
                left -= 1
        if self._waiting:
            self._began = self._clock()
            asyncio.get_running_loop().call_soon(self._next)
        else:
            self._began = None


__all__ = ["BATCH", "PROBE", "STEPS", "TURN", "Pace"]
