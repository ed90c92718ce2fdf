"""What must hold in every run of every system, checked while it runs and when it is over.

An instrument that raises is removed by the runtime, so a violation is noted and handed to
``on_violation`` instead (a simulation ends with it at once).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pykka

from actors._core.context import current
from actors._core.instruments import Instrument
from actors._core.lifecycle import RUNNING, STOPPED
from actors._core.mailbox import NORMAL, PRIORITY_FACTOR
from actors._core.pykka_names import ActorStop
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

MOST = 50
"""Violations that are kept; a broken runtime makes one per message."""


def sender_of(envelope: Envelope) -> object:
    """Whose order of messages is kept: the sending actor; outside of actors the running task."""
    sender = envelope[3]
    if sender is not None:
        return sender
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # another thread, or no loop runs


class _Trail:
    """What is remembered of one actor."""

    __slots__ = ("actor", "begun", "dropped", "ended", "errors", "handling", "last", "restarts", "stopped")

    def __init__(self) -> None:
        self.begun = self.ended = self.errors = self.dropped = 0
        self.handling: tuple[Envelope, int] | None = None
        self.last: dict[tuple[object, str], int] = {}
        self.restarts: deque[float] = deque()
        self.stopped = False
        self.actor: Any = None


class Invariants(Instrument):
    """Watches one system.

    Args:
        on_violation: gets each violation's text, once.

    Checked on the way: messages are handled by running actors only, one at a time; the order of
    each sender's messages within a lane is kept; no mailbox or stash is above its bound; nobody is
    restarted more often than its intensity allows; ``on_stop`` runs once per life. :meth:`check_end`
    has what can be told only at the end.
    """

    def __init__(self, on_violation: Callable[[str], object] | None = None) -> None:
        self.violations: list[str] = []
        self._on_violation = on_violation
        self._system: ActorSystem
        self._trails: dict[Cell, _Trail] = {}
        self._paths: dict[str, Cell] = {}
        self._order: dict[int, tuple[Envelope, object, str, int]] = {}
        self._sent = 0
        self._asks: list[tuple[str, Future[Any]]] = []
        self._answers: list[tuple[str, Future[Any], int, Any]] = []
        self._events: Counter[type] = Counter()

    def install(self, system: ActorSystem) -> Callable[[], None]:
        """Begin to watch, best before the first actor; the function that is returned ends it."""
        self._system = system
        leave = system.events.subscribe(self._happened, Event)
        remove = system.instrument(self)

        def uninstall() -> None:
            leave()
            remove()

        return uninstall

    def violated(self, text: str) -> None:
        """Note a violation."""
        if text not in self.violations and len(self.violations) < MOST:
            self.violations.append(text)
            if self._on_violation is not None:
                self._on_violation(text)

    def _trail(self, cell: Cell) -> _Trail:
        trail = self._trails.get(cell)
        if trail is None:
            trail = self._trails[cell] = _Trail()
            self._paths[cell.path] = cell
        return trail

    # -- messages -------------------------------------------------------------------------------

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """Number the message, look at the mailbox."""
        self._sent += 1
        self._order[id(envelope)] = (envelope, sender_of(envelope), lane, self._sent)
        self._check_bounds(cell)
        return True

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """Check who handles what, and in which order."""
        trail = self._trail(cell)
        kind = type(envelope[0]).__name__
        if cell.state != RUNNING or trail.stopped:
            state = STOPPED if trail.stopped else cell.state
            self.violated(f"processed after stop: {cell.path} handles {kind} and is {state}")
        if trail.handling is not None and trail.handling[1] == cell.restarts:
            other = type(trail.handling[0][0]).__name__
            self.violated(f"two at a time: {cell.path} handles {kind}, and {other} is not done")
        trail.begun += 1
        trail.handling = (envelope, cell.restarts)
        self._check_order(cell, trail, envelope)
        self._check_bounds(cell)

    def _check_order(self, cell: Cell, trail: _Trail, envelope: Envelope) -> None:
        known = self._order.pop(id(envelope), None)
        if known is None or known[0] is not envelope:
            return  # was stashed: it had its turn; or one of the runtime's own
        _, sender, lane, number = known
        if trail.last.get((sender, lane), 0) > number:
            self.violated(
                f"order: {cell.path} handles {type(envelope[0]).__name__} of {_name(sender)} "
                f"({lane} lane) after a message that was sent later"
            )
        else:
            trail.last[sender, lane] = number

    def _check_bounds(self, cell: Cell) -> None:
        mailbox = cell.mailbox
        normal = len(mailbox.normal)
        if normal > mailbox.capacity:  # requests to stop are above the bound
            normal = sum(type(envelope[0]) is not ActorStop for envelope in mailbox.normal)
        for lane, count, bound in (
            (NORMAL, normal, mailbox.capacity),
            ("priority", len(mailbox._priority or ()), mailbox.capacity * PRIORITY_FACTOR),
            ("stash", len(cell.stashed or ()), cell.actor_class.stash_capacity),
        ):
            if count > bound:
                self.violated(f"bound: {cell.path} has {count} messages in its {lane}, {bound} allowed")

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Count; remember the answer."""
        trail = self._trail(cell)
        trail.handling = None
        trail.ended += 1
        trail.errors += error is not None
        reply = envelope[1]
        if reply is not None and reply.done():
            self._answers.append((self._asked(cell, envelope), reply, reply._state, reply._value))

    def asked(self, cell: Cell, reply: Future[Any]) -> None:
        """Remember who waits."""
        sender = current.get()
        asker = "outside" if sender is None else sender.path
        self._asks.append((f"{asker} asked {cell.path}", reply))

    @staticmethod
    def _asked(cell: Cell, envelope: Envelope) -> str:
        return f"the answer of {cell.path} to {type(envelope[0]).__name__}"

    # -- events ---------------------------------------------------------------------------------

    def _happened(self, event: Event) -> None:
        self._events[type(event)] += 1
        if isinstance(event, ActorStarted):
            self._started(event.path)
        elif isinstance(event, ActorStopped):
            cell = self._paths.get(event.path)
            if cell is not None:
                self._trails[cell].stopped = True
        elif isinstance(event, ActorFailed):
            cell = self._paths.get(event.path)
            if cell is not None:
                self._trails[cell].handling = None
        elif isinstance(event, ActorRestarting):
            self._restarting(event)
        elif isinstance(event, Dropped):
            cell = self._paths.get(event.recipient)
            if cell is not None:
                self._trails[cell].dropped += 1

    def _started(self, path: str) -> None:
        ref = self._system.lookup(path)
        if ref is None:
            return
        cell = ref._cell
        trail = self._trail(cell)
        self._paths[path] = cell
        if trail.stopped:
            self.violated(f"started after stop: {path}")
        actor = cell.actor
        if actor is not None and type(actor).on_stop is not pykka.Actor.on_stop and trail.actor is not actor:
            trail.actor = actor
            self._count_stops(path, actor)

    def _count_stops(self, path: str, actor: Any) -> None:
        hook, calls = actor.on_stop, 0

        def on_stop() -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                self.violated(f"on_stop: {path} is told to stop {calls} times in one life")
            return hook()

        actor.on_stop = on_stop

    def _restarting(self, event: ActorRestarting) -> None:
        cell = self._paths.get(event.path)
        if cell is None:
            return
        allowed = cell.supervision.intensity
        times, now = self._trails[cell].restarts, self._system.loop.time()
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
        """After ``system.stop()``, when nothing is left to happen.

        Each ask has an answer, and still the one that it got first; no actor, timer, task or duty
        to answer is left; the counters that users see agree with what was seen here.
        """
        for who, reply in self._asks:
            if not reply.done():
                self.violated(f"ask: {who} and never got an answer")
        for who, reply, state, value in self._answers:
            if reply._state != state or reply._value is not value:
                self.violated(f"ask: {who} changed after it was given")
        for path in self._system.paths():
            self.violated(f"left behind: {path} is still in the tree")
        for cell, trail in self._trails.items():
            self._check_left(cell)
            self._check_counters(cell, trail)
        letters = self._events[DeadLetter]
        if self._system.dead_letters != letters:
            self.violated(f"counters: {self._system.dead_letters} dead letters, {letters} were seen")
        if self not in self._system._hooks.instruments:
            self.violated("the invariants themselves failed (see the log)")

    def _check_left(self, cell: Cell) -> None:
        path = cell.path
        if cell.state != STOPPED:
            self.violated(f"left behind: {path} is {cell.state}")
        if cell._timers is not None and cell._timers.keys():
            self.violated(f"left behind: {path} has timers {cell._timers.keys()}")
        if any(not task.done() for task in (*(cell._tasks or ()), cell.task) if task is not None):
            self.violated(f"left behind: {path} has tasks")
        if any(not reply.done() for reply in cell._owed or ()):
            self.violated(f"left behind: {path} owes replies")
        if len(cell.mailbox) or cell.stashed:
            self.violated(f"left behind: {path} has messages")

    def _check_counters(self, cell: Cell, trail: _Trail) -> None:
        statistics = cell.statistics()
        for name, counted, seen in (
            ("processed", statistics.processed, trail.ended),
            ("failed", statistics.failed, trail.errors),
            ("dropped", statistics.mailbox.dropped, trail.dropped),
        ):
            # What fails beside the mailbox (hooks, tasks) is no message.
            if counted != seen:
                self.violated(f"counters: {cell.path} counts {counted} {name}, {seen} were seen")


def _name(sender: object) -> str:
    return str(getattr(sender, "path", "outside"))


__all__ = ["Invariants", "sender_of"]
