"""Messages that no actor will handle: dead letters and dropped messages, answered and published."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors._core.pykka_names import ActorStop
from actors._core.timers import TimerFired
from actors._errors import NoAnswer
from actors._events import DeadLetter, Dropped, Event
from actors._messages import ChildStopped, OfLife, Restored, Terminated

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope


_OWN = (TimerFired, ChildStopped, Terminated, Restored, OfLife)
"""Messages that end with the actor, as what they report on is over for it."""


def answer_dead_letter(cell: Cell, envelope: Envelope, *, put_aside: bool = False) -> None:
    """Answer a message left in a mailbox: its asker gets an error.

    Args:
        cell: the recipient, which has stopped.
        envelope: the message.
        put_aside: whether a handler has seen it, and put it aside.
    """
    message, reply, *_ = envelope
    kind = type(message)
    if kind is ActorStop:
        if reply is not None:
            reply.try_set(True)
    elif kind not in _OWN:
        if reply is not None:
            if reply.done():
                return
            reply.try_fail(
                cell.dead("stopped with the message put aside", NoAnswer)
                if put_aside
                else cell.dead("stopped before handling the message")
            )
        publish_dead_letter(cell, envelope, "left in the mailbox")


def publish_dead_letter(cell: Cell, envelope: Envelope, reason: str = "stopped") -> None:
    """Count and publish a dead letter, unless it is itself an event, whose loss is no news.

    Args:
        cell: the recipient.
        envelope: the message.
        reason: for the event.
    """
    system = cell.system
    if isinstance(envelope[0], Event):
        return
    system.dead_letters += 1
    if system.events.wants(DeadLetter):
        system.events.publish(DeadLetter(envelope[0], cell.path, _sender(envelope), reason))


def publish_dropped(cell: Cell, envelope: Envelope, reason: str) -> None:
    """Publish a message that an overflow policy or an instrument has dropped, unless it is itself an event.

    Two full subscribers of dropped messages would otherwise tell each other of their losses for ever.

    Args:
        cell: the recipient.
        envelope: the message.
        reason: for the event.
    """
    events = cell.system.events
    if not isinstance(envelope[0], Event) and events.wants(Dropped):
        events.publish(Dropped(envelope[0], cell.path, _sender(envelope), reason))


def _sender(envelope: Envelope) -> str | None:
    return None if envelope[3] is None else envelope[3].path
