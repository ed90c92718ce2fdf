"""Invariants that hold in every run of every system, checked during the run and at its end.

The runtime removes an instrument that raises. So a violation is not raised but recorded and passed to
``on_violation``; a simulation uses that to end the run at once.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pykka

from actors._core.context import current
from actors._core.inspection import statistics_of
from actors._core.instruments import Instrument
from actors._core.lifecycle import RUNNING, STOPPED
from actors._core.mailbox import BEHIND, NORMAL, PRIORITY_FACTOR
from actors._events import (
    ActorFailed,
    ActorRestarting,
    ActorStarted,
    ActorStopped,
    DeadLetter,
    Dropped,
    Event,
)

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._future import Future
    from actors._system import ActorSystem

MAX_VIOLATIONS = 50
"""Most violations that are kept; a broken runtime makes one per message."""


def sender_of(envelope: Envelope) -> object:
    """Return the sender for the order of messages: an actor, or outside of actors the running task."""
    sender = envelope[3]
    if sender is not None:
        return sender
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # another thread, or no running loop


class _History:
    """The records about one actor."""

    __slots__ = ("actor", "begun", "dropped", "ended", "errors", "handling", "last", "restarts", "stopped")

    def __init__(self) -> None:
        self.begun = self.ended = self.errors = self.dropped = 0
        self.handling: tuple[Envelope, int] | None = None
        self.last: dict[tuple[object, str], int] = {}
        self.restarts: deque[float] = deque()
        self.stopped = False
        self.actor: Any = None


class Invariants(Instrument):
    """Check the invariants of one system.

    Checked during the run: only running actors handle messages, one at a time; the messages of one sender in
    one lane are handled in order; no mailbox or stash exceeds its bound; no actor is restarted more often
    than its intensity allows; ``on_stop`` runs once per life. :meth:`check_end` checks the rest.

    Args:
        on_violation: called once with the text of each violation.
    """

    def __init__(self, on_violation: Callable[[str], object] | None = None) -> None:
        self.violations: list[str] = []
        self._on_violation = on_violation
        self._system: ActorSystem
        self._histories: dict[Cell, _History] = {}
        self._paths: dict[str, Cell] = {}
        self._order: dict[int, tuple[Envelope, object, str, int]] = {}
        self._sent = 0
        self._asks: list[tuple[str, Future[Any]]] = []
        self._replies: list[tuple[str, Future[Any], int, Any]] = []
        self._events: Counter[type] = Counter()

    def install(self, system: ActorSystem) -> Callable[[], None]:
        """Install the checks, preferably before the first actor is spawned.

        Returns:
            A function that removes the checks.
        """
        self._system = system
        leave = system.events.subscribe(self._on_event, Event)
        remove = system.instrument(self)

        def uninstall() -> None:
            leave()
            remove()

        return uninstall

    def violated(self, text: str) -> None:
        """Record a violation."""
        if text not in self.violations and len(self.violations) < MAX_VIOLATIONS:
            self.violations.append(text)
            if self._on_violation is not None:
                self._on_violation(text)

    def _history(self, cell: Cell) -> _History:
        history = self._histories.get(cell)
        if history is None:
            history = self._histories[cell] = _History()
            self._paths[cell.path] = cell
        return history

    # -- messages -------------------------------------------------------------------------------

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """Number the message and check the bounds of the mailbox."""
        self._sent += 1
        self._order[id(envelope)] = (envelope, sender_of(envelope), lane, self._sent)
        self._check_bounds(cell)
        return True

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """Check that the actor may handle this message now."""
        history = self._history(cell)
        kind = type(envelope[0]).__name__
        if cell.state != RUNNING or history.stopped:
            state = STOPPED if history.stopped else cell.state
            self.violated(f"processed after stop: {cell.path} handles {kind} and is {state}")
        if history.handling is not None and history.handling[1] == cell.restarts:
            other = type(history.handling[0][0]).__name__
            self.violated(f"two at a time: {cell.path} handles {kind}, and {other} is not done")
        history.begun += 1
        history.handling = (envelope, cell.restarts)
        self._check_order(cell, history, envelope)
        self._check_bounds(cell)

    def _check_order(self, cell: Cell, history: _History, envelope: Envelope) -> None:
        known = self._order.pop(id(envelope), None)
        if known is None or known[0] is not envelope:
            return  # a stashed message, already handled once, or one of the runtime's own
        _, sender, lane, number = known
        if history.last.get((sender, lane), 0) > number:
            self.violated(
                f"order: {cell.path} handles {type(envelope[0]).__name__} of {_name(sender)} "
                f"({lane} lane) after a message that was sent later"
            )
        else:
            history.last[sender, lane] = number

    def _check_bounds(self, cell: Cell) -> None:
        mailbox = cell.mailbox
        normal = len(mailbox.normal)
        if normal > mailbox.capacity:  # the runtime's own may exceed the bound
            normal = sum(type(envelope[0]) not in BEHIND for envelope in mailbox.normal)
        priority = len(mailbox._priority or ()) - mailbox.beyond()
        for lane, count, bound in (
            (NORMAL, normal, mailbox.capacity),
            ("priority", priority, mailbox.capacity * PRIORITY_FACTOR),
            ("stash", len(cell.stashed or ()), cell.actor_class.stash_capacity),
        ):
            if count > bound:
                self.violated(f"bound: {cell.path} has {count} {lane} messages, {bound} allowed")

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Count the message and remember its reply."""
        history = self._history(cell)
        history.handling = None
        history.ended += 1
        history.errors += error is not None
        reply = envelope[1]
        if reply is not None and reply.done():
            self._replies.append((self._asked(cell, envelope), reply, reply._state, reply._value))

    def asked(self, cell: Cell, reply: Future[Any]) -> None:
        """Remember the asker."""
        sender = current.get()
        asker = "outside" if sender is None else sender.path
        self._asks.append((f"{asker} asked {cell.path}", reply))

    @staticmethod
    def _asked(cell: Cell, envelope: Envelope) -> str:
        return f"the reply of {cell.path} to {type(envelope[0]).__name__}"

    # -- events ---------------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        self._events[type(event)] += 1
        if isinstance(event, ActorStarted):
            self._started(event.path)
        elif isinstance(event, ActorStopped):
            cell = self._paths.get(event.path)
            if cell is not None:
                self._histories[cell].stopped = True
        elif isinstance(event, ActorFailed):
            cell = self._paths.get(event.path)
            if cell is not None:
                self._histories[cell].handling = None
        elif isinstance(event, ActorRestarting):
            self._restarting(event)
        elif isinstance(event, Dropped):
            cell = self._paths.get(event.recipient)
            if cell is not None:
                self._histories[cell].dropped += 1

    def _started(self, path: str) -> None:
        ref = self._system.lookup(path)
        if ref is None:
            return
        cell = ref._cell
        history = self._history(cell)
        self._paths[path] = cell
        if history.stopped:
            self.violated(f"started after stop: {path}")
        actor = cell.actor
        if actor is None or history.actor is actor:
            return
        if type(actor).on_stop is not pykka.Actor.on_stop:
            history.actor = actor
            self._count_stops(path, actor)

    def _count_stops(self, path: str, actor: Any) -> None:
        hook, calls = actor.on_stop, 0

        def on_stop() -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                self.violated(f"on_stop: called {calls} times in one life of {path}")
            return hook()

        actor.on_stop = on_stop

    def _restarting(self, event: ActorRestarting) -> None:
        cell = self._paths.get(event.path)
        if cell is None:
            return
        allowed = cell.supervision.intensity
        times, now = self._histories[cell].restarts, self._system.loop.time()
        times.append(now)
        while times[0] <= now - allowed.window:
            times.popleft()
        if len(times) > allowed.restarts:
            self.violated(
                f"intensity: {event.path} is restarted {len(times)} times within "
                f"{allowed.window:g} s, {allowed.restarts} allowed"
            )

    # -- the end --------------------------------------------------------------------------------

    def check_end(self) -> None:
        """Check the invariants that hold at the end; call it after ``system.stop()``, when nothing is left to
        do.

        Each ask has a reply, which has not changed; no actor, timer, task or unsettled reply is left behind;
        the counters of the runtime agree with the messages and events seen here.
        """
        for who, reply in self._asks:
            if not reply.done():
                self.violated(f"ask: {who} and never got a reply")
        for who, reply, state, value in self._replies:
            if reply._state != state or reply._value is not value:
                self.violated(f"ask: {who} changed after it was settled")
        for path in self._system.paths():
            self.violated(f"left behind: {path} is still in the tree")
        for cell, history in self._histories.items():
            self._check_left(cell)
            self._check_counters(cell, history)
        letters = self._events[DeadLetter]
        if self._system.dead_letters != letters:
            self.violated(f"counters: {self._system.dead_letters} dead letters, {letters} were seen")
        if self not in self._system._hooks.instruments:
            self.violated("the invariants themselves failed (see the log)")

    def _check_left(self, cell: Cell) -> None:
        path = cell.path
        if cell.state != STOPPED:
            self.violated(f"left behind: {path} is {cell.state}")
        if keys := cell.timer_keys():
            self.violated(f"left behind: {path} has timers {keys}")
        if any(not task.done() for task in (*(cell.tasks or ()), cell.task) if task is not None):
            self.violated(f"left behind: {path} has tasks")
        if any(not reply.done() for reply in cell.owed or ()):
            self.violated(f"left behind: {path} owes replies")
        if len(cell.mailbox) or cell.stashed:
            self.violated(f"left behind: {path} has messages")

    def _check_counters(self, cell: Cell, history: _History) -> None:
        statistics = statistics_of(cell)
        for name, counted, seen in (
            ("processed", statistics.processed, history.ended),
            ("failed", statistics.failed, history.errors),
            ("dropped", statistics.mailbox.dropped, history.dropped),
        ):
            # Failures of hooks and tasks are not failures of a message.
            if counted != seen:
                self.violated(f"counters: {cell.path} counts {counted} {name}, {seen} were seen")


def _name(sender: object) -> str:
    return str(getattr(sender, "path", "outside"))


__all__ = ["Invariants", "sender_of"]
