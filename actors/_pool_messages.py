"""What passes between a router and its pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykka import ActorDeadError

from actors._core.mailbox import ControlMessage
from actors._future import Future

if TYPE_CHECKING:
    from actors._core.stats import ActorStatistics


@dataclass(frozen=True, slots=True)
class Resize(ControlMessage):
    """To the pool: have so many workers."""

    size: int


@dataclass(frozen=True, slots=True)
class StopPool(ControlMessage):
    """To the pool: let the workers finish what they have, then stop."""


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """A router at one moment.

    ``size`` is how many workers there should be, ``alive`` how many take messages, ``leaving`` how
    many finish what they have since the pool was made smaller, ``replaced`` how many workers took
    the place of one that stopped for good. ``depth`` sums up what waits in the mailboxes.
    """

    path: str | None
    routing: str
    size: int
    alive: int
    leaving: int
    replaced: int
    depth: int
    workers: tuple[ActorStatistics, ...]


class Stopped(Future[bool]):
    """The reply to a stop: the pool's end is what it waits for, however it comes about.

    It can not be given up: a stop goes on when nobody waits for it any more.
    """

    def try_fail(self, error: BaseException) -> bool:
        """The pool is gone: True."""
        if isinstance(error, ActorDeadError):
            return self.try_set(True)
        return super().try_fail(error)

    def cancel(self) -> bool:
        """Never."""
        return False
