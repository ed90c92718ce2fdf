"""Death watch: an actor asks to be told, by a ``Terminated`` message, when another one has stopped.

Watchers stand in the watched cell, under its mailbox's lock, for they come from any thread. They are no messages
to it: an actor that watches and unwatches a busy one again and again would fill its mailbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors._core.lifecycle import STOPPED
from actors._messages import Terminated

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._ref import ActorRef


def watch(cell: Cell, ref: ActorRef[Any]) -> None:
    """See :meth:`actors.Actor.watch`."""
    if cell.watching is None:
        cell.watching = {}
    if ref not in cell.watching:
        cell.watching[ref] = None
        if not _add_watcher(ref._cell, cell):
            cell.send_behind(Terminated(ref, ref._cell.error))


def unwatch(cell: Cell, ref: ActorRef[Any]) -> None:
    """See :meth:`actors.Actor.unwatch`."""
    if cell.watching and ref in cell.watching:
        del cell.watching[ref]
        watched = ref._cell
        with watched.mailbox.lock:
            if watched.watchers is not None:
                watched.watchers.pop(cell, None)


def unwatch_all(cell: Cell) -> None:
    """End all watches of this actor."""
    for ref in tuple(cell.watching or ()):
        unwatch(cell, ref)


def _add_watcher(cell: Cell, watcher: Cell) -> bool:
    """Remember who wants to be told when this actor has stopped; False if it has."""
    with cell.mailbox.lock:
        if cell.state is STOPPED:
            return False
        if cell.watchers is None:
            cell.watchers = {}
        cell.watchers[watcher] = None
    return True


def tell_watchers(cell: Cell) -> None:
    """Tell the watchers that this actor, whose state is STOPPED now, has stopped for good."""
    with cell.mailbox.lock:
        watchers = tuple(cell.watchers or ())
    for watcher in watchers:  # who gets it twice ignores the second
        watcher.send_behind(Terminated(cell.ref, cell.error))
    cell.watchers = None
