"""The router of the policy ``Broadcast``, whose reply is a list: a class of its own, so that a type checker knows."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from pykka import ActorDeadError

from actors._checks import timeout_of
from actors._core.routed_asks import ask_all
from actors._future import Future, get_or_give_up, never_block
from actors._identity import A_co
from actors._messages import Request
from actors._router import Router

if TYPE_CHECKING:
    from actors._types import Answers, AnswersLater, Routes, Takes

R = TypeVar("R")
M = TypeVar("M")


class BroadcastRouter(Router[A_co]):
    """Sends each message to all of several actors; see :class:`Router`."""

    def tell(self: Routes[Takes[M]], message: M, *, urgent: bool = False) -> None:
        """Send a message to all workers, without waiting for anything.

        Args:
            message: what to send.
            urgent: as for :meth:`ActorRef.tell`.

        Raises:
            ActorDeadError: no worker is alive (the only one may be about to be replaced).
            MailboxFull: at least one mailbox is full and its overflow policy refuses; all other workers have the message.
        """
        refused = self._tell_all(message, urgent)[1]
        if refused is not None:
            raise refused

    async def send(self: Routes[Takes[M]], message: M, *, timeout: float | None = None) -> None:
        """Send a message to all workers, one after the other; wait for room in each mailbox that is full.

        Args:
            message: what to send.
            timeout: seconds to wait at most, for all of them; None waits without a limit.

        Raises:
            ActorDeadError: no worker is alive, or all have stopped before they had the message.
            MailboxFull: no room within ``timeout`` seconds, or too many senders wait; the workers behind that one do not have the message.
        """
        timeout_of("timeout", timeout)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        taken = 0
        for ref in self._all():
            left = None if deadline is None else max(0.0, deadline - loop.time())
            try:
                await ref.send(message, timeout=left)
                taken += 1
            except ActorDeadError:
                continue
        if not taken:
            raise self._dead()

    @overload  # type: ignore[override]  # not a reply, but a list of them
    def ask(
        self,
        message: Request[R],
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[list[R]]: ...
    @overload
    def ask(
        self: Routes[AnswersLater[M, R]],
        message: M,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[list[R]]: ...
    @overload
    def ask(
        self: Routes[Answers[M, R]],
        message: M,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[list[R]]: ...
    @overload
    def ask(
        self,
        message: Request[R],
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> list[R]: ...
    @overload
    def ask(
        self: Routes[AnswersLater[M, R]],
        message: M,
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> list[R]: ...
    @overload
    def ask(
        self: Routes[Answers[M, R]],
        message: M,
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> list[R]: ...
    @overload
    def ask(
        self: Routes[Takes[M]],
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
        """Ask all workers; the reply is the list of their replies, in the order of the workers. See :meth:`ActorRef.ask`.

        If some fail, the error is that of the first of them in this order, and comes when those before it have answered.

        Args:
            message: what to send.
            block: whether to wait for the reply in this thread, instead of returning a future.
            timeout: seconds until each ask is given up; None waits without a limit.
            urgent: as for :meth:`ActorRef.tell`.

        Raises:
            WouldDeadlock: a blocking ask on the event loop's thread.
            pykka.Timeout: a blocking ask had no reply within ``timeout`` seconds.
        """
        if block:
            never_block("a blocking ask()", "await router.ask(message, block=False)")
        future: Future[Any] = ask_all(self.refs, message, timeout, urgent=urgent, dead=self._dead)
        return get_or_give_up(future, None) if block else future
