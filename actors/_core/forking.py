"""Declare the parent's actors dead in a forked child: calls of them fail there."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from actors._core.closing import drain
from actors._core.lifecycle import STOPPED
from actors._core.pykka_names import ActorRegistry, unregister
from actors._errors import ActorError

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._system import ActorSystem

systems: weakref.WeakSet[ActorSystem] = weakref.WeakSet()
"""All systems of this process."""


def forget_actors(trees: Iterable[list[Cell]]) -> None:
    """Declare actors dead whose threads do not exist in this process, without a hook, an event or a lock.

    Args:
        trees: the cells of each system.
    """
    registry: Any = ActorRegistry
    registry._actor_refs_lock = threading.RLock()
    for cells in trees:
        for cell in cells:
            mailbox = cell.mailbox
            mailbox.lock = threading.RLock()
            mailbox.closed, mailbox.bound = True, -1
            cell.state = STOPPED
            cell.error = ActorError("it lives in the process that has forked this one")
            cell.stopped_flag.set_quietly()
            current = () if cell.envelope is None else (cell.envelope,)
            for envelope in (*current, *drain(mailbox)):
                if envelope[1] is not None:
                    envelope[1].try_fail(cell.dead("not found"))
            unregister(cell.ref)


def _after_fork() -> None:
    """In the child of a fork: no loop runs on there, whichever thread has run it. One that did not run may begin to."""
    forget_actors(system.walk() for system in tuple(systems) if system.loop.is_running())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

__all__ = ["forget_actors", "systems"]
