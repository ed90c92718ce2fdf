"""Events of a system and their subscribers: lifecycle, failures, dead letters.

Events are rare compared with messages. Without a subscriber, an event costs one look into a dict.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pykka import ActorDeadError

from actors._core.error_fields import is_a
from actors._core.error_text import repr_of_fields
from actors._core.interruption import failed_itself
from actors._core.log_safely import log_safely
from actors._errors import MailboxFull, SpawnRefused

if TYPE_CHECKING:
    from actors._ref import ActorRef

logger = logging.getLogger("actors")


@dataclass(frozen=True, slots=True, repr=False)
class Event:
    """Base of all events. A subscriber may print one whatever the message in it does."""

    __repr__ = repr_of_fields


@dataclass(frozen=True, slots=True, repr=False)
class ActorStarted(Event):
    """An actor's ``on_start`` has succeeded; ``restarts`` is 0 in its first life."""

    path: str
    actor_class: str
    restarts: int


@dataclass(frozen=True, slots=True, repr=False)
class ActorStopped(Event):
    """An actor has stopped for good; ``error`` is its last failure, None if it was stopped."""

    path: str
    actor_class: str
    error: BaseException | None


@dataclass(frozen=True, slots=True, repr=False)
class ActorFailed(Event):
    """A crash report.

    ``where`` is the hook that failed, ``on_receive`` or ``task``; ``directive`` is the supervisor's
    decision (``ignored`` if the actor was between lives or stopping); ``failures`` is their number in the
    window of the intensity. ``message`` is the type of the message whose handler failed (its content is
    not kept); ``mailbox`` is the number of messages that wait. ``recent`` has the headers of the last
    messages, newest last: (type, sender's path or None, seconds since it was sent).
    """

    path: str
    actor_class: str
    where: str
    error: BaseException
    directive: str
    failures: int
    message: str | None
    mailbox: int
    recent: tuple[tuple[str, str | None, float], ...]


@dataclass(frozen=True, slots=True, repr=False)
class ActorRestarting(Event):
    """A restart follows in ``delay`` seconds, the ``restarts``-th of ``intensity`` allowed in the window."""

    path: str
    delay: float
    restarts: int
    intensity: int


@dataclass(frozen=True, slots=True, repr=False)
class DeadLetter(Event):
    """A message to a stopped actor, or one that was left in its mailbox."""

    message: Any
    recipient: str
    sender: str | None
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Dropped(Event):
    """A message that a full mailbox's policy, or an instrument, has dropped."""

    message: Any
    recipient: str
    sender: str | None
    reason: str


@dataclass(frozen=True, slots=True, repr=False)
class Unhandled(Event):
    """A message that no handler of the actor handles."""

    message: Any
    recipient: str


@dataclass(frozen=True, slots=True, repr=False)
class SlowHandler(Event):
    """A plain handler ran for ``seconds`` on the loop's thread (or the actor's own)."""

    path: str
    message: str
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class LoopBlocked(Event):
    """The loop has not turned for ``seconds`` and may still be blocked.

    ``path`` is the actor whose code runs, if any; ``stack`` is the stack of the loop's thread. For ``starved`` of the seconds the thread
    waited for a processor: that is the machine's fault, not the code's. It is 0 where the system does not tell (only Linux does).
    """

    seconds: float
    path: str | None
    stack: str
    starved: float = 0.0


@dataclass(frozen=True, slots=True, repr=False)
class AskCycleFound(Event):
    """An ask was refused because its actors would wait for each other for ever.

    ``paths`` are the actors', with the first one again at the end.
    """

    paths: tuple[str, ...]


E = TypeVar("E", bound=Event)
Subscriber = Callable[[Any], None]


class EventStream:
    """Publish and subscribe. A subscriber that raises is removed, and so is an actor when it stops.

    ``SpawnRefused`` does not count: a subscriber that replaces actors is not to do so during a stop.
    """

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], list[Subscriber]] = {}
        self._lock = threading.RLock()  # threads publish, too, and so may a signal handler

    def subscribe(self, subscriber: ActorRef[Any] | Subscriber, *kinds: type[Event]) -> Callable[[], None]:
        """Pass events to an actor (as messages) or to a function.

        Args:
            subscriber: the actor's ref or the function.
            kinds: classes of events; none, or :class:`Event`, stands for all.

        Returns:
            a function that ends the subscription.

        Raises:
            TypeError: ``subscriber`` is neither a ref nor a function, or a kind is no class of events.
        """
        if not (callable(subscriber) or hasattr(subscriber, "tell")):
            raise TypeError(f"a subscriber is a function or an actor's ref, not {subscriber!r}")
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Event)):
                raise TypeError(f"events are subscribed to by their classes, not by {kind!r}")
        # One object per subscription: a function may have several.
        listener: _Call | _Teller
        if callable(subscriber):
            listener, cell = _Call(subscriber), None
        else:
            listener, cell = (
                _Teller(subscriber),
                getattr(subscriber, "_cell", None),
            )  # a remote one has none here
        with self._lock:
            for kind in kinds or ALL:
                for each in _family(kind):
                    self._subscribers.setdefault(each, []).append(listener)

        def end() -> None:
            self._remove(listener)
            if cell is not None and cell.subscriptions:
                cell.subscriptions.pop(end, None)

        if cell is not None:
            if cell.subscriptions is None:
                cell.subscriptions = {}
            cell.subscriptions[end] = None
            if cell.stopped_flag.is_set():  # meanwhile, in another thread
                end()
        return end

    def wants(self, kind: type[Event]) -> bool:
        """Tell whether events of this class have a subscriber."""
        return kind in self._subscribers

    def publish(self, event: Event) -> None:
        """Pass an event to its subscribers."""
        for listener in tuple(self._subscribers.get(type(event), ())):
            try:
                listener(event)
            except BaseException as error:
                if not failed_itself(error) or is_a(error, SpawnRefused):
                    continue  # who replaces actors that have stopped goes on after the stop
                if not is_a(error, ActorDeadError):
                    log_safely(logger.exception, "the event subscriber %r failed and is removed", listener)
                self._remove(listener)

    def _remove(self, listener: Subscriber) -> None:
        with self._lock:
            for kind, listeners in tuple(self._subscribers.items()):
                if listener in listeners:
                    listeners.remove(listener)
                if not listeners:
                    del self._subscribers[kind]


class _Call:
    """Passes events to a function."""

    def __init__(self, function: Subscriber) -> None:
        self._function = function

    def __call__(self, event: Event) -> None:
        self._function(event)

    def __repr__(self) -> str:
        return repr(self._function)


class _Teller:
    """Passes events to an actor; events that its mailbox has no room for are counted and lost."""

    def __init__(self, ref: ActorRef[Any]) -> None:
        self._ref = ref
        self.lost = 0

    def __call__(self, event: Event) -> None:
        # An event about the subscriber's own mailbox must not cause another one.
        if getattr(event, "recipient", None) == self._ref.path:
            return
        try:
            self._ref.tell(event)
        except MailboxFull:
            self.lost += 1


def _family(kind: type[Event]) -> list[type[Event]]:
    return list(ALL) if kind is Event else [kind]


ALL: tuple[type[Event], ...] = (
    ActorStarted,
    ActorStopped,
    ActorFailed,
    ActorRestarting,
    DeadLetter,
    Dropped,
    Unhandled,
    SlowHandler,
    LoopBlocked,
    AskCycleFound,
)
