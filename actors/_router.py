"""Routers: one handle for many equal workers.

No router actor stands between sender and worker. The sender's own thread picks the worker and puts the
message into its mailbox. A hop through another mailbox would double the cost of a message, make one
actor the bottleneck of all workers, and hide full mailboxes from the sender, who would see the router's
bound only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import pykka
from pykka import ActorDeadError

from actors._checks import ref_of, timeout_of
from actors._core.routed_asks import ask_one
from actors._errors import MailboxFull
from actors._future import Future, get_or_give_up, never_block
from actors._identity import A_co
from actors._messages import Request
from actors._routing import ROUND_ROBIN, Broadcast, Routing
from actors._workers import Workers

if TYPE_CHECKING:
    from actors._broadcast import BroadcastRouter
    from actors._ref import ActorRef
    from actors._types import Answers, AnswersLater, Routes, Takes

W = TypeVar("W", bound=pykka.Actor)
R = TypeVar("R")
M = TypeVar("M")


class Router(Workers[A_co]):
    """Sends each message to one of several actors. Usable from any thread.

    Made by ``spawn_pool`` or :meth:`of`. Messages of one sender to one worker keep their order; messages
    to different workers have no order. A router skips workers that have stopped, and never delivers a
    message twice because of that. ``await router`` waits until all workers have started.

    Args:
        routing: the policy that chooses a message's worker.
        size: the number of workers that there should be.

    Raises:
        TypeError: ``routing`` is no policy, but its class, for example.
    """

    @overload
    @classmethod
    def of(cls, refs: Iterable[ActorRef[W]], routing: Broadcast) -> BroadcastRouter[W]: ...
    @overload
    @classmethod
    def of(cls, refs: Iterable[ActorRef[W]], routing: Routing = ROUND_ROBIN) -> Router[W]: ...
    @classmethod
    def of(cls, refs: Iterable[ActorRef[W]], routing: Routing = ROUND_ROBIN) -> Router[W]:
        """Make a router for actors that exist already and that others supervise.

        Args:
            refs: the actors. One that stops is not replaced: the others get its share.
                :class:`ConsistentHash` goes by their paths, so those must differ.
            routing: the policy that chooses a message's worker.

        Raises:
            TypeError: one is no actor's ref, but a proxy, for example; or ``routing`` is no policy.
        """
        group = tuple(refs)
        for ref in group:
            ref_of("what a router sends to", ref)
        router: Router[W] = router_by(routing, len(group))
        router.publish(group, tuple(ref.path for ref in group))
        return router

    def tell(self: Routes[Takes[M]], message: M, *, urgent: bool = False) -> None:
        """Send a message to the worker that the policy chooses, without waiting for anything.

        Args:
            message: what to send.
            urgent: as for :meth:`ActorRef.tell`.

        Raises:
            ActorDeadError: no worker is alive (the only one may be about to be replaced).
            MailboxFull: the chosen worker's mailbox is full and its overflow policy refuses; no other
                worker is tried. With ``LeastMailbox``, all are full then.
        """
        while True:
            ref = self._pick(message)
            try:
                ref.tell(message, urgent=urgent)
            except ActorDeadError:
                continue  # it stopped in between, without the message
            return

    def _tell_all(self, message: Any, urgent: bool) -> tuple[int, MailboxFull | None]:
        taken, refused = 0, None
        for ref in self._all():
            try:
                ref.tell(message, urgent=urgent)
                taken += 1
            except MailboxFull as error:
                refused = error
            except ActorDeadError:
                continue
        if not taken and refused is None:
            raise self._dead()
        return taken, refused

    def broadcast(self: Routes[Takes[M]], message: M, *, urgent: bool = False) -> int:
        """Send a message to all workers, whatever the policy.

        Workers that leave (after a :meth:`resize`) do not get it.

        Args:
            message: what to send.
            urgent: as for :meth:`ActorRef.tell`.

        Returns:
            the number of workers that took it.

        Raises:
            ActorDeadError: no worker is alive.
        """
        return self._tell_all(message, urgent)[0]

    def notify(self: Routes[Takes[M]], message: M, *, urgent: bool = False) -> bool:
        """Tell, and return whether a worker took the message, instead of raising.

        Args:
            message: what to send.
            urgent: as for :meth:`ActorRef.tell`.
        """
        try:
            self.tell(message, urgent=urgent)
        except (ActorDeadError, MailboxFull):
            return False
        return True

    async def send(self: Routes[Takes[M]], message: M, *, timeout: float | None = None) -> None:
        """Send a message; wait for room if the chosen worker's mailbox is full.

        The worker is chosen once: a waiting sender keeps its place in that worker's queue, and
        ``LeastMailbox`` counts waiting senders, so that they spread. Another worker is chosen only if
        this one stops before it has the message.

        Args:
            message: what to send.
            timeout: seconds to wait at most; None waits without a limit.

        Raises:
            ActorDeadError: no worker is alive.
            MailboxFull: no room within ``timeout`` seconds, or too many senders wait.
        """
        timeout_of("timeout", timeout)
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            ref = self._pick(message)
            left = None if deadline is None else max(0.0, deadline - loop.time())
            try:
                await ref.send(message, timeout=left)
            except ActorDeadError:
                continue  # it stopped in between, without the message
            return

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
        self: Routes[AnswersLater[M, R]],
        message: M,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[R]: ...
    @overload
    def ask(
        self: Routes[Answers[M, R]],
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
        self: Routes[AnswersLater[M, R]],
        message: M,
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> R: ...
    @overload
    def ask(
        self: Routes[Answers[M, R]],
        message: M,
        *,
        block: Literal[True] = True,
        timeout: float | None = None,
        urgent: bool = False,
    ) -> R: ...
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
        """Ask the worker that the policy chooses; see :meth:`ActorRef.ask`.

        Args:
            message: what to send.
            block: whether to wait for the reply in this thread, instead of returning a future.
            timeout: seconds until the ask is given up; None waits without a limit.
            urgent: as for :meth:`ActorRef.tell`.

        Raises:
            WouldDeadlock: a blocking ask on the event loop's thread.
            pykka.Timeout: a blocking ask had no reply within ``timeout`` seconds.
        """
        if block:
            never_block("a blocking ask()", "await router.ask(message, block=False)")
        future = ask_one(self._pick, message, None if block else timeout, urgent=urgent)
        return get_or_give_up(future, timeout) if block else future


def router_by(routing: Routing, size: int) -> Router[Any]:
    """Make a router without workers, of the class that the policy needs.

    Args:
        routing: the policy that chooses a message's worker.
        size: the number of workers that there should be.
    """
    from actors._broadcast import BroadcastRouter  # a router itself

    return (BroadcastRouter if isinstance(routing, Broadcast) else Router)(routing, size)
