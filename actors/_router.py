"""Routers: one handle for many equal workers.

There is no router actor between sender and worker. The sender's own thread picks the worker and puts
the message into its mailbox: a hop through another mailbox would double the cost of a message, make
one actor the bottleneck of all the workers, hide full mailboxes from the sender (the bound would hold
for the router's mailbox only), and reorder nothing for the better. What the choice needs is an
immutable view of the workers, replaced as a whole by the pool; so any thread may choose without a lock.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

import pykka
from pykka import ActorDeadError

from actors._core.context import ambient, current
from actors._core.mailbox import ControlMessage
from actors._errors import MailboxFull, WouldDeadlock
from actors._future import Future, on_event_loop
from actors._policy import ESCALATE, Supervision
from actors._pool_messages import Resize, RouterStatistics, Stopped, StopPool
from actors._routing import ROUND_ROBIN, Broadcast, Members, Routing

if TYPE_CHECKING:
    from actors._pool import Pool
    from actors._ref import ActorRef

A = TypeVar("A", bound=pykka.Actor)


class Router(Generic[A]):
    """Sends each message to one (or all) of several actors. Usable from any thread.

    Made by ``spawn_pool`` or :meth:`of`. Messages of one sender to one worker keep their order; two
    messages that go to different workers have none. A worker that has stopped is skipped; a message
    is never handled twice because of that. ``await router`` waits until all workers have started.
    """

    def __init__(self, routing: Routing, size: int = 0) -> None:
        self.routing = routing
        """The policy."""
        self.pool: ActorRef[Pool] | None = None
        """The actor that supervises the workers (to be watched, say); None for a group."""
        self.wanted = size
        self.leaving = self.replaced = 0
        self._to_all = isinstance(routing, Broadcast)
        self._lock = threading.Lock()
        self._turn = itertools.count()
        self._members: Members[A] = Members(routing, (), (), self._turn)

    @classmethod
    def of(cls, refs: Iterable[ActorRef[A]], routing: Routing = ROUND_ROBIN) -> Router[A]:
        """A router for actors that exist already, and that others supervise.

        Args:
            refs: the actors. One that stops is not replaced: the others get its share. For
                :class:`ConsistentHash` their paths count, so they must differ.
            routing: the policy.
        """
        group = tuple(refs)
        router = cls(routing, len(group))
        router.publish(group, tuple(ref.path for ref in group))
        return router

    def publish(self, refs: tuple[ActorRef[A], ...], keys: tuple[str, ...]) -> None:
        """From now on these are the workers. For the pool."""
        members = Members(self.routing, refs, keys, self._turn)
        with self._lock:
            self._members = members

    def __repr__(self) -> str:
        where = "group" if self.pool is None else self.pool.path
        return f"<Router {where}: {len(self._members.refs)} workers>"

    def __len__(self) -> int:
        return len(self.refs)

    def __bool__(self) -> bool:
        return True  # also without a living worker

    def __await__(self) -> Generator[Any, None, Router[A]]:
        for ref in self.refs:
            yield from ref.__await__()
        return self

    @property
    def refs(self) -> tuple[ActorRef[A], ...]:
        """The workers that are alive, in the order of their places."""
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
            living = members.living(self.routing)
            with self._lock:
                if self._members is members:  # else the pool was quicker
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
            ActorDeadError: no worker is alive (also while the only one is being replaced).
            MailboxFull: the chosen worker's mailbox is full and its overflow policy refuses; the
                others are not tried. With ``LeastMailbox`` all are full then. With ``Broadcast``
                one was full at least, and all the others have got the message.
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
                continue  # it stopped in between: it has not got the message
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
        """Send a message to all workers, whatever the policy; how many have taken it.

        Workers that finish what they have (after a :meth:`resize`) do not get it.

        Raises:
            ActorDeadError: no worker is alive.
        """
        return self._tell_all(message, urgent)[0]

    def notify(self, message: Any, *, urgent: bool = False) -> bool:
        """Tell, if a worker is there to take it; whether it was. Errors of sending are swallowed."""
        try:
            self.tell(message, urgent=urgent)
        except (ActorDeadError, MailboxFull):
            return False
        return True

    async def send(self, message: Any, *, timeout: float | None = None) -> None:
        """Send a message; wait for room if the chosen worker's mailbox is full.

        The choice is made once: who waits keeps its place in the queue of that worker, and
        ``LeastMailbox`` counts such senders, so that they spread. Only if the worker stops
        meanwhile (the message has not entered then) is another one chosen.

        Raises:
            ActorDeadError: no worker is alive.
            MailboxFull: no room within ``timeout`` seconds, or too many senders wait.
        """
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
        message: Any,
        *,
        block: Literal[False],
        timeout: float | None = None,
        urgent: bool = False,
    ) -> Future[Any]: ...
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

        With ``Broadcast`` the reply is the list of all workers' replies, or the first error.

        Raises:
            WouldDeadlock: a blocking ask on the event loop's thread.
            pykka.Timeout: a blocking ask had no reply within ``timeout`` seconds.
        """
        if block and on_event_loop():
            raise WouldDeadlock(
                "a blocking ask() on the event loop's thread would wait for itself; "
                "use 'await router.ask(message, block=False)' instead"
            )
        future = (
            self._ask_all(message, urgent, timeout)
            if self._to_all
            else self._ask_one(message, urgent, None if block else timeout)
        )
        if not block:
            return future
        try:
            return future.get(timeout=None if self._to_all else timeout)
        except pykka.Timeout:
            future.cancel()
            raise

    def _ask_one(self, message: Any, urgent: bool, timeout: float | None) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            while not self._put(self._pick(message), message, future, urgent):
                pass  # it stopped in between: it has not got the message
        except (ActorDeadError, MailboxFull) as error:
            future.try_fail(error)
        cell = future.target
        if cell is not None and timeout is not None:
            cell.system.expire(future, timeout)
        return future

    def _put(self, ref: ActorRef[A], message: Any, future: Future[Any], urgent: bool) -> bool:
        # As ActorRef.ask does it, but a dead actor's refusal is told from an ask that it dropped.
        cell, sender = ref._cell, current.get()
        trace = ambient.get()
        if trace is None and sender is not None:
            trace = sender.trace
        envelope = (message, future, cell.clock(), sender, trace)
        future.target = cell
        push = cell.mailbox.push
        if urgent or isinstance(message, ControlMessage):
            push = cell.mailbox.push_priority
        try:
            push(envelope)
        except ActorDeadError:
            return False
        hooks = cell.mailbox.hooks
        if hooks is not None:
            hooks.on_asked(cell, future)
        return True

    def _ask_all(self, message: Any, urgent: bool, timeout: float | None) -> Future[Any]:
        refs = self.refs
        if not refs:
            future: Future[Any] = Future()
            future.try_fail(self._dead())
            return future
        return _joined([ref.ask(message, block=False, timeout=timeout, urgent=urgent) for ref in refs])

    # -- the pool -------------------------------------------------------------------------------

    def resize(self, size: int) -> Future[int]:
        """Have ``size`` workers. Done (with ``size``) when the new ones are there and those that
        are too many have left, after they have handled all that was sent to them.

        Workers leave youngest place first; no message that was accepted is lost by it. The tasks,
        the stash and the taken replies of a leaving worker end with it, as with a stop.

        Raises:
            ValueError: a size below 1.
            TypeError: a group of actors (:meth:`of`) has no pool.

        The future's error is ActorDeadError if the pool has stopped or is stopping, and what a new
        worker's constructor has raised (the size is unchanged then).
        """
        if size < 1:
            raise ValueError(f"a pool has one worker at least, not {size}")
        if self.pool is None:
            raise TypeError(f"{self!r} has no pool: it can not be resized")
        return self.pool.ask(Resize(size), block=False)

    def stop(self, *, block: bool = True, timeout: float | None = None) -> Any:
        """Stop all workers after the messages that they have, then the pool; a group's actors too.

        The future's (or the call's) value is False if all was dead already. Messages that arrive
        meanwhile are handled or refused, never lost in silence (a group's actors stop as
        :meth:`ActorRef.stop` has it). The stop goes on if ``timeout`` ends the wait for it.

        Raises:
            WouldDeadlock: a blocking stop on the event loop's thread.
            pykka.Timeout: a blocking stop took longer than ``timeout`` seconds.
        """
        if block and on_event_loop():
            raise WouldDeadlock(
                "a blocking stop() on the event loop's thread would wait for itself; "
                "use 'await router.stop(block=False)' instead"
            )
        future: Future[bool]
        if self.pool is None:
            stops = [ref.stop(block=False) for ref in self._members.refs]
            future = _joined(stops).map(any)
        else:
            future = Stopped()
            if self.pool.is_alive():
                self.pool.forward(StopPool(), future)
            else:
                future.try_set(False)
        return future.get(timeout=timeout) if block else future

    def statistics(self) -> RouterStatistics:
        """The workers at this moment, and the pool."""
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


def start_pool(
    spawn: Callable[..., ActorRef[Any]],
    actor_class: type[A],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    size: int,
    routing: Routing,
    name: str | None,
    workers: Supervision,
) -> Router[A]:
    """Start a pool and return its router; see :meth:`actors.Actor.spawn_pool`.

    Args:
        spawn: starts the pool's actor: the ``spawn`` of its parent or of the system.
        actor_class: the workers' class.
        args: for its constructor.
        kwargs: for its constructor.
        size: how many workers.
        routing: chooses a message's worker.
        name: the pool's name; None generates one.
        workers: how the pool supervises the workers.
    """
    from actors._pool import Pool  # an actor itself: at the top of the module the import would be circular

    router: Router[A] = Router(routing, size)
    router.pool = spawn(Pool, router, actor_class, args, kwargs, workers, name=name, supervision=ESCALATE)
    return router


def _joined(futures: list[Future[Any]]) -> Future[Any]:
    if futures:
        return futures[0].join(*futures[1:])
    nothing: Future[Any] = Future()
    nothing.try_set([])
    return nothing
