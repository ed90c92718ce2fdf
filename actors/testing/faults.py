"""Inject faults: crash on a message, delay it, drop it, reorder messages of different senders.

A fault is a value that selects messages. Each simulation installs a fresh copy with random numbers of its
own, so one fault object serves any number of seeds.
"""

from __future__ import annotations

import asyncio
import copy
import fnmatch
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from actors._core.instruments import HELD, Held, Injected, Instrument
from actors._messages import ChildStopped, Terminated
from actors.testing.invariants import sender_of

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

F = TypeVar("F", bound="Fault")

_OWN = (ChildStopped, Terminated)
"""The runtime's own messages that are handled by the actor's code."""


class Fault(Instrument):
    """Base class of faults; selects the messages to hit.

    The runtime's own messages (stops, watches, supervision) are never hit.

    Args:
        path: shell pattern for the path of the receiving actor.
        message: class or classes of the message, or a predicate; None matches any message.
        probability: probability of hitting a message that matches, 0 to 1.
        nth: hit only the n-th message that matches, counted from 1.
        times: hit at most this many messages.

    Raises:
        ValueError: the probability is out of range.
    """

    def __init__(
        self,
        path: str = "*",
        message: type | tuple[type, ...] | Callable[[Any], bool] | None = None,
        *,
        probability: float = 1.0,
        nth: int | None = None,
        times: int | None = None,
    ) -> None:
        if not 0.0 <= probability <= 1.0:
            raise ValueError(f"probability must be 0 to 1, not {probability}")
        self.path, self.message = path, message
        self.probability, self.nth, self.times = probability, nth, times
        self.seen = 0
        """Number of messages that matched so far."""
        self.hits = 0
        """Number of messages hit so far."""
        self._rng = random.Random(0)
        self._loop: asyncio.AbstractEventLoop | None = None

    def bound(self: F, loop: asyncio.AbstractEventLoop, rng: random.Random) -> F:
        """Return a copy for one run, with its counters at 0.

        Args:
            loop: the simulation's loop.
            rng: random numbers for the copy's decisions.
        """
        mine = copy.copy(self)
        mine.seen = mine.hits = 0
        mine._loop, mine._rng = loop, rng
        return mine

    def hit(self, cell: Cell, envelope: Envelope) -> bool:
        """Decide whether to hit this message, and count it.

        Args:
            cell: the receiving actor.
            envelope: the message with its sender and reply.
        """
        if isinstance(envelope[0], _OWN) or not self.matches(cell, envelope[0]):
            return False
        self.seen += 1
        if (self.nth is not None and self.seen != self.nth) or self.hits == self.times:
            return False
        if self.probability < 1.0 and self._rng.random() >= self.probability:
            return False
        self.hits += 1
        return True

    def matches(self, cell: Cell, message: Any) -> bool:
        """Return whether path and message match, regardless of the counters.

        Args:
            cell: the receiving actor.
            message: the message.
        """
        if not fnmatch.fnmatchcase(cell.path, self.path):
            return False
        if isinstance(self.message, (type, tuple)):
            return isinstance(message, self.message)
        return self.message is None or bool(self.message(message))

    def flush(self) -> None:
        """Deliver the messages that are held, at the end of a run."""


class Crash(Fault):
    """Raise :class:`~actors.testing.Injected` instead of calling the handler."""

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """See :class:`actors.Instrument`."""
        if self.hit(cell, envelope):
            raise Injected(f"crash {self.hits} of {cell.path}, on {type(envelope[0]).__name__}")


class Drop(Fault):
    """Lose the message.

    The message is counted as dropped and its asker gets ``MailboxFull``, as with an overflow policy.

    Args:
        args: positional arguments of :class:`Fault`.
        silent: do neither; an ask then only ends by its timeout.
        selection: keyword arguments of :class:`Fault`.
    """

    def __init__(self, *args: Any, silent: bool = False, **selection: Any) -> None:
        super().__init__(*args, **selection)
        self.silent = silent

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool | Held:
        """See :class:`actors.Instrument`."""
        if not self.hit(cell, envelope):
            return True
        if not self.silent:
            cell.mailbox.drop(envelope, "fault")
        return HELD


class Delay(Fault):
    """Deliver the message later. Later messages of the same sender do not overtake it.

    Args:
        args: positional arguments of :class:`Fault`.
        seconds: virtual seconds of delay, 0 or more; a pair draws from the range between them.
        selection: keyword arguments of :class:`Fault`.

    Raises:
        ValueError: the range is empty or negative.
    """

    def __init__(
        self, *args: Any, seconds: float | tuple[float, float] = (0.0, 0.1), **selection: Any
    ) -> None:
        super().__init__(*args, **selection)
        self.low, self.high = seconds if isinstance(seconds, tuple) else (seconds, seconds)
        if not 0 <= self.low <= self.high:
            raise ValueError(f"seconds must be an increasing range from 0, not {self.low} to {self.high}")
        self._held: dict[tuple[Cell, object, str], deque[tuple[Envelope, float]]] = {}

    def bound(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> Delay:
        """See :meth:`Fault.bound`."""
        mine = super().bound(loop, rng)
        mine._held = {}
        return mine

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool | Held:
        """See :class:`actors.Instrument`."""
        assert self._loop is not None, "install it with sim.inject() or simulate(faults=...)"
        key = (cell, sender_of(envelope), lane)
        held = self._held.get(key)
        delayed = self.hit(cell, envelope)
        if not delayed and not held:
            return True
        due = self._loop.time()
        if delayed:
            due += self._rng.uniform(self.low, self.high)
        if held is None:
            held = self._held[key] = deque()
        if held:
            due = max(due, held[-1][1])
        held.append((envelope, due))
        # Timers due at the same time fire in any order, so each one delivers the oldest message.
        self._loop.call_at(due, self._release, key)
        return HELD

    def _release(self, key: tuple[Cell, object, str]) -> None:
        held = self._held.get(key)
        if held:
            envelope, _ = held.popleft()
            if not held:
                del self._held[key]
            cell, _, lane = key
            cell.mailbox.deliver(envelope, lane)

    def flush(self) -> None:
        """Deliver all messages that are held."""
        for key in tuple(self._held):
            while key in self._held:
                self._release(key)


class Reorder(Delay):
    """Delay every matching message at random, so that senders overtake each other.

    Only the order of messages from one sender is kept, as on a network with one connection per sender.

    Args:
        args: positional arguments of :class:`Fault`.
        seconds: virtual seconds of delay, as for :class:`Delay`.
        selection: keyword arguments of :class:`Fault`.
    """

    def __init__(
        self, *args: Any, seconds: float | tuple[float, float] = (0.0, 0.01), **selection: Any
    ) -> None:
        super().__init__(*args, seconds=seconds, **selection)
