"""References: the only way to reach an actor from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pykka
from pykka import ActorDeadError
from pykka.messages import _ActorStop

from actors._errors import MailboxFull, WouldDeadlock
from actors._future import Future, on_event_loop
from actors._mailbox import Envelope, Mailbox

if TYPE_CHECKING:
    from actors._cell import Cell

A = TypeVar("A", bound=pykka.Actor)


class StopFlag:
    """What pykka keeps as a ``threading.Event``: whether the actor has stopped."""

    __slots__ = ("_set",)

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        """Whether the actor has stopped."""
        return self._set

    def set(self) -> None:
        """Mark the actor as stopped."""
        self._set = True


class ActorRef(pykka.ActorRef[A], Generic[A]):
    """A reference that survives restarts: same ref, same mailbox, new actor behind it."""

    actor_inbox: Mailbox  # type: ignore[assignment]

    def __init__(self, cell: Cell) -> None:
        self.actor_class = cell.actor_class  # type: ignore[assignment]
        self.actor_urn = cell.urn
        self.actor_inbox = cell.mailbox
        self.actor_stopped = cell.stopped_flag  # type: ignore[assignment]
        self.path = cell.path
        """Where the actor stands in its system, such as ``/service/default/g1/orders.3``."""

    def __repr__(self) -> str:
        return f"<ActorRef {self.path}>"

    __str__ = __repr__

    def is_alive(self) -> bool:
        """Whether the actor accepts messages (it does between a failure and its restart)."""
        return not self.actor_inbox.closed

    def tell(self, message: Any, *, urgent: bool = False) -> None:
        """Send a message without waiting for anything.

        Args:
            message: what to send.
            urgent: use the lane that is served first and works when the mailbox is full.

        Raises:
            ActorDeadError: the actor has stopped.
            MailboxFull: the mailbox is at its bound.
        """
        self.actor_inbox.put(Envelope(message), urgent=urgent)

    def forward(self, message: Any, reply_to: Future[Any], *, urgent: bool = False) -> None:
        """Send a message whose reply goes to a future that exists already (see ``take_reply``).

        A full mailbox or a dead actor is that future's error.
        """
        try:
            self.actor_inbox.put(Envelope(message, reply_to), urgent=urgent)
        except (ActorDeadError, MailboxFull) as error:
            reply_to.try_fail(error)

    @overload
    def ask(
        self, message: Any, *, block: Literal[False], timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[Any]: ...
    @overload
    def ask(
        self, message: Any, *, block: Literal[True], timeout: float | None = None,
        urgent: bool = False,
    ) -> Any: ...
    @overload
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None,
        urgent: bool = False,
    ) -> Any: ...
    def ask(
        self, message: Any, *, block: bool = True, timeout: float | None = None,
        urgent: bool = False,
    ) -> Any:
        """Send a message and get its reply: a future with ``block=False``, else the value.

        A full mailbox or a dead actor is the future's error, never an exception of this call.

        Raises:
            WouldDeadlock: a blocking ask on the event loop's thread.
            pykka.Timeout: a blocking ask had no reply within ``timeout`` seconds.
        """
        if block and on_event_loop():
            raise WouldDeadlock(
                "a blocking ask() on the event loop's thread would wait for itself; "
                "use 'await ref.ask(message, block=False)' instead"
            )
        future: Future[Any] = Future()
        self.forward(message, future, urgent=urgent)
        return future.get(timeout=timeout) if block else future

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop the actor after the messages that it has now; see :meth:`pykka.ActorRef.stop`.

        The future's (or the call's) value is False if the actor was dead already.
        """
        if block and on_event_loop():
            raise WouldDeadlock(
                "a blocking stop() on the event loop's thread would wait for itself; "
                "use 'await ref.stop(block=False)' instead"
            )
        future: Future[bool] = Future()
        try:
            self.actor_inbox.put(Envelope(_ActorStop(), future), force=True)
        except ActorDeadError:
            future.try_set(False)
        return future.get(timeout=timeout) if block else future
