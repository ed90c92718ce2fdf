"""A bounded mailbox with lanes of their own for what must work when it is full.

Lanes, in the order in which they are served, each first in, first out:

- *system*: stop by a parent, supervision, watches, timers. Never full: its senders are the runtime
  itself, and each message in it answers something that is bounded elsewhere.
- *priority*: for ``urgent=True`` and :class:`ControlMessage` (acks, events whose number is bounded
  by what the actor itself asked for). Its bound is ``PRIORITY_FACTOR`` times the capacity.
- *unstashed*: what the actor had put aside and wants now.
- *normal*: ``capacity`` messages; one more meets the overflow policy.

Closing and putting exclude each other: an ask can not slip into a mailbox that nobody will ever read
again (pykka 4.5 loses such asks). Senders in other threads do it under a lock. On the loop where the
actor itself lives nobody takes or closes meanwhile, so the usual message is put without it
(``with lock`` was 150 to 300 of a tell's 650 ns), and taken back under it if it stands beyond the
bound then: a look before would not help, for a sender in a thread can take the last place after it.
Taking needs no lock: one reader, and ``deque.popleft`` is atomic.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError, Timeout

from actors._core.pykka_names import ActorStop
from actors._core.stats import MailboxStatistics
from actors._core.termination import dead_letter
from actors._errors import AskCycle, MailboxFull
from actors._future import Future, on_event_loop
from actors._overflow import FAIL, Overflow

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

DEFAULT_CAPACITY = 10_000
PRIORITY_FACTOR = 16
MAX_WAITING = 10_000
"""Senders that may wait for room in one mailbox at the same time."""

NORMAL, PRIORITY, SYSTEM = "normal", "priority", "system"


class ControlMessage:
    """Base class for messages that always use the priority lane."""

    __slots__ = ()


class Mailbox:
    """Any thread puts, the actor takes. Also what pykka calls an inbox: ``put``, ``get``, ``empty``."""

    __slots__ = (
        "_cell",
        "_lock",
        "_priority",
        "_system",
        "_unstashed",
        "asleep",
        "capacity",
        "closed",
        "dropped",
        "home",
        "hooks",
        "normal",
        "overflow",
        "rare",
        "rejected",
        "waiting",
    )

    def __init__(self, cell: Cell, capacity: int, overflow: Overflow = FAIL) -> None:
        if capacity < 1:
            raise ValueError(f"a mailbox holds one message at least, not {capacity}")
        self.capacity = capacity
        self.overflow = overflow
        self.closed = False
        self.asleep = False
        """Whether the actor waits for a message: the next one put has to wake it."""
        self.rare = False
        """Whether to look beyond the normal lane: set after putting there, reset before looking."""
        self.dropped = self.rejected = 0
        self.hooks = cell.hooks
        self._cell = cell
        self.home = 0 if cell.threaded else cell.system.thread
        self._lock = threading.Lock()
        self.normal: deque[Envelope] = deque()
        # Made when needed: an empty deque takes 760 bytes.
        self._system: deque[Envelope] | None = None
        self._priority: deque[Envelope] | None = None
        self._unstashed: deque[Envelope] | None = None
        self.waiting: deque[tuple[Envelope, Future[None]]] | None = None

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes())

    def _lanes(self) -> Iterator[deque[Envelope]]:
        for lane in (self._system, self._priority, self._unstashed, self.normal):
            if lane:
                yield lane

    def __iter__(self) -> Iterator[Envelope]:
        for lane in self._lanes():
            yield from tuple(lane)

    def empty(self) -> bool:
        """Whether nothing waits in any lane."""
        return not (self.normal or self._priority or self._system or self._unstashed)

    # -- putting --------------------------------------------------------------------------------

    def push(self, envelope: Envelope) -> None:
        """Add a message to the normal lane.

        Raises:
            ActorDeadError: the actor has stopped.
            MailboxFull: no room, and the overflow policy refuses.
        """
        if self.hooks is not None and not self.hooks.admits(self._cell, envelope, NORMAL):
            return
        if get_ident() != self.home or self.closed or self.waiting:
            self._push_locked(envelope)
            return
        lane = self.normal
        lane.append(envelope)
        if len(lane) > self.capacity:
            self.look_again(envelope)
        else:
            self.rouse()

    def _push_locked(self, envelope: Envelope) -> None:
        lock = self._lock
        lock.acquire()  # half of what ``with`` takes
        try:
            closed = self.closed
            # Whoever waits for room comes first: a place that was just freed is theirs.
            fits = not closed and len(self.normal) < self.capacity and not self.waiting
            if fits:
                self.normal.append(envelope)
        finally:
            lock.release()
        if fits:
            self.rouse()
        elif closed:
            raise self.dead(envelope)
        else:
            self.overflow.resolve(self, envelope)

    def look_again(self, envelope: Envelope) -> None:
        """Take a message back that stands beyond the bound. (A request to stop may stand there.)"""
        with self._lock:
            beyond = len(self.normal) > self.capacity and self.normal[-1] is envelope
            if beyond:
                self.normal.pop()
        if beyond:
            self.overflow.resolve(self, envelope)
        else:
            self.rouse()

    def push_priority(self, envelope: Envelope) -> None:
        """Add a message to the priority lane. Raises as :meth:`push` does."""
        if self.hooks is not None and not self.hooks.admits(self._cell, envelope, PRIORITY):
            return
        bound = self.capacity * PRIORITY_FACTOR
        with self._lock:
            if self._priority is None:
                self._priority = deque()
            closed = self.closed
            fits = not closed and len(self._priority) < bound
            if fits:
                self._priority.append(envelope)
                self.rare = True
        if not fits:
            raise self.dead(envelope) if closed else self.full(bound)
        self.rouse()

    def push_system(self, envelope: Envelope) -> bool:
        """Add one of the runtime's own messages; False if the actor has stopped."""
        with self._lock:
            if self.closed:
                return False
            if self._system is None:
                self._system = deque()
            self._system.append(envelope)
            self.rare = True
        self.rouse()
        return True

    def push_stop(self, envelope: Envelope) -> bool:
        """Add a request to stop after what is in the mailbox now; False if the actor has stopped."""
        with self._lock:
            if self.closed:
                return False
            self.normal.append(envelope)
        self.rouse()
        return True

    def deliver(self, envelope: Envelope, lane: str = NORMAL) -> None:
        """Put a message that an instrument held back; a full mailbox drops it."""
        with self._lock:
            room = not self.closed and (lane != NORMAL or len(self.normal) < self.capacity)
            if room and lane == NORMAL:
                self.normal.append(envelope)
            elif room:
                if self._priority is None:
                    self._priority = deque()
                self._priority.append(envelope)
                self.rare = True
        if room:
            self.rouse()
        elif self.closed:
            dead_letter(self._cell, envelope)
        else:
            self.drop(envelope, "held back too long")

    def put(self, envelope: Any) -> None:
        """pykka's way to put an envelope of its own."""
        self.push((envelope.message, envelope.reply_to, self._cell.system.clock(), None, None))

    def rouse(self) -> None:
        """Wake the actor if it sleeps."""
        if self.asleep:
            self.asleep = False
            self._cell.wake()

    # -- taking ---------------------------------------------------------------------------------

    def get(self) -> Envelope | None:
        """Take the next message; None if there is none. Never blocks."""
        if self.rare:
            self.rare = False
            urgent = self._system or self._priority or self._unstashed
            envelope = None
            if urgent:
                envelope = urgent.popleft()
            elif self.normal:
                envelope = self.normal.popleft()
                if self.waiting:
                    self._let_in()
            if self._system or self._priority or self._unstashed or self.waiting:
                self.rare = True
            return envelope
        return self.normal.popleft() if self.normal else None

    def put_back(self, envelopes: list[Envelope]) -> None:
        """What was stashed comes before the normal lane, in order."""
        if self._unstashed is None:
            self._unstashed = deque()
        self._unstashed.extendleft(reversed(envelopes))
        self.rare = True

    def close(self) -> list[Envelope]:
        """Accept nothing more; return what was left, in order. Senders that wait get an error."""
        with self._lock:
            self.closed = True
            left = list(self)
            waiting, self.waiting = self.waiting, None
            self._system = self._priority = self._unstashed = None
            self.normal.clear()
        for envelope, room in waiting or ():
            if envelope[1] is not None:
                left.append(envelope)
            room.try_fail(ActorDeadError(f"{self._cell.ref} not found"))
        return left

    def close_if_empty(self) -> bool:
        """Accept nothing more if nothing is in it and nobody waits; whether it was so."""
        with self._lock:
            if not self.empty() or any(not room.done() for _, room in self.waiting or ()):
                return False
            self.closed = True
            return True

    # -- overflow -------------------------------------------------------------------------------

    def full(self, bound: int | None = None) -> MailboxFull:
        """The error for a message that is refused; counts it."""
        self.rejected += 1
        hint = "; 'await ref.send(...)' waits for room" if on_event_loop() else ""
        return MailboxFull(f"mailbox of {self._cell.path} is full ({bound or self.capacity} messages){hint}")

    def dead(self, envelope: Envelope) -> ActorDeadError:
        """The error for a message to an actor that has stopped."""
        self._cell.system.dead_letter(envelope, self._cell)
        return ActorDeadError(f"{self._cell.ref} not found")

    def drop(self, envelope: Envelope, reason: str) -> None:
        """Count and report a message that is thrown away; its asker gets an error."""
        self.dropped += 1
        reply = envelope[1]
        if reply is not None:
            reply.try_fail(MailboxFull(f"mailbox of {self._cell.path} is full: {reason}"))
        self._cell.system.message_dropped(envelope, self._cell, reason)

    def replace_oldest(self, envelope: Envelope) -> Envelope | None:
        """Add a message and take the oldest one out; requests to stop are never taken."""
        oldest: Envelope | None = None
        with self._lock:
            closed = self.closed
            if not closed:
                if len(self.normal) >= self.capacity:
                    oldest = self._take_oldest()
                self.normal.append(envelope)
        if closed:
            raise self.dead(envelope)
        self.rouse()
        return oldest

    def _take_oldest(self) -> Envelope | None:
        # Not by index: in another thread than the actor's the lane gets shorter meanwhile.
        stops: list[Envelope] = []
        oldest: Envelope | None = None
        while oldest is None and self.normal:
            try:
                candidate = self.normal.popleft()
            except IndexError:  # the actor was faster
                break
            if type(candidate[0]) is ActorStop:
                stops.append(candidate)
            else:
                oldest = candidate
        self.normal.extendleft(reversed(stops))
        return oldest

    def wait_for_room(self, envelope: Envelope) -> Future[None] | None:
        """Queue a message behind a full lane: the future is done when it is in; None if it is now.

        Raises:
            ActorDeadError: the actor has stopped.
            MailboxFull: too many senders wait already.
        """
        room: Future[None] | None = None
        with self._lock:
            closed = self.closed
            if not closed and len(self.normal) < self.capacity and not self.waiting:
                self.normal.append(envelope)
            elif not closed:
                room = self._queue(envelope)
        if room is None:
            if closed:
                raise self.dead(envelope)
            self.rouse()
        return room

    def _queue(self, envelope: Envelope) -> Future[None]:
        if self.waiting is None:
            self.waiting = deque()
        if len(self.waiting) >= MAX_WAITING:
            self.waiting = deque(each for each in self.waiting if not each[1].done())
        if len(self.waiting) >= MAX_WAITING:
            raise self.full(MAX_WAITING)
        room: Future[None] = Future()
        room.target = self._cell
        self.waiting.append((envelope, room))
        self.rare = True
        return room

    def block_for_room(self, room: Future[None], timeout: float | None) -> None:
        """Wait in a thread until the message is in the lane."""
        if on_event_loop():
            room.cancel()
            raise self.full()
        try:
            room.get(timeout=timeout)
        except Timeout:
            if room.cancel():
                raise self.full() from None
        except AskCycle:
            room.cancel()
            raise

    def _let_in(self) -> None:
        # Under the lock a waiting message goes straight into the freed place: nobody overtakes it.
        with self._lock:
            while self.waiting and len(self.normal) < self.capacity:
                envelope, room = self.waiting.popleft()
                reply = envelope[1]
                if (reply is None or not reply.done()) and room.try_set(None):
                    self.normal.append(envelope)

    # -- looking in -----------------------------------------------------------------------------

    def statistics(self) -> MailboxStatistics:
        """Depths, bounds and counts; see :class:`~actors.MailboxStatistics`."""
        lanes = (self.normal, self._priority or (), self._system or ())
        heads: list[int] = []
        for lane in self._lanes():
            with contextlib.suppress(IndexError):  # its actor, in another thread, was faster
                heads.append(lane[0][2])
        oldest = min(heads, default=None)
        now = self._cell.system.clock()
        return MailboxStatistics(
            depth=len(self),
            capacity=self.capacity,
            normal=len(lanes[0]),
            priority=len(lanes[1]),
            system=len(lanes[2]),
            stashed=len(self._cell.stashed or ()),
            waiting=sum(not room.done() for _, room in tuple(self.waiting or ())),
            dropped=self.dropped,
            rejected=self.rejected,
            oldest_age=0.0 if oldest is None else max(0, now - oldest) / 1e9,
        )
