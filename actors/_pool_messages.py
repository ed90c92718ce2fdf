"""Messages and replies between a router and its pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pykka import ActorDeadError

from actors._core.error_fields import is_a
from actors._core.mailbox import ControlMessage
from actors._future import Future
from actors._messages import Request

if TYPE_CHECKING:
    from actors._core.stats import ActorStatistics


@dataclass(frozen=True, slots=True)
class Resize(ControlMessage, Request[int]):
    """To the pool: have ``size`` workers. The reply is the size, once the others have left."""

    size: int


@dataclass(frozen=True, slots=True)
class StopPool(ControlMessage):
    """To the pool: let the workers handle the messages that they have, then stop."""


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    """A router at one moment.

    ``path`` is the pool's, ``routing`` the policy's class. ``size`` is the number of workers that there
    should be, ``alive`` of those that take messages, ``leaving`` of those that handle their last
    messages after a resize, ``replaced`` of those that took the place of a stopped one. ``depth`` is the
    number of messages in all mailboxes.
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
    """The reply to a stop: True when the pool has stopped, for whatever reason.

    It cannot be cancelled: the stop goes on when nobody waits for it any more.
    """

    def try_fail(self, error: BaseException) -> bool:
        """Take the pool's death as success."""
        if is_a(error, ActorDeadError):
            return self.try_set(True)
        return super().try_fail(error)

    def cancel_alone(self) -> bool:
        """Refuse: always False."""
        return False
