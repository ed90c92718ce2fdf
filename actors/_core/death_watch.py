"""Death watch: an actor asks to be told, by a ``Terminated`` message, when another one has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors._messages import Terminated, Unwatch, Watch

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._ref import ActorRef


def watch(cell: Cell, ref: ActorRef[Any]) -> None:
    """See :meth:`actors.Actor.watch`."""
    if cell.watching is None:
        cell.watching = {}
    if ref not in cell.watching:
        cell.watching[ref] = None
        if not ref._cell.send_system(Watch(cell)):
            cell.send_system(Terminated(ref, ref._cell.error))


def unwatch(cell: Cell, ref: ActorRef[Any]) -> None:
    """See :meth:`actors.Actor.unwatch`."""
    if cell.watching and ref in cell.watching:
        del cell.watching[ref]
        ref._cell.send_system(Unwatch(cell))


def unwatch_all(cell: Cell) -> None:
    """End all watches of this actor."""
    for ref in tuple(cell.watching or ()):
        unwatch(cell, ref)


def add_watcher(cell: Cell, watcher: Cell) -> None:
    """Remember who wants to be told when this actor has stopped."""
    if cell.watchers is None:
        cell.watchers = {}
    cell.watchers[watcher] = None


def remove_watcher(cell: Cell, watcher: Cell) -> None:
    """Forget a watcher."""
    if cell.watchers is not None:
        cell.watchers.pop(watcher, None)


def tell_watchers(cell: Cell) -> None:
    """Tell the watchers that this actor has stopped for good."""
    watchers, cell.watchers = cell.watchers, None
    for watcher in watchers or ():
        watcher.send_system(Terminated(cell.ref, cell.error))
