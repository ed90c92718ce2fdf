"""Routers: one handle for many equal workers.

No router actor stands between sender and worker. The sender's own thread picks the worker and puts the
message into its mailbox. A hop through another mailbox would double the cost of a message, make one
actor the bottleneck of all workers, and hide full mailboxes from the sender, who would see the router's
bound only. The choice reads an immutable view of the workers, which the pool replaces as a whole; so any
thread may choose without a lock.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pykka
from pykka import ActorDeadError

from actors._checks import one_of, ref_of, timeout_of
from actors._core.routed_asks import ask_all, ask_one, joined
from actors._errors import MailboxFull
from actors._future import Future, never_block
from actors._messages import Request
from actors._pool_messages import Resize, RouterStatistics, Stopped, StopPool
from actors._routing import ROUND_ROBIN, Broadcast, Members, Routing

if TYPE_CHECKING:
    from actors._pool import Pool
    from actors._ref import ActorRef

A = TypeVar("A", bound=pykka.Actor)
R = TypeVar("R")


class Router(Generic[A]):
    """Sends each message to one (or all) of several actors. Usable from any thread.

    Made by ``spawn_pool`` or :meth:`of`. Messages of one sender to one worker keep their order; messages
    to different workers have no order. A router skips workers that have stopped, and never delivers a
    message twice because of that. ``await router`` waits until all workers have started.

    Args:
        routing: the policy that chooses a message's worker.
        size: the number of workers that there should be.

    Raises:
        TypeError: ``routing`` is no policy, but its class, for example.
    """

    def __init__(self, routing: Routing, size: int = 0) -> None:
        one_of("routing", routing, Routing)
        self.routing = routing
        """The policy that chooses a message's worker."""
        self.pool: ActorRef[Pool] | None = None
        """The actor that supervises the workers; None for a group made by :meth:`of`."""
        self.wanted = size
        self.leaving = self.replaced = 0
        self._to_all = isinstance(routing, Broadcast)
        self._lock = threading.RLock()  # a signal handler may send, too
        self._turn = itertools.count()
        self._members: Members[A] = Members(routing, (), (), self._turn)

    @classmethod
    def of(cls, refs: Iterable[ActorRef[A]], routing: Routing = ROUND_ROBIN) -> Router[A]:
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
        router = cls(routing, len(group))
        router.publish(group, tuple(ref.path for ref in group))
        return router

    def publish(self, refs: tuple[ActorRef[A], ...], keys: tuple[str, ...]) -> None:
        """Replace the workers; the pool calls it.

        Args:
            refs: the workers.
            keys: a name for each worker's place, which a replacement inherits.
        """
        members = Members(self.routing, refs, keys, self._turn)
        with self._lock:
            self._members = members

    def __repr__(self) -> str:
        where = "group" if self.pool is None else self.pool.path
        return f"<Router {where}: {len(self._members.refs)} workers>"

    def __len__(self) -> int:
        return len(self.refs)

    def __bool__(self) -> bool:
        return True  # even without a living worker

    def __await__(self) -> Generator[Any, None, Router[A]]:
        for ref in self.refs:
            yield from ref.__await__()
        return self

    @property
    def refs(self) -> tuple[ActorRef[A], ...]:
        """The living workers, in the order of their places."""
        return tuple(ref for ref in self._members.refs if ref.is_alive())

    # -- choosing -------------------------------------------------------------------------------

    def _pick(self, message: Any) -> ActorRef[A]:
        while True:
            members = self._members
            if not members.refs:
                raise self._dead()
            ref = self.routing.pick(members, message)
            if ref.is_alive():
                return ref
            if not any(each is ref for each in members.refs):  # it would choose it again and again
                raise ValueError(f"{self.routing!r} chose {ref}, which has stopped and is none of {self!r}")
            living = members.living(self.routing)
            with self._lock:
                if self._members is members:  # otherwise the pool was faster
                    self._members = living

    def _dead(self) -> ActorDeadError:
        return ActorDeadError(f"{self!r}: no worker is alive")

    def _all(self) -> tuple[ActorRef[A], ...]:
        refs = self.refs
        if not refs:
            raise self._dead()
        return refs

    # -- sending --------------------------------------------------------------------------------

    def tell(self, message: Any, *, urgent: bool = False) -> None:
        """Send a message to the worker that the policy chooses, without waiting for anything.

        Args:
            message: what to send.
            urgent: as for :meth:`ActorRef.tell`.

        Raises:
            ActorDeadError: no worker is alive (the only one may be about to be replaced).
            MailboxFull: the chosen worker's mailbox is full and its overflow policy refuses; no other
                worker is tried. With ``LeastMailbox``, all are full then. With ``Broadcast``, at
                least one is full, and all others have the message.
        """
        if self._to_all:
            refused = self._tell_all(message, urgent)[1]
            if refused is not None:
                raise refused
            return
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

    def broadcast(self, message: Any, *, urgent: bool = False) -> int:
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

    def notify(self, message: Any, *, urgent: bool = False) -> bool:
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

    async def send(self, message: Any, *, timeout: float | None = None) -> None:
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
        for ref in self._all() if self._to_all else (None,):
            while True:
                worker = ref or self._pick(message)
                left = None if deadline is None else max(0.0, deadline - loop.time())
                try:
                    await worker.send(message, timeout=left)
                except ActorDeadError:
                    if ref is None:
                        continue
                break

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
        self,
        message: Any,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[Any]: ...
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
        self,
        message: Any,
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

        With ``Broadcast`` the reply is the list of all workers' replies, or the first error: ask a message
        that is no :class:`Request` then, whose type would be that of one reply.

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
        future = (
            ask_all(self.refs, message, timeout, urgent=urgent, dead=self._dead)
            if self._to_all
            else ask_one(self._pick, message, None if block else timeout, urgent=urgent)
        )
        if not block:
            return future
        try:
            return future.get(timeout=None if self._to_all else timeout)
        except pykka.Timeout:
            future.cancel()
            raise

    # -- the pool -------------------------------------------------------------------------------

    def resize(self, size: int) -> Future[int]:
        """Change the number of workers.

        Surplus workers leave after they have handled all messages that were sent to them, the youngest
        place first; no accepted message is lost. A leaving worker's tasks, stash and taken replies end
        with it, as with a stop.

        Returns:
            a future whose value is ``size``, once the new workers are there and the surplus has left. Its
            error is ActorDeadError if the pool stops or has stopped, or the exception of a new worker's
            constructor (the size is unchanged then).

        Raises:
            ValueError: a size below 1.
            TypeError: a group of actors (:meth:`of`) has no pool; or the size is no whole number.
        """
        one_of("a pool's size", size, int)
        if size < 1:
            raise ValueError(f"a pool has one worker at least, not {size}")
        if self.pool is None:
            raise TypeError(f"{self!r} has no pool: it cannot be resized")
        return self.pool.ask(Resize(size), block=False)

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop all workers after the messages that they have, then the pool. A group's actors stop, too.

        Messages that arrive meanwhile are handled or refused, never lost in silence; those to a group's
        actors as with :meth:`ActorRef.stop`.

        Args:
            block: whether to wait in this thread, instead of returning a future.
            timeout: seconds that a blocking call waits; the stop goes on after that.

        Returns:
            a future, or with ``block`` its value: False if the pool or all actors were dead already.

        Raises:
            WouldDeadlock: a blocking stop on the event loop's thread.
            pykka.Timeout: a blocking stop took longer than ``timeout`` seconds.
        """
        if block:
            never_block("a blocking stop()", "await router.stop(block=False)")
        future: Future[bool]
        if self.pool is None:
            stops = [ref.stop(block=False) for ref in self._members.refs]
            future = joined(stops).map(any)
        else:
            future = Stopped()
            if self.pool.is_alive():
                self.pool.forward(StopPool(), future)
            else:
                future.try_set(False)
        return future.get(timeout=timeout) if block else future

    def statistics(self) -> RouterStatistics:
        """Statistics of the router and its living workers."""
        workers = tuple(ref.statistics() for ref in self.refs)
        return RouterStatistics(
            path=None if self.pool is None else self.pool.path,
            routing=type(self.routing).__name__,
            size=self.wanted,
            alive=len(workers),
            leaving=self.leaving,
            replaced=self.replaced,
            depth=sum(worker.mailbox.depth for worker in workers),
            workers=workers,
        )
