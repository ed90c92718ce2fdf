"""Timers of an actor, by key.

The message of a cancelled or replaced timer may be in the mailbox already. It is stale then, which the
identity of the ``TimerFired`` shows (Pekko's timers have a generation number for that).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from actors._checks import seconds


class TimerFired:
    """The message that a timer puts into the mailbox, around the user's."""

    __slots__ = ("key", "message")

    def __init__(self, key: Any, message: Any) -> None:
        self.key = key
        self.message = message


class _Timer:
    __slots__ = ("every", "fired", "handle", "stopped")

    def __init__(self, fired: TimerFired, every: float | None) -> None:
        self.fired = fired
        self.every = every
        self.handle: asyncio.TimerHandle | None = None
        self.stopped = False


class Timers:
    """The timers of one life of an actor. The actor's own code sets and cancels them, in any thread.

    Args:
        loop: the loop that runs the timers.
        deliver: puts a message into the actor's mailbox.
    """

    __slots__ = ("_deliver", "_loop", "_timers")

    def __init__(self, loop: asyncio.AbstractEventLoop, deliver: Callable[[TimerFired], object]) -> None:
        self._loop = loop
        self._deliver = deliver
        self._timers: dict[Any, _Timer] = {}

    def set(self, key: Any, delay: float, message: Any, every: float | None = None) -> None:
        """Start or replace a timer; see :meth:`actors.Actor.set_timer`.

        Args:
            key: names the timer; one that has the same key is replaced.
            delay: seconds until the message comes, 0 or more.
            message: for the actor.
            every: seconds between further ones, above 0; None for a single message.
        """
        seconds("a timer's delay", delay)
        if every is not None:
            seconds("a timer's interval", every, above_zero=True)
        self.cancel(key)
        timer = self._timers[key] = _Timer(TimerFired(key, message), every)
        self._on_loop(self._arm, timer, delay)

    def has(self, key: Any) -> bool:
        """Tell whether a timer is set: it has a message still to come."""
        return key in self._timers

    def keys(self) -> tuple[Any, ...]:
        """The keys of the timers that are set."""
        return tuple(self._timers)

    def cancel(self, key: Any) -> None:
        """Cancel a timer if it is set."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.stopped = True
            self._on_loop(self._disarm, timer)

    def accept(self, fired: TimerFired) -> bool:
        """Take a timer's message: False if it is stale; a repeating timer is set again."""
        timer = self._timers.get(fired.key)
        if timer is None or timer.fired is not fired:
            return False
        if timer.every is None:
            del self._timers[fired.key]
        else:
            # Only now, so that a busy actor never has more than one tick in its mailbox.
            self._on_loop(self._arm, timer, timer.every)
        return True

    def clear(self) -> None:
        """Cancel all timers."""
        for key in self.keys():
            self.cancel(key)

    def _on_loop(self, call: Callable[..., None], *args: Any) -> None:
        if asyncio._get_running_loop() is self._loop:
            call(*args)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    def _arm(self, timer: _Timer, delay: float) -> None:
        if not timer.stopped:
            timer.handle = self._loop.call_later(delay, self._deliver, timer.fired)

    def _disarm(self, timer: _Timer) -> None:
        if timer.handle is not None:
            timer.handle.cancel()
