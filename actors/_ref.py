"""References: the only way to reach an actor from outside."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from threading import get_ident
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from pykka import ActorDeadError
from pykka.messages import ProxyCall

from actors._checks import one_of, timeout_of
from actors._core import stopping
from actors._core.context import current, origin
from actors._core.expiry import expire
from actors._core.lifecycle import started
from actors._core.mailbox import ControlMessage
from actors._core.unheard import refuse
from actors._core.waiting import let_in_within, wait_for_room
from actors._errors import MailboxFull
from actors._future import Future, get_or_give_up, never_block
from actors._identity import A_co, Identity
from actors._messages import Request
from actors._proxy import ActorProxy

if TYPE_CHECKING:
    from actors._core.envelope import Envelope
    from actors._types import Answers, AnswersLater, Takes, To

R = TypeVar("R")
P = ParamSpec("P")
M = TypeVar("M")


class ActorRef(Identity[A_co], Generic[A_co]):
    """A reference to an actor, for any thread. It survives restarts: same ref, same mailbox, new instance.

    To a type checker, a ref of a subclass is a ref of its base class, and a bare ``ActorRef`` an ``ActorRef[Any]``.

    ``await ref`` waits until the actor has started and returns the ref; if the actor stops before that,
    it raises ``ActorDeadError``, caused by the actor's failure.
    """

    def __await__(self) -> Generator[Any, None, ActorRef[A_co]]:
        return started(self._cell).__await__()

    # -- sending --------------------------------------------------------------------------------

    def tell(self: To[Takes[M]], message: M, *, urgent: bool = False) -> None:
        """Send a message without waiting for anything.

        Args:
            message: what to send.
            urgent: use the priority lane, which is served first and has room when the normal lane is
                full. A :class:`ControlMessage` always uses it.

        Raises:
            ActorDeadError: the actor has stopped.
            MailboxFull: the mailbox is at its bound and its overflow policy refuses.
        """
        cell = self._cell
        # The usual cases of ``origin``: nobody's code, or an actor's, and no variables are set.
        context = copy_context()
        envelope: Envelope
        if not context:
            envelope = (message, None, cell.clock(), None, None, None)
        elif len(context) == 1 and (sender := current.get()) is not None:
            envelope = (message, None, cell.clock(), sender, sender.trace, None)
        else:
            envelope = (message, None, cell.clock(), *origin())
        mailbox = cell.mailbox
        if urgent or isinstance(message, ControlMessage):
            mailbox.push_priority(envelope)
        elif (
            # The rest repeats ``Mailbox.push`` for the usual message: a call would take 50 ns.
            get_ident() != mailbox.home or mailbox.hooks is not None or mailbox.closed or mailbox.waiting
        ):
            mailbox.push(envelope)
        else:
            lane = mailbox.normal
            lane.append(envelope)
            if len(lane) > mailbox.bound:
                mailbox.look_again(envelope)
            elif mailbox.asleep:
                mailbox.rouse()

    def notify(self: To[Takes[M]], message: M, *, urgent: bool = False) -> bool:
        """Tell, and return whether the mailbox took the message, instead of raising.

        A refused message is a dead letter, or counted as rejected. True also if an overflow policy has
        dropped the message, or an older one.

        Args:
            message: what to send.
            urgent: as for :meth:`tell`.
        """
        try:
            self.tell(message, urgent=urgent)
        except (ActorDeadError, MailboxFull):
            return False
        return True

    async def send(self: To[Takes[M]], message: M, *, timeout: float | None = None) -> None:
        """Send a message; wait for room if the mailbox is full, whatever its overflow policy.

        Waiting senders get room in the order in which they began to wait.

        Args:
            message: what to send.
            timeout: seconds to wait at most; None waits without a limit.

        Raises:
            ActorDeadError: the actor has stopped, possibly during the wait.
            MailboxFull: no room within ``timeout`` seconds, or too many senders wait.
        """
        timeout_of("timeout", timeout)
        cell = self._cell
        envelope = (message, None, cell.clock(), *origin())
        mailbox = cell.mailbox
        if isinstance(message, ControlMessage):
            mailbox.push_priority(envelope)
            return
        hooks = mailbox.hooks
        if hooks is not None and not hooks.admits(cell, envelope, "normal"):
            return
        room = wait_for_room(mailbox, envelope)
        if room is not None:
            await let_in_within(mailbox, room, timeout)

    def forward(self, message: Any, reply_to: Future[Any], *, urgent: bool = False) -> None:
        """Send a message whose reply goes to an existing future, such as one of ``take_reply``.

        A full mailbox or a dead actor is the future's error, never an exception of this call.

        Args:
            message: what to send.
            reply_to: gets the reply.
            urgent: as for :meth:`tell`.

        Raises:
            TypeError: ``reply_to`` is another library's future.
        """
        one_of("reply_to", reply_to, Future)
        cell = self._cell
        envelope = (message, reply_to, cell.clock(), *origin())
        reply_to.target = cell
        try:
            if urgent or isinstance(message, ControlMessage):
                cell.mailbox.push_priority(envelope)
            else:
                cell.mailbox.push(envelope)
        except (ActorDeadError, MailboxFull) as error:
            refuse(cell, reply_to, error)

    @overload
    def ask(
        self,
        message: Request[R],
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[R]: ...
    @overload
    def ask(
        self: To[AnswersLater[M, R]],
        message: M,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[R]: ...
    @overload
    def ask(
        self: To[Answers[M, R]],
        message: M,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[R]: ...
    @overload
    def ask(
        self,
        message: Request[R],
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> R: ...
    @overload
    def ask(
        self: To[AnswersLater[M, R]],
        message: M,
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> R: ...
    @overload
    def ask(
        self: To[Answers[M, R]],
        message: M,
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> R: ...
    @overload
    def ask(
        self: To[Takes[M]],
        message: M,
        *,
        block: bool = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Any: ...
    def ask(
        self,
        message: Any,
        *,
        block: bool = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Any:
        """Send a message and return its reply, or with ``block=False`` a future of it.

        A full mailbox or a dead actor is the future's error, never an exception of a call with
        ``block=False``.

        Args:
            message: what to send. A :class:`actors.Request` tells a type checker the reply's type.
            block: whether to wait for the reply in this thread.
            timeout: seconds until the ask is given up: the actor does not handle the message if it has not
                begun to, and ignores the reply. None waits without a limit.
            urgent: as for :meth:`tell`.

        Raises:
            WouldDeadlock: a blocking ask on the event loop's thread.
            pykka.Timeout: a blocking ask had no reply within ``timeout`` seconds. With ``block=False``
                it is the future's error.
        """
        if block:
            never_block("a blocking ask()", "await ref.ask(message, block=False)")
        if timeout is not None:
            timeout_of("timeout", timeout)
        cell = self._cell
        future: Future[Any] = Future()
        if cell.hooks is not None:
            cell.hooks.on_asked(cell, future)
        future.target = cell
        envelope = (message, future, cell.clock(), *origin())  # as in ``forward``, without the call
        try:
            if urgent or isinstance(message, ControlMessage):
                cell.mailbox.push_priority(envelope)
            else:
                cell.mailbox.push(envelope)
        except (ActorDeadError, MailboxFull) as error:
            refuse(cell, future, error)
        if not block:
            if timeout is not None:
                expire(cell.system, future, timeout)
            return future
        cell.system.check_loop()
        return get_or_give_up(future, timeout)

    @overload
    def call(
        self,
        method: Callable[Concatenate[A_co, P], Coroutine[Any, Any, R]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Future[R]: ...
    @overload
    def call(
        self, method: Callable[Concatenate[A_co, P], R], *args: P.args, **kwargs: P.kwargs
    ) -> Future[R]: ...
    def call(self, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a method of the actor as its proxy does, in a way that a type checker understands.

        ``await ref.call(Counter.add, 1)`` is ``await ref.proxy().add(1)``, with arguments and result checked. An
        override of the method in a subclass is called, as with any method.

        Args:
            method: a method of the actor's class. Only its name counts at run time.
            args: for the method.
            kwargs: for the method.

        Returns:
            a future of the method's result; a refused call is the future's error.

        Raises:
            AttributeError: the actor has no public method of that name.
        """
        name = method.__name__
        if name.startswith("_") or not callable(getattr(self.actor_class, name, None)):
            raise AttributeError(f"{self} has no public method {name!r}")
        return self.ask(ProxyCall(attr_path=(name,), args=args, kwargs=kwargs), block=False)

    @overload
    def stop(self, *, block: Literal[True] = True, timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None) -> Future[bool]: ...
    @overload
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Future[bool]: ...
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Future[bool]:
        """Stop the actor after the messages that are in its mailbox now; see :meth:`pykka.ActorRef.stop`.

        Args:
            block: whether to wait in this thread until the actor has stopped.
            timeout: seconds that a blocking call waits; the stop goes on after that.

        Returns:
            a future, or with ``block`` its value: False if the actor was dead already.

        Raises:
            WouldDeadlock: a blocking stop on the event loop's thread.
            pykka.Timeout: a blocking stop took longer than ``timeout`` seconds.
        """
        if block:
            never_block("a blocking stop()", "await ref.stop(block=False)")
        future = stopping.request(self._cell)
        return future.get(timeout=timeout) if block else future

    def proxy(self) -> ActorProxy[A_co]:
        """Make an object with the actor's attributes and methods; see :meth:`pykka.ActorRef.proxy`."""
        return ActorProxy(actor_ref=self)
