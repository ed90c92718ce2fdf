"""Faults on purpose: crash on a message, delay it, lose it, have senders overtake each other.

Each is a value that says what to hit; a simulation takes a fresh copy with chance of its own, so the
same fault object serves any number of seeds.
"""

from __future__ import annotations

import asyncio
import copy
import fnmatch
import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from actors._core.instruments import Injected, Instrument
from actors.testing.invariants import sender_of

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

F = TypeVar("F", bound="Fault")


class Fault(Instrument):
    """Base of the faults: which messages they hit.

    Args:
        path: shell pattern for the path of the actor that gets the message.
        message: class(es) of the message; or a function that tells; None is any. The runtime's own
            messages (stops, watches, supervision) are never hit.
        probability: chance to hit each message that matches.
        nth: hit only the n-th that matches, counted from 1.
        times: hit at most so many.
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
            raise ValueError(f"a probability is from 0 to 1, not {probability}")
        self.path, self.message = path, message
        self.probability, self.nth, self.times = probability, nth, times
        self.seen = 0
        """Messages that matched so far."""
        self.hits = 0
        """Messages hit so far."""
        self._rng = random.Random(0)
        self._loop: asyncio.AbstractEventLoop | None = None

    def bound(self: F, loop: asyncio.AbstractEventLoop, rng: random.Random) -> F:
        """A copy for one run: its counts begin at 0, its chance is ``rng``."""
        mine = copy.copy(self)
        mine.seen = mine.hits = 0
        mine._loop, mine._rng = loop, rng
        return mine

    def hit(self, cell: Cell, envelope: Envelope) -> bool:
        """Whether this message is one to hit; counts it."""
        if not self.matches(cell, envelope[0]):
            return False
        self.seen += 1
        if (self.nth is not None and self.seen != self.nth) or self.hits == self.times:
            return False
        if self.probability < 1.0 and self._rng.random() >= self.probability:
            return False
        self.hits += 1
        return True

    def matches(self, cell: Cell, message: Any) -> bool:
        """Whether path and message match."""
        if not fnmatch.fnmatchcase(cell.path, self.path):
            return False
        if isinstance(self.message, (type, tuple)):
            return isinstance(message, self.message)
        return self.message is None or bool(self.message(message))

    def flush(self) -> None:
        """Let go of what is held, at the end of a run."""


class Crash(Fault):
    """The handler raises :class:`~actors.testing.Injected` instead of handling the message."""

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """See :class:`actors.Instrument`."""
        if self.hit(cell, envelope):
            raise Injected(f"crash no. {self.hits} of {cell.path}, on {type(envelope[0]).__name__}")


class Drop(Fault):
    """The message does not arrive.

    It is counted as dropped and its asker gets ``MailboxFull``, as by an overflow policy. With
    ``silent`` nobody learns anything: only an ask with a timeout ever ends.
    """

    def __init__(self, *args: Any, silent: bool = False, **selection: Any) -> None:
        super().__init__(*args, **selection)
        self.silent = silent

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """See :class:`actors.Instrument`."""
        if not self.hit(cell, envelope):
            return True
        if not self.silent:
            cell.mailbox.drop(envelope, "fault")
        return False


class Delay(Fault):
    """The message arrives later, and what the same sender sends after it not before it.

    Args:
        args: see :class:`Fault`.
        seconds: how long; a pair draws from that range.
        selection: see :class:`Fault`.
    """

    def __init__(
        self, *args: Any, seconds: float | tuple[float, float] = (0.0, 0.1), **selection: Any
    ) -> None:
        super().__init__(*args, **selection)
        self.low, self.high = seconds if isinstance(seconds, tuple) else (seconds, seconds)
        if not 0 <= self.low <= self.high:
            raise ValueError(f"no delay: from {self.low} to {self.high} s")
        self._held: dict[tuple[Cell, object, str], deque[tuple[Envelope, float]]] = {}

    def bound(self, loop: asyncio.AbstractEventLoop, rng: random.Random) -> Delay:
        """See :meth:`Fault.bound`."""
        mine = super().bound(loop, rng)
        mine._held = {}
        return mine

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
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
        # Timers that are due at the same time fire in any order: each takes the oldest.
        self._loop.call_at(due, self._release, key)
        return False

    def _release(self, key: tuple[Cell, object, str]) -> None:
        held = self._held.get(key)
        if held:
            envelope, _ = held.popleft()
            if not held:
                del self._held[key]
            cell, _, lane = key
            cell.mailbox.deliver(envelope, lane)

    def flush(self) -> None:
        """Deliver all that is held."""
        for key in tuple(self._held):
            while key in self._held:
                self._release(key)


class Reorder(Delay):
    """Delays all messages (that match) by chance, so that senders overtake each other.

    As over a network with several connections: the order per sender is kept, none other.
    """

    def __init__(
        self, *args: Any, seconds: float | tuple[float, float] = (0.0, 0.01), **selection: Any
    ) -> None:
        super().__init__(*args, seconds=seconds, **selection)
