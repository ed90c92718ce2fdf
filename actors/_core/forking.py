"""Declare the parent's actors dead in a forked child: calls of them fail there."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from actors._core.lifecycle import STOPPED
from actors._core.pykka_names import ActorRegistry, unregister
from actors._errors import ActorError

if TYPE_CHECKING:
    from actors._core.cell import Cell


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
            for envelope in (*current, *mailbox.drain()):
                if envelope[1] is not None:
                    envelope[1].try_fail(cell.dead("not found"))
            unregister(cell.ref)


__all__ = ["forget_actors"]
