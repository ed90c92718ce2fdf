"""The bounded mailbox of an actor; urgent messages have lanes of their own, which work when it is full.

Lanes, in the order of service, each first in, first out:

- *system*: timers. Never full: only the runtime sends to it, and each message in it answers something that has
  a bound elsewhere.
- *priority*: messages with ``urgent=True`` and :class:`ControlMessage` (acks, events whose number is
  bounded by the actor's own requests). Its bound is ``PRIORITY_FACTOR`` times the capacity. Outcomes of piped work stand
  here beyond it: nobody could be told that one was refused. ``pipe_to_self`` bounds them, by ``max_tasks``.
- *unstashed*: messages that the actor had put aside and wants now.
- *normal*: ``capacity`` messages; the overflow policy decides on one more. Requests to stop, and the news that
  a child or a watched actor has stopped, stand here beyond the bound: they come after the messages that were
  sent before, as in Erlang, also after those of senders that wait for room. They are bounded themselves: one request, one
  piece of news per actor.

After ``URGENT_IN_A_ROW`` messages of the first two lanes one of the others is served, so that an actor that
sends itself urgent messages can be stopped. So can one that puts a message aside and wants it again whenever it handles it:
after ``UNSTASHED_IN_A_ROW`` times one of the normal lane is served, and from then on after each further time.

Putting and closing exclude each other, so an ask cannot slip into a mailbox that nobody reads any more
(pykka 4.5 loses such asks). Senders in other threads put under a lock. On the actor's own loop nobody
takes or closes meanwhile, so the usual message is put without the lock (``with lock`` took 150 to 300
of a tell's 650 ns); if the lane is beyond its bound then, the message is taken back under the lock. A
check before the put would not help: a sender in a thread can take the last place after it. Taking needs no
lock: there is one reader, and ``deque.popleft`` is atomic.

A signal handler or a finalizer may interrupt a put, between any two bytecodes, and put something itself in the same
thread. Therefore the lock is reentrant, and what stands under it is right with another put in its middle: a lane
that is made is not made again, no lane is iterated in Python, and a bound may be exceeded by the interrupting message.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pykka import ActorDeadError

from actors._checks import capacity_of
from actors._core import room, waiting
from actors._core.context import origin
from actors._core.dead_letters import answer_dead_letter, publish_dead_letter, publish_dropped
from actors._core.envelope import Outcome
from actors._core.pykka_names import ActorStop
from actors._errors import MailboxFull
from actors._future import Future, on_event_loop
from actors._messages import ChildStopped, Terminated
from actors._overflow import FAIL, Overflow

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

DEFAULT_CAPACITY = 10_000
PRIORITY_FACTOR = 16

URGENT_IN_A_ROW = 64
"""Messages of the system and priority lanes that are served in a row while others wait; then one of these is."""

UNSTASHED_IN_A_ROW = 64
"""How often an actor may put messages aside and want them again before one of the normal lane is served, a stop among them."""

NORMAL, PRIORITY = "normal", "priority"
"""The lanes, as an instrument sees them."""

BEHIND = (ActorStop, ChildStopped, Terminated)
"""The runtime's messages in the normal lane, which may stand beyond its bound."""


class ControlMessage:
    """Base class of messages that always use the priority lane."""

    __slots__ = ()


class Mailbox:
    """Any thread may add messages; only the actor takes them. Also pykka's inbox: ``put``, ``get``, ``empty``.

    Args:
        cell: the actor's.
        capacity: the bound of the normal lane in messages, 1 or more.
        overflow: the policy when it is full.
    """

    __slots__ = (
        "_priority",
        "_system",
        "_unstashed",
        "again",
        "asleep",
        "bound",
        "capacity",
        "cell",
        "closed",
        "dropped",
        "given_up",
        "home",
        "hooks",
        "lock",
        "normal",
        "overflow",
        "rare",
        "rejected",
        "stop_asked",
        "urgent",
        "waiting",
    )

    def __init__(self, cell: Cell, capacity: int, overflow: Overflow = FAIL) -> None:
        capacity_of(capacity)
        self.capacity = self.bound = capacity
        """``bound`` is -1 once the mailbox is closed, so that a put without the lock looks again."""
        self.overflow = overflow
        self.closed = False
        self.asleep = False
        """Whether the next message has to wake the actor."""
        self.rare = False
        """Whether to look beyond the normal lane: set after a put there, reset before a look."""
        self.urgent = 0
        """Messages of the system and priority lanes that were taken in a row."""
        self.again = 0
        """How often the actor has wanted back what it had put aside, since a message of the normal lane was taken."""
        self.stop_asked = False
        """Whether a request to stop is in the normal lane."""
        self.dropped = self.rejected = 0
        self.hooks = cell.hooks
        self.cell = cell
        self.home = 0 if cell.threaded else cell.system.thread
        self.lock = threading.RLock()
        self.normal: deque[Envelope] = deque()
        # Made when needed: an empty deque takes 760 bytes.
        self._system: deque[Envelope] | None = None
        self._priority: deque[Envelope] | None = None
        self._unstashed: deque[Envelope] | None = None
        self.waiting: deque[tuple[Envelope, Future[None]]] | None = None
        self.given_up: room.GivenUp | None = None

    def __len__(self) -> int:
        return sum(len(lane) for lane in self.lanes())

    def lanes(self) -> Iterator[deque[Envelope]]:
        """Yield the lanes that have messages, in the order of service."""
        for lane in (self._system, self._priority, self._unstashed, self.normal):
            if lane:
                yield lane

    def __iter__(self) -> Iterator[Envelope]:
        for lane in self.lanes():
            yield from tuple(lane)

    def empty(self) -> bool:
        """Tell whether all lanes are empty. Senders may wait all the same, for a moment."""
        return not (self.normal or self._priority or self._system or self._unstashed)

    # -- putting --------------------------------------------------------------------------------

    def push(self, envelope: Envelope) -> None:
        """Add a message to the normal lane.

        Raises:
            ActorDeadError: the actor has stopped.
            MailboxFull: no room, and the overflow policy refuses.
        """
        if self.hooks is not None and not self.hooks.admits(self.cell, envelope, NORMAL):
            return
        if get_ident() != self.home or self.closed or self.waiting:
            self._push_locked(envelope)
            return
        lane = self.normal
        lane.append(envelope)
        if len(lane) > self.bound:
            self.look_again(envelope)
        else:
            self.rouse()

    def _push_locked(self, envelope: Envelope) -> None:
        lock = self.lock
        lock.acquire()  # half of what ``with`` takes
        try:
            closed = self.closed
            # Senders that wait for room come first.
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
        """Take a message back that was put without the lock, beyond the bound or while the mailbox was closed."""
        lane = self.normal
        with self.lock:
            # If a drain was faster, it answers the message.
            beyond = len(lane) > self.bound and any(each is envelope for each in reversed(tuple(lane)))
            # Look and pop in one line: nothing comes in between, so it is not another one's message.
            if not (beyond and lane[-1] is envelope and lane.pop() is envelope):
                beyond = beyond and self.closed
                if beyond:
                    lane.remove(envelope)
        if beyond and self.closed:
            raise self.dead(envelope)
        if beyond:
            self.overflow.resolve(self, envelope)
        else:
            self.rouse()

    def push_priority(self, envelope: Envelope) -> None:
        """Add a message to the priority lane. Raises as :meth:`push` does."""
        if self.hooks is None or self.hooks.admits(self.cell, envelope, PRIORITY):
            self.put_priority(envelope)

    def put_priority(self, envelope: Envelope, *, beyond: bool = False) -> None:
        """Add a message that the instruments have admitted to the priority lane, ``beyond`` its bound if need be. Raises as :meth:`push`."""
        bound = self.capacity * PRIORITY_FACTOR
        with self.lock:
            lane = self.priority_lane()
            closed = self.closed
            fits = not closed and (beyond or len(lane) < bound)
            if fits:
                lane.append(envelope)
                self.rare = True
        if not fits:
            raise self.dead(envelope) if closed else self.full(bound)
        self.rouse()

    def beyond(self) -> int:
        """Count the messages beyond the bound of the priority lane: outcomes of piped work."""
        return max(0, len(self._priority or ()) - self.capacity * PRIORITY_FACTOR)

    def priority_lane(self) -> deque[Envelope]:
        """The priority lane, made if there is none yet; under the lock."""
        made: deque[Envelope] = deque()
        # Look and set in one line: a signal handler may have made one meanwhile.
        self._priority = lane = made if self._priority is None else self._priority
        return lane

    def push_system(self, envelope: Envelope) -> bool:
        """Add one of the runtime's messages to the system lane; False if the actor has stopped."""
        with self.lock:
            if self.closed:
                return False
            made: deque[Envelope] = deque()
            self._system = lane = made if self._system is None else self._system
            lane.append(envelope)
            self.rare = True
        self.rouse()
        return True

    def push_behind(self, envelope: Envelope) -> bool:
        """Add one of the runtime's messages behind those of the normal lane, and of the senders that wait for room in it.

        Returns:
            False if the actor has stopped.
        """
        with self.lock:
            if self.closed:
                return False
            waiting.stand_behind(self, envelope)
        self.rouse()
        return True

    def push_stop(self, envelope: Envelope) -> bool:
        """Ask the actor to stop after the messages that it has now, unless it is asked already; see :meth:`push_behind`.

        Returns:
            False if the actor has stopped.
        """
        with self.lock:
            if self.closed:
                return False
            asked, self.stop_asked = self.stop_asked, True
            if not asked:
                waiting.stand_behind(self, envelope)
        self.rouse()
        return True

    def deliver(self, envelope: Envelope, lane: str = NORMAL) -> None:
        """Put a message that an instrument held back; a full mailbox drops it.

        Args:
            envelope: the message with its reply and sender.
            lane: ``NORMAL`` or ``PRIORITY``.
        """
        if isinstance(envelope, Outcome):
            envelope = envelope.guarded()
        with self.lock:
            room = not self.closed and (lane != NORMAL or len(self.normal) < self.capacity)
            if room and lane == NORMAL:
                self.normal.append(envelope)
            elif room:
                self.priority_lane().append(envelope)
                self.rare = True
        if room:
            self.rouse()
        elif self.closed:
            answer_dead_letter(self.cell, envelope)
        else:
            self.drop(envelope, "held back too long")

    def put(self, envelope: Any) -> None:
        """Put one of pykka's envelopes."""
        context = origin()[2]
        self.push((envelope.message, envelope.reply_to, self.cell.system.clock(), None, None, context))

    def rouse(self) -> None:
        """Wake the actor if it sleeps."""
        if self.asleep:
            self.asleep = False
            try:
                self.cell.wake()
            except BaseException:  # a sender at its recursion limit: the next one wakes the actor
                self.asleep = True
                raise

    # -- taking ---------------------------------------------------------------------------------

    def get(self) -> Envelope | None:
        """Take the next message; None if the mailbox is empty. Never blocks."""
        if self.rare:
            self.rare = False
            try:
                envelope = None
                urgent = self._system or self._priority
                if not urgent or self.urgent >= URGENT_IN_A_ROW:
                    envelope = self._take_other()
                if urgent and envelope is None:
                    self.urgent += 1
                    envelope = urgent.popleft() if urgent else None  # else its asks were given up just now
                else:
                    self.urgent = 0
            finally:  # also after Ctrl-C
                if self._system or self._priority or self._unstashed or self.waiting or self.again:
                    self.rare = True
            return envelope
        return self.normal.popleft() if self.normal else None

    def _take_other(self) -> Envelope | None:
        """Take the next message that is not urgent."""
        if self.waiting:  # also if the lane is empty: its last message was taken before they waited
            waiting.let_in(self)
        if self._unstashed and (self.again <= UNSTASHED_IN_A_ROW or not self.normal):
            return self._unstashed.popleft()
        self.again = UNSTASHED_IN_A_ROW if self._unstashed else 0
        envelope = self.normal.popleft() if self.normal else None
        if self.waiting:
            waiting.let_in(self)
        return envelope

    def put_back(self) -> None:
        """Put the messages that the actor has stashed before the normal lane, in order."""
        unstashed = deque((*(self.cell.stashed or ()), *(self._unstashed or ())))
        # In one line, without a call: Ctrl-C neither loses a message nor has it handled twice.
        self._unstashed, self.cell.stashed = unstashed, None
        self.again += 1
        self.rare = True

    # -- overflow -------------------------------------------------------------------------------

    def full(self, bound: int | None = None) -> MailboxFull:
        """Count a refused message; return its error, with ``bound`` (None: the capacity) in the text."""
        self.rejected += 1
        hint = "; 'await ref.send(...)' waits for room" if on_event_loop() else ""
        return MailboxFull(f"mailbox of {self.cell.path} is full ({bound or self.capacity} messages){hint}")

    def dead(self, envelope: Envelope) -> ActorDeadError:
        """Report a message to a stopped actor; return its error."""
        publish_dead_letter(self.cell, envelope)
        return self.cell.dead("not found")

    def drop(self, envelope: Envelope, reason: str, why: str | None = None) -> None:
        """Count and report a dropped message; its asker gets an error.

        Args:
            envelope: the message with its reply and sender.
            reason: for the event and the error.
            why: the error's text behind the path; None says that the mailbox is full.
        """
        self.dropped += 1
        reply = envelope[1]
        if reply is not None:
            path = self.cell.path
            reply.try_fail(MailboxFull(f"{path}: {why}" if why else f"mailbox of {path} is full: {reason}"))
        publish_dropped(self.cell, envelope, reason)

    def gave_up(self) -> None:
        """Make room, now and then, after an ask of this actor was given up. In any thread."""
        room.count(self, self.capacity * PRIORITY_FACTOR)

    def never_dropped(self, envelope: Envelope) -> bool:
        """Tell whether a message stands in the normal lane beyond its bound, and is not dropped for another one."""
        return type(envelope[0]) in BEHIND
