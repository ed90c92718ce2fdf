"""Asks that are given up in time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors._future import Future
    from actors._system import ActorSystem


def expire(system: ActorSystem, future: Future[Any], timeout: float) -> None:
    """Give up an ask after some time, in any thread.

    Args:
        system: the actor's.
        future: the reply.
        timeout: seconds; the error names them.
    """

    def arm() -> None:
        if not future.done():
            future.expires(system.loop.call_later(timeout, _over, system, future, timeout))

    future.deadline = time.monotonic() + timeout, timeout, system.loop
    if not system.on_loop(arm):
        system.loop_closed()


def _over(system: ActorSystem, future: Future[Any], timeout: float) -> None:
    future.expire(timeout)
    if system.turns.pending:  # Ctrl-C may have lost the turn that the ask has waited for
        system.turns.look_again()
