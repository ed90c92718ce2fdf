"""Messages that no actor will handle: dead letters and dropped messages, answered and published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors._core.pykka_names import ActorStop
from actors._core.timers import TimerFired
from actors._events import DeadLetter, Dropped
from actors._messages import ChildStopped, Terminated, Unwatch, Watch

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope


def answer_dead_letter(cell: Cell, envelope: Envelope) -> None:
    """Answer a message left in a mailbox: its asker gets an error, a watcher its notice.

    Args:
        cell: the recipient, which has stopped.
        envelope: the message.
    """
    message, reply, *_ = envelope
    kind = type(message)
    if kind is ActorStop:
        if reply is not None:
            reply.try_set(True)
    elif kind is Watch:
        message.watcher.send_system(Terminated(cell.ref, cell.error))
    elif kind is not TimerFired and kind is not ChildStopped and kind is not Unwatch:
        if reply is not None:
            if reply.done():
                return
            reply.try_fail(cell.dead("stopped before handling the message"))
        publish_dead_letter(cell, envelope, "left in the mailbox")


def publish_dead_letter(cell: Cell, envelope: Envelope, reason: str = "stopped") -> None:
    """Count and publish a dead letter.

    Args:
        cell: the recipient.
        envelope: the message.
        reason: for the event.
    """
    system = cell.system
    system.dead_letters += 1
    if system.events.wants(DeadLetter):
        system.events.publish(DeadLetter(envelope[0], cell.path, _sender(envelope), reason))


def publish_dropped(cell: Cell, envelope: Envelope, reason: str) -> None:
    """Publish a message that an overflow policy or an instrument has dropped.

    Args:
        cell: the recipient.
        envelope: the message.
        reason: for the event.
    """
    events = cell.system.events
    if events.wants(Dropped):
        events.publish(Dropped(envelope[0], cell.path, _sender(envelope), reason))


def _sender(envelope: Envelope) -> str | None:
    return None if envelope[3] is None else envelope[3].path
