"""Workers: several processes of one daemon, each with an engine of its own, that serve the same addresses.

A client's connections may end in different workers. A message belongs to the worker that has delivered it, so an ack that arrives in
another one is handed on (:class:`Strays`). A message that nobody acknowledges is delivered again, so a lost ack loses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Protocol

logger = logging.getLogger("pixy.engine")

MOST_STRAYS: Final = 1024
"""Acks of ``ConsumeNAck`` that may be on their way to other workers; more are dropped, and their messages delivered again."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One of the workers.

    Attributes:
        number: from 1 on; a worker that replaces another one has the same.
        count: of all workers.
        folder: for the sockets by which they reach each other; only the daemon's user can enter it.
        secret: proves a request to be a worker's.
        unix: the descriptor of the socket that listens on ``unix_addr`` for all of them; -1: there is none.
        admin: likewise for ``admin_addr``.
    """

    number: int
    count: int
    folder: str
    secret: str
    unix: int = -1
    admin: int = -1


@dataclass(frozen=True, slots=True)
class Stray:
    """An ack for a message that another worker has delivered.

    Attributes:
        cluster: the name of the message's cluster.
        identity: as whom it was consumed; empty: as the daemon.
        topic: of the message.
        group: that has consumed it.
        partition: of the message.
        offset: of the message.
    """

    cluster: str
    identity: str
    topic: str
    group: str
    partition: int
    offset: int


class Siblings(Protocol):
    """The other workers."""

    async def ack(self, stray: Stray) -> bool:
        """Offer an ack to all of them; return whether one has taken it."""
        ...


class Strays:
    """Hands acks of one cluster's clients on.

    Args:
        siblings: the other workers.
        cluster: its name.
        identity: as whom its clients consume; empty: as the daemon.
    """

    def __init__(self, siblings: Siblings, cluster: str, identity: str = "") -> None:
        self._siblings = siblings
        self._cluster = cluster
        self._identity = identity
        self._under_way: set[asyncio.Task[bool]] = set()

    async def ack(self, topic: str, group: str, partition: int, offset: int) -> bool:
        """Return whether another worker has taken an ack."""
        return await self._siblings.ack(Stray(self._cluster, self._identity, topic, group, partition, offset))

    def later(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Hand an ack on without waiting for what comes of it."""
        if len(self._under_way) >= MOST_STRAYS:
            logger.warning(
                "too many acks are on their way to other workers, one of group %s is dropped", group
            )
            return
        task = asyncio.ensure_future(self.ack(topic, group, partition, offset))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)


__all__ = ["MOST_STRAYS", "Siblings", "Stray", "Strays", "Worker"]
