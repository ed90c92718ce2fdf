"""What happens in a system, for whoever wants to know: lifecycle, failures, letters that nobody read.

Events are rare next to messages. Publishing without a subscriber costs one look into a dict.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pykka import ActorDeadError

from actors._errors import MailboxFull

if TYPE_CHECKING:
    from actors._ref import ActorRef

logger = logging.getLogger("actors")


@dataclass(frozen=True, slots=True)
class Event:
    """Base of all events."""


@dataclass(frozen=True, slots=True)
class ActorStarted(Event):
    """``on_start`` has ended well; ``restarts`` is 0 for the first life."""

    path: str
    actor_class: str
    restarts: int


@dataclass(frozen=True, slots=True)
class ActorStopped(Event):
    """An actor is gone for good; ``error`` is what ended it, None for a stop."""

    path: str
    actor_class: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class ActorFailed(Event):
    """A crash report.

    ``where`` is the hook that failed, or ``on_receive``; ``directive`` what supervision decided;
    ``failures`` how many lie in the window. ``message`` is the type of the message that was handled
    (its content is not kept), ``recent`` the last messages' headers, newest last: (type, sender's
    path or None, seconds since it was sent). ``mailbox`` is the depth.
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


@dataclass(frozen=True, slots=True)
class ActorRestarting(Event):
    """The next life begins in ``delay`` seconds; ``restarts`` lie in the window of ``intensity``."""

    path: str
    delay: float
    restarts: int
    intensity: int


@dataclass(frozen=True, slots=True)
class DeadLetter(Event):
    """A message to an actor that has stopped, or was left in its mailbox."""

    message: Any
    recipient: str
    sender: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped(Event):
    """A message that a full mailbox's policy (or an instrument) threw away."""

    message: Any
    recipient: str
    sender: str | None
    reason: str


@dataclass(frozen=True, slots=True)
class Unhandled(Event):
    """A message that the actor's ``on_receive`` did not know."""

    message: Any
    recipient: str


@dataclass(frozen=True, slots=True)
class SlowHandler(Event):
    """A plain handler kept the loop for ``seconds``."""

    path: str
    message: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LoopBlocked(Event):
    """The loop did not turn for ``seconds`` (and may not yet); ``stack`` is where its thread is."""

    seconds: float
    path: str | None
    stack: str


@dataclass(frozen=True, slots=True)
class AskCycleFound(Event):
    """Actors would have waited for each other for ever; the last one's ask was refused."""

    paths: tuple[str, ...]


E = TypeVar("E", bound=Event)
Subscriber = Callable[[Any], None]


class EventStream:
    """Publish and subscribe. A subscriber that raises, or whose mailbox is dead, is removed."""

    def __init__(self) -> None:
        self._subscribers: dict[type[Event], list[Subscriber]] = {}

    def subscribe(self, subscriber: ActorRef[Any] | Subscriber, *kinds: type[Event]) -> Callable[[], None]:
        """Have events (of these classes, or all) told to an actor or passed to a function.

        Returns:
            a function that ends the subscription.
        """
        # An object of its own per subscription: the same function may have several.
        listener = _Call(subscriber) if callable(subscriber) else _Teller(subscriber)
        for kind in kinds or ALL:
            for each in _family(kind):
                self._subscribers.setdefault(each, []).append(listener)
        return lambda: self._remove(listener)

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody would hear of such an event."""
        return kind in self._subscribers

    def publish(self, event: Event) -> None:
        """Tell all subscribers."""
        for listener in tuple(self._subscribers.get(type(event), ())):
            try:
                listener(event)
            except Exception as error:
                if not isinstance(error, ActorDeadError):
                    logger.exception("the event subscriber %r failed and is removed", listener)
                self._remove(listener)

    def _remove(self, listener: Subscriber) -> None:
        for kind, listeners in tuple(self._subscribers.items()):
            if listener in listeners:
                listeners.remove(listener)
            if not listeners:
                del self._subscribers[kind]


class _Call:
    """Passes events on to a function."""

    def __init__(self, function: Subscriber) -> None:
        self._function = function

    def __call__(self, event: Event) -> None:
        self._function(event)

    def __repr__(self) -> str:
        return repr(self._function)


class _Teller:
    """Passes events on to an actor; what its mailbox has no room for is counted and lost."""

    def __init__(self, ref: ActorRef[Any]) -> None:
        self._ref = ref
        self.lost = 0

    def __call__(self, event: Event) -> None:
        # An event about the subscriber's own mailbox must not make another such event.
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
