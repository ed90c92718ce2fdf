"""Handling of the runtime's own messages and pykka's: stops, timers, watches, proxy calls.

Each function gets the cell and the envelope, and returns what the loop is to call instead of the
actor's ``on_receive``, or None if the message is dealt with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from actors._core.actions import IDLE, idle_message
from actors._core.pykka_names import ActorStop
from actors._core.timers import TimerFired
from actors._messages import ChildStopped, OfLife, Restored, Terminated

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

Handling: TypeAlias = "tuple[Callable[[Any], Any], Any]"
"""A function, and the message to call it with."""


def _stop_asked(cell: Cell, envelope: Envelope) -> None:
    if envelope[1] is not None:  # pykka's own, put into the mailbox by hand
        cell.stop_waiters = [*(cell.stop_waiters or ()), envelope[1]]
    cell.request_stop()


def _timer_fired(cell: Cell, envelope: Envelope) -> Handling | None:
    fired = envelope[0]
    if not cell.timers.accept(fired):
        return None
    message = idle_message(cell) if fired.message is IDLE else fired.message
    return None if message is None else (cell.behaviour, message)


def _child_stopped(cell: Cell, envelope: Envelope) -> Handling | None:
    if envelope[0].life is not cell.actor:
        return None  # a child of the life before
    hook = cell.actor.on_child_stopped
    # The message stays what it is, so that instruments tell it from a ref that somebody has sent.
    return lambda news: hook(news.ref), envelope[0]


def _terminated(cell: Cell, envelope: Envelope) -> Handling | None:
    ref = envelope[0].ref
    if not cell.watching or ref not in cell.watching:
        return None  # no longer watched
    del cell.watching[ref]
    return cell.behaviour, envelope[0]


def _restored(cell: Cell, envelope: Envelope) -> Handling:
    return cell.behaviour, envelope[0].message


def _of_life(cell: Cell, envelope: Envelope) -> Handling | None:
    return (cell.behaviour, envelope[0].message) if envelope[0].life is cell.actor else None


def _proxied(cell: Cell, envelope: Envelope) -> Handling:
    return cell.actor._handle_receive, envelope[0]


SPECIAL: dict[type, Callable[[Cell, Envelope], Handling | None]] = {
    ActorStop: _stop_asked,
    TimerFired: _timer_fired,
    ChildStopped: _child_stopped,
    Terminated: _terminated,
    Restored: _restored,
    OfLife: _of_life,
    ProxyCall: _proxied,
    ProxyGetAttr: _proxied,
    ProxySetAttr: _proxied,
}
"""The messages that do not go to ``on_receive`` as they are."""


def handle_special(cell: Cell, envelope: Envelope) -> Handling | None:
    """Handle one of these messages, or tell the loop how to.

    Args:
        cell: the actor's.
        envelope: one of the messages whose types are in ``SPECIAL``.
    """
    cell.envelope = cell.trace = None
    return SPECIAL[type(envelope[0])](cell, envelope)
