"""Refs to actors elsewhere, and the interface of what carries their messages."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from pykka import ActorDeadError

from actors._checks import timeout_of
from actors._core.context import current
from actors._errors import MailboxFull
from actors._future import Future, never_block
from actors._messages import Request
from actors._trace import TraceContext, ambient
from actors.remote.errors import ConnectionLost

R = TypeVar("R")


class Transport(ABC):
    """Carries messages to actors elsewhere. Bounded: what it cannot take it refuses.

    A transport decides on the addresses, and documents what it promises about order, delivery and death.
    """

    ask_timeout: float = 30.0
    """Seconds that an ask without a timeout of its own may take."""

    @abstractmethod
    def submit(
        self,
        address: str,
        message: Any,
        reply: Future[Any] | None,
        timeout: float,
        trace: TraceContext | None,
    ) -> None:
        """Take a message for sending, without waiting, on any thread. Messages of one thread are sent in order.

        Args:
            address: whom to send it to.
            message: what to send.
            reply: gets the reply or an error within ``timeout``; None for a tell.
            timeout: seconds.
            trace: the trace context to send along.

        Raises:
            MailboxFull: as many messages wait as the transport's bound allows.
            ConnectionLost: there is no connection.
            BadPayload: the message cannot be sent.
        """

    @abstractmethod
    async def room(self) -> None:
        """Wait until a message can be submitted."""

    def watch(self, address: str, on_end: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """Call a function once when the actor has stopped for good; return a function that ends the watch.

        Args:
            address: the actor's.
            on_end: gets the failure that ended the actor, or None.

        Raises:
            NotImplementedError: this transport cannot tell.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot tell when {address} stops; ask it instead")


class RemoteRef:
    """A ref to an actor elsewhere: ``tell``, ``notify``, ``send`` and ``ask`` as those of :class:`actors.ActorRef`.

    Args:
        transport: carries the messages.
        address: the actor's, in the transport's form.
    """

    def __init__(self, transport: Transport, address: str) -> None:
        self.transport, self.address = transport, address

    def __repr__(self) -> str:
        return f"<RemoteRef {self.address} by {type(self.transport).__name__}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteRef) and (other.transport, other.address) == (
            self.transport,
            self.address,
        )

    def __hash__(self) -> int:
        return hash((id(self.transport), self.address))

    def tell(self, message: Any) -> None:
        """Send a message; nothing tells whether it arrives.

        Raises:
            MailboxFull: the transport's queue is full.
            ConnectionLost: there is no connection.
            BadPayload: the message cannot be sent.
        """
        self.transport.submit(self.address, message, None, self.transport.ask_timeout, _trace())

    def notify(self, message: Any) -> bool:
        """Tell, and return whether the transport took the message, instead of raising."""
        try:
            self.tell(message)
        except (ActorDeadError, MailboxFull, ConnectionLost):
            return False
        return True

    async def send(self, message: Any, *, timeout: float | None = None) -> None:
        """Tell, and wait for room in the transport's queue.

        Args:
            message: what to send.
            timeout: seconds to wait at most; None waits for ``ask_timeout``.

        Raises:
            MailboxFull: no room in time.
            ValueError: the timeout is NaN.
        """
        timeout_of("timeout", timeout)
        try:
            async with asyncio.timeout(self.transport.ask_timeout if timeout is None else timeout):
                while True:
                    await self.transport.room()
                    try:
                        return self.tell(message)
                    except MailboxFull:
                        continue
        except TimeoutError:
            raise MailboxFull(f"no room for a message to {self.address} in time") from None

    @overload
    def ask(
        self, message: Request[R], *, block: Literal[False], timeout: float | None = None
    ) -> Future[R]: ...
    @overload
    def ask(self, message: Any, *, block: Literal[False], timeout: float | None = None) -> Future[Any]: ...
    @overload
    def ask(self, message: Request[R], *, block: Literal[True] = True, timeout: float | None = None) -> R: ...
    @overload
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any: ...
    def ask(self, message: Any, *, block: bool = True, timeout: float | None = None) -> Any:
        """Send a message and return its reply, or with ``block=False`` a future of it.

        Args:
            message: what to send.
            block: whether to wait in this thread.
            timeout: seconds; None takes the transport's ``ask_timeout``. There is no ask without a limit.

        Raises:
            WouldDeadlock: a blocking ask on an event loop's thread.
            pykka.Timeout: no reply in time; the message may have been handled.
            ConnectionLost: the same is unknown.
            RemoteError: the handler raised. With ``block=False`` these are the future's errors.
            ValueError: the timeout is NaN.
        """
        if block:
            never_block("a blocking ask()", "await ref.ask(message, block=False)")
        timeout_of("timeout", timeout)
        future: Future[Any] = Future()
        limit = self.transport.ask_timeout if timeout is None else timeout
        try:
            self.transport.submit(self.address, message, future, limit, _trace())
        except Exception as error:
            future.try_fail(error)
        return future.get(timeout=limit) if block else future

    def watch(self, on_end: Callable[[BaseException | None], None]) -> Callable[[], None]:
        """See :meth:`Transport.watch`."""
        return self.transport.watch(self.address, on_end)


def _trace() -> TraceContext | None:
    trace = ambient.get()
    cell = current.get()
    return cell.trace if trace is None and cell is not None else trace


__all__ = ["RemoteRef", "Transport"]
