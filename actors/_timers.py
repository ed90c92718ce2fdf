"""Keyed timers with a generation number.

A cancelled timer's message may be in the mailbox already; the number tells that it is stale
(the trap that Pekko's timers solved the same way).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class TimerFired:
    """What a timer puts into the mailbox."""

    __slots__ = ("generation", "key", "message")

    def __init__(self, key: Any, generation: int, message: Any) -> None:
        self.key = key
        self.generation = generation
        self.message = message


class Timers:
    """The timers of one life of an actor."""

    __slots__ = ("_deliver", "_generation", "_loop", "_timers")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, deliver: Callable[[TimerFired], None]
    ) -> None:
        self._loop = loop
        self._deliver = deliver
        self._generation = 0
        self._timers: dict[Any, tuple[int, asyncio.TimerHandle]] = {}

    def set(self, key: Any, delay: float, message: Any) -> None:
        """Start or replace a timer."""
        self.cancel(key)
        self._generation += 1
        fired = TimerFired(key, self._generation, message)
        self._timers[key] = (self._generation, self._loop.call_later(delay, self._deliver, fired))

    def has(self, key: Any) -> bool:
        """Whether the timer has neither fired nor been cancelled."""
        return key in self._timers

    def cancel(self, key: Any) -> None:
        """Stop a timer if it is set."""
        entry = self._timers.pop(key, None)
        if entry is not None:
            entry[1].cancel()

    def accept(self, fired: TimerFired) -> bool:
        """Whether a timer's message is still wanted; the timer is done then."""
        entry = self._timers.get(fired.key)
        if entry is None or entry[0] != fired.generation:
            return False
        del self._timers[fired.key]
        return True

    def clear(self) -> None:
        """Stop all timers."""
        for _, handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
