"""Refs of actors that may stop and be started again: a call finds the present one, and is repeated if that has gone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal, Protocol, TypeVar

from actors import Actor, ActorDeadError, ActorRef, MailboxFull, NoAnswer, Request
from pixy.errors import PixyError, ShuttingDown, TooManyRequests, Unavailable

R = TypeVar("R")
A = TypeVar("A", bound=Actor)

ATTEMPTS: Final = 3
NO_KEY: Final = ""
"""No configuration key bounds these mailboxes: those of the cluster, and acks to a group."""


class Asked(Protocol):
    """Takes requests, such as an ``ActorRef``."""

    def ask(self, request: Request[R], /, *, block: Literal[False]) -> Awaitable[R]: ...


class ActorRefs:
    """Finds the actors of one cluster.

    Args:
        cluster: the ``ActorRef[Cluster]``, or what starts it.
        stopping: whether the engine stops: then an actor that is gone does not come back.
        most: entries of a cache beyond which actors that have stopped are dropped from it.
    """

    def __init__(self, cluster: Asked, stopping: Callable[[], bool], most: int) -> None:
        self._cluster = cluster
        self._stopping = stopping
        self._most = most

    async def ask(
        self,
        cache: dict[str, ActorRef[A]],
        name: str,
        get: Request[ActorRef[A]],
        message: Request[R],
        limit: str,
        *,
        repeat: bool = True,
    ) -> R:
        """Ask an actor; if it is gone, ask the cluster for another one.

        Args:
            cache: the refs of actors of this kind, by name.
            name: of the actor.
            get: asks the cluster for it.
            message: for the actor.
            limit: the configuration key that a full mailbox is reported with.
            repeat: ask another one also if the first has begun with the message. NoAnswer is raised if not.
        """
        for _ in range(ATTEMPTS):
            ref = await self.resolve(cache, name, get)
            try:
                return await unless_full(ref.ask(message, block=False), limit)
            except NoAnswer:
                cache.pop(name, None)
                if not repeat:
                    raise
            except ActorDeadError:
                cache.pop(name, None)
        raise self.gone()

    async def resolve(
        self, cache: dict[str, ActorRef[A]], name: str, get: Request[ActorRef[A]]
    ) -> ActorRef[A]:
        """Return the ref of an actor, from the cache or from the cluster. Arguments as for :meth:`ask`."""
        ref = cache.get(name)
        if ref is not None and ref.is_alive():
            return ref
        try:
            found = await unless_full(self._cluster.ask(get, block=False), NO_KEY)
        except ActorDeadError as error:
            raise self.gone() from error
        if len(cache) > self._most:
            for gone in [each for each, known in cache.items() if not known.is_alive()]:
                del cache[gone]
        cache[name] = found
        return found

    def gone(self) -> PixyError:
        """Return the error for an actor that has gone, time and again."""
        return ShuttingDown() if self._stopping() else Unavailable("restarting, try again")


async def unless_full(future: Awaitable[R], limit: str) -> R:
    """Wait for a reply.

    Args:
        future: of an ``ask`` with ``block=False``.
        limit: the configuration key that bounds the mailbox, for the error; or :data:`NO_KEY`.

    Raises:
        TooManyRequests: the mailbox was full.
    """
    try:
        return await future
    except MailboxFull as error:
        raise TooManyRequests(limit) from error


__all__ = ["ATTEMPTS", "NO_KEY", "ActorRefs", "Asked", "unless_full"]
