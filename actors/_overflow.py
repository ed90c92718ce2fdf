"""What a full mailbox does with one more message, as values.

``FAIL`` (the default) refuses it: :class:`~actors.MailboxFull` for a tell, the future's error for an
ask. ``DROP_NEW`` and ``DROP_OLD`` throw a message away, and whoever asked it gets ``MailboxFull``.
``Wait`` makes senders wait: a thread in ``tell``, a coroutine in ``await ref.send(...)``. A tell on
the event loop never waits, it fails: blocking there would stop the actor that is to make room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors._core.envelope import Envelope
    from actors._core.mailbox import Mailbox


class Overflow:
    """Base of the policies: one method, called for a message that does not fit."""

    __slots__ = ()

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """Take the message, drop one, or raise :class:`~actors.MailboxFull`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Fail(Overflow):
    """Refuse the new message."""

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        raise mailbox.full()


@dataclass(frozen=True, slots=True)
class DropNew(Overflow):
    """Throw the new message away."""

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        mailbox.drop(envelope, "drop_new")


@dataclass(frozen=True, slots=True)
class DropOld(Overflow):
    """Throw the oldest message away to make room."""

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        oldest = mailbox.replace_oldest(envelope)
        if oldest is not None:
            mailbox.drop(oldest, "drop_old")


@dataclass(frozen=True, slots=True)
class Wait(Overflow):
    """Let a sender in another thread wait for room, ``timeout`` seconds at most (None: for ever)."""

    timeout: float | None = None

    def resolve(self, mailbox: Mailbox, envelope: Envelope) -> None:
        """See :meth:`Overflow.resolve`."""
        reply = envelope[1]
        room = mailbox.wait_for_room(envelope)
        if room is None or reply is not None:
            return  # there was room by now; or an ask, whose own future waits
        mailbox.block_for_room(room, self.timeout)


FAIL = Fail()
DROP_NEW = DropNew()
DROP_OLD = DropOld()
