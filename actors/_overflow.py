"""Overflow policies: what a full mailbox does with one more message.

``FAIL`` (the default) refuses it: a tell raises :class:`~actors.MailboxFull`, an ask's future gets it
as its error. ``DROP_NEW`` and ``DROP_OLD`` drop a message; the asker of a dropped ask gets
``MailboxFull``. ``Wait`` makes senders wait: a thread in ``tell``, a coroutine in ``await
ref.send(...)``. A tell on the event loop fails instead of waiting: blocking the loop would stop the
actor that has to make room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors._checks import timeout_of
from actors._core.waiting import block_for_room, let_in, line_up, may_block, wait_for_room

if TYPE_CHECKING:
    from actors._core.envelope import Envelope
    from actors._core.mailbox import Mailbox


class Overflow:
    """Base class of the policies."""

    __slots__ = ()

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """Called for a message that does not fit: take it, drop one, or refuse.

        Args:
            mailbox: the full mailbox.
            envelope: the message with its reply and sender.

        Raises:
            MailboxFull: the message is refused.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Fail(Overflow):
    """Refuse the new message."""

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        raise mailbox.full()


@dataclass(frozen=True, slots=True)
class DropNew(Overflow):
    """Drop the new message."""

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        mailbox.drop(envelope, "drop_new")


@dataclass(frozen=True, slots=True)
class DropOld(Overflow):
    """Drop the oldest message to make room."""

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        oldest = _replace_oldest(mailbox, envelope)
        if oldest is not None:
            mailbox.drop(oldest, "drop_old")


def _replace_oldest(mailbox: Mailbox, envelope: Envelope) -> Envelope | None:
    """Add a message; if the lane is full, take the oldest one out and return it.

    The runtime's own messages are never taken. If senders wait for room, the first of them gets the place of the oldest
    message, and the new one stands behind them.
    """
    oldest: Envelope | None = None
    with mailbox.lock:
        closed = mailbox.closed
        if not closed:
            waits = bool(mailbox.waiting)
            if waits:  # those who wait for room have sent before
                line_up(mailbox, envelope)
            if len(mailbox.normal) >= mailbox.capacity:
                oldest = _take_oldest(mailbox)
            if waits:
                let_in(mailbox)
            else:
                mailbox.normal.append(envelope)
    if closed:
        raise mailbox.dead(envelope)
    mailbox.rouse()
    return oldest


def _take_oldest(mailbox: Mailbox) -> Envelope | None:
    # Not by index: the lane may get shorter meanwhile, if the actor has another thread.
    kept: list[Envelope] = []
    oldest: Envelope | None = None
    while oldest is None and mailbox.normal:
        try:
            candidate = mailbox.normal.popleft()
        except IndexError:  # the actor was faster
            break
        if mailbox.never_dropped(candidate):
            kept.append(candidate)
        else:
            oldest = candidate
    mailbox.normal.extendleft(reversed(kept))
    return oldest


@dataclass(frozen=True, slots=True)
class Wait(Overflow):
    """Let a sender in another thread wait for room, ``timeout`` seconds at most (None: without a limit)."""

    timeout: float | None = None

    def __post_init__(self) -> None:
        timeout_of("timeout", self.timeout)

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        reply = envelope[1]
        if reply is None and not may_block(mailbox):
            # Not queued first: the actor's own thread could let the message in before it is taken back.
            raise mailbox.full()
        room = wait_for_room(mailbox, envelope)
        if room is None or reply is not None:
            return  # the message is in; or it is an ask, whose own future waits
        block_for_room(mailbox, room, self.timeout)


FAIL = Fail()
DROP_NEW = DropNew()
DROP_OLD = DropOld()
