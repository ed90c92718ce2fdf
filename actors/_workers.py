"""The workers of a router: who they are, how one is chosen, and their end.

A choice reads an immutable view of the workers, which the pool replaces as a whole; so any thread may choose without a lock.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, overload

from pykka import ActorDeadError

from actors._checks import one_of
from actors._core.routed_asks import joined
from actors._future import Future, never_block
from actors._identity import A_co
from actors._pool_messages import Resize, RouterStatistics, Stopped, StopPool
from actors._routing import Members, Routing

if TYPE_CHECKING:
    from actors._pool import Pool
    from actors._ref import ActorRef


class Workers(Generic[A_co]):
    """What a router does beside sending; see :class:`actors.Router`."""

    def __init__(self, routing: Routing, size: int = 0) -> None:
        one_of("routing", routing, Routing)
        self.routing = routing
        """The policy that chooses a message's worker."""
        self.pool: ActorRef[Pool] | None = None
        """The actor that supervises the workers; None for a group made by :meth:`of`."""
        self.wanted = size
        self.leaving = self.replaced = 0
        self._lock = threading.RLock()  # a signal handler may send, too
        self._turn = itertools.count()
        self._members: Members[Any] = Members(routing, (), (), self._turn)

    def publish(self, refs: tuple[ActorRef[Any], ...], keys: tuple[str, ...]) -> None:
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

    def __await__(self) -> Generator[Any, None, Self]:
        for ref in self.refs:
            yield from ref.__await__()
        return self

    @property
    def refs(self) -> tuple[ActorRef[A_co], ...]:
        """The living workers, in the order of their places."""
        return tuple(ref for ref in self._members.refs if ref.is_alive())

    # -- choosing -------------------------------------------------------------------------------

    def _pick(self, message: Any) -> ActorRef[A_co]:
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

    def _all(self) -> tuple[ActorRef[A_co], ...]:
        refs = self.refs
        if not refs:
            raise self._dead()
        return refs

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

    @overload
    def stop(self, *, block: Literal[True] = True, timeout: float | None = None) -> bool: ...
    @overload
    def stop(self, *, block: Literal[False], timeout: float | None = None) -> Future[bool]: ...
    @overload
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Future[bool]: ...
    def stop(self, *, block: bool = True, timeout: float | None = None) -> bool | Future[bool]:
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
