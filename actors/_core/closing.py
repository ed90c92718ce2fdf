"""The closing of a mailbox: from then on senders get an error, and what is left in it can be taken out.

The look at what waits and the closing are one step, under the mailbox's lock: a message that is sent at this moment is either in
before, or refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actors._core import waiting
from actors._core.pykka_names import ActorStop
from actors._messages import ChildStopped, Terminated

if TYPE_CHECKING:
    from actors._core.envelope import Envelope
    from actors._core.mailbox import Mailbox


def close(mailbox: Mailbox) -> None:
    """Accept nothing more. Senders that wait for room get an error; asks and other messages stay."""
    with mailbox.lock:
        mailbox.closed, mailbox.bound = True, -1
        senders = mailbox.waiting
        while senders:
            envelope, room = senders[0]
            room.try_fail(mailbox.cell.dead("not found"))
            # Behind the others: nobody waits for room for these, but for an answer, or for nothing (see ``line_up``).
            if (envelope[1] is not None or room.target is None) and not (
                mailbox.normal and mailbox.normal[-1] is envelope
            ):
                mailbox.normal.append(envelope)
            del senders[0]  # the last: what Ctrl-C interrupts is begun again
        mailbox.waiting = None


def close_if_empty(mailbox: Mailbox) -> bool:
    """Accept nothing more if no message and no sender waits; return whether it closed."""
    with mailbox.lock:
        if not mailbox.empty() or any(map(waiting.waits, mailbox.waiting or ())):
            return False
        mailbox.closed, mailbox.bound = True, -1
        return True


def stop_if_empty(mailbox: Mailbox, envelope: Envelope) -> bool:
    """Accept nothing more and stop next, if no message, put aside or not, and no sender waits; return whether it is so.

    An ask that was put aside and given up does not count: nobody handles it.

    Args:
        mailbox: the actor's.
        envelope: the request to stop, which is then the only message.
    """
    with mailbox.lock:
        put_aside = any(each[1] is None or not each[1].done() for each in mailbox.cell.stashed or ())
        if put_aside or not close_if_empty(mailbox):
            return False
        mailbox.stop_asked = True
        mailbox.normal.append(envelope)
    mailbox.rouse()
    return True


def take_put_aside(mailbox: Mailbox) -> Iterator[Envelope]:
    """Take the messages that the actor had put aside, as :func:`drain` does; first those that it wanted again."""
    for lane in (mailbox._unstashed, mailbox.cell.stashed):
        yield from _take_all(mailbox, lane)


def drain(mailbox: Mailbox) -> Iterator[Envelope]:
    """Take all messages, in order; each one when the next is asked for: what Ctrl-C interrupts loses none."""
    for lane in (mailbox._system, mailbox._priority, mailbox._unstashed, mailbox.normal):
        yield from _take_all(mailbox, lane)


def _take_all(mailbox: Mailbox, lane: deque[Envelope] | list[Envelope] | None) -> Iterator[Envelope]:
    while lane:
        try:
            envelope = lane[0]
        except IndexError:  # a thread has taken its message back
            continue
        yield envelope
        with mailbox.lock:
            if lane and lane[0] is envelope:
                del lane[0]


def stops_next(mailbox: Mailbox) -> bool:
    """Tell, between two lives, whether a request to stop is the first message that the next life would handle.

    News of the ended life's children and watches before it does not count: the next life ignores it.
    """
    if not mailbox.stop_asked or mailbox._priority or mailbox._unstashed:
        return False
    kinds = (type(each[0]) for each in tuple(mailbox.normal))
    return next((kind for kind in kinds if kind not in (ChildStopped, Terminated)), None) is ActorStop


def lost_stop(mailbox: Mailbox) -> bool:
    """Tell whether the request to stop was taken, and whoever took it has not begun with the stop: Ctrl-C came in between."""
    lined_up = (envelope for envelope, _ in tuple(mailbox.waiting or ()))
    return mailbox.stop_asked and not any(type(each[0]) is ActorStop for each in (*mailbox, *lined_up))
