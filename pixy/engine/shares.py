"""Fair parts of what all callers share: one caller never has all of it, so the others find room.

A transport says for whom it works (:data:`caller`); the bounds of the engine ask. Nobody (the empty name) is a program
that embeds the engine, whose work is not told apart.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from contextvars import ContextVar
from typing import Final

caller: Final[ContextVar[str]] = ContextVar("pixy_share", default="")
"""The principal, or the address without ``auth``, for whom this task works; see :mod:`pixy.api.edge.callers`."""


TIMES_FREE: Final = 3
"""One caller may hold at most this many times what is left free: three quarters if he is alone. It also bounds bytes."""


def part(most: int) -> int:
    """Return how many of ``most`` places one caller may hold: three quarters, or all if there are fewer than four."""
    return most - most // (TIMES_FREE + 1)


class Shares:
    """Lets one caller hold at most three quarters of a number of places, and the next one three quarters of the rest.

    So some remain for others, however many take all they can: one may take another place only while he has fewer than
    three times those that are free (dynamic thresholds, as in :mod:`pixy.auth.limits`).

    Args:
        most: all places.
        total: whether all callers together may have no more than ``most``; otherwise somebody else sees to it.
    """

    __slots__ = ("_held", "_most", "_total", "held")

    def __init__(self, most: int, *, total: bool = False) -> None:
        self._most = most
        self._total = total
        self._held: dict[str, int] = {}
        self.held = 0
        """Places that are taken."""

    def enter(self, name: str) -> bool:
        """Take a place; return False if the caller has too many, or all are taken."""
        held = self._held.get(name, 0)
        free = self._most - self.held
        if (name and held >= TIMES_FREE * free) or (self._total and free <= 0):
            return False
        self._held[name] = held + 1
        self.held += 1
        return True

    def leave(self, name: str) -> None:
        """Give a place back."""
        self.held -= 1
        held = self._held[name] - 1
        if held:
            self._held[name] = held
        else:
            del self._held[name]


class Turns:
    """Places for which callers wait; whoever has none, or few waiting, does not queue behind whoever has many.

    For one event loop, so it needs no lock.

    Args:
        most: all places; one caller has three quarters of them at most.
    """

    def __init__(self, most: int) -> None:
        self._shares = Shares(most, total=True)
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def held(self) -> int:
        """Places that are taken."""
        return self._shares.held

    def take(self, name: str) -> bool:
        """Take a place if there is one now; return whether there was."""
        return name not in self._waiting and self._shares.enter(name)

    async def enter(self, name: str) -> None:
        """Take a place; wait for one if need be."""
        if self.take(name):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(name)  # it had come meanwhile
            raise

    def leave(self, name: str) -> None:
        """Give a place back; those who wait get it in turn, caller by caller."""
        self._shares.leave(name)
        if not self._waiting:
            return
        for waiting in tuple(self._waiting):
            if self._shares.enter(waiting):
                if self._give(waiting):
                    return
                self._shares.leave(waiting)

    def _give(self, name: str) -> bool:
        """Wake one who waits, if he still does."""
        queue = self._waiting.pop(name)
        while queue and (turn := queue.popleft()).done():
            pass  # it was cancelled
        if queue:
            self._waiting[name] = queue  # behind the other callers
        if turn.done():
            return False
        turn.set_result(None)
        return True


__all__ = ["TIMES_FREE", "Shares", "Turns", "caller", "part"]
