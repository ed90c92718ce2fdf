"""Asks that were given up leave mailbox and stash before their turn, so that they take no room from others.

The actor skips such an ask when its turn comes. One that is blocked, or slow, would not come to it: a thousand asks
that have timed out would keep its mailbox full, and refuse or hold up all who send then.

Where an ask stands its future does not know, and taking one out of the middle of a lane takes as long as the lane is. So
give-ups are counted, and a lane is looked through when they are a share of its capacity: they keep a ``SHARE``-th of it
occupied at most, and each costs a look at ``SHARE`` messages. A stash is looked through when it is full.

The loop's thread does it, as it takes the messages, also for an actor with a thread of its own, which may take one meanwhile.
"""

from __future__ import annotations

import contextlib
from collections import deque
from threading import get_ident
from typing import TYPE_CHECKING

from actors._core import waiting
from actors._core.loops import runs_here
from actors._core.promise import PENDING
from actors._core.pykka_names import ActorStop

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._core.mailbox import Mailbox

SHARE = 64
"""Given-up asks occupy less than this part of a lane's or stash's capacity; of one below 128, nothing."""

TRIES = 3
"""How often a lane is looked through while others change it: an actor that takes messages meanwhile is not blocked."""


class GivenUp:
    """Asks of one actor that were given up since a lane, or the stash, was looked through; wherever they stood."""

    __slots__ = ("normal", "priority", "stash")

    def __init__(self) -> None:
        self.normal = self.priority = self.stash = 0


def count(mailbox: Mailbox, priority_bound: int) -> None:
    """Count an ask that was given up, and make room if it is time. In any thread.

    Args:
        mailbox: of the actor that owes the reply.
        priority_bound: the capacity of its priority lane.
    """
    given_up = mailbox.given_up
    if given_up is None:
        made = GivenUp()
        # Look and set in one line: another thread may have made one meanwhile.
        mailbox.given_up = given_up = made if mailbox.given_up is None else mailbox.given_up
    given_up.normal += 1
    given_up.priority += 1
    given_up.stash += 1
    normal, priority = is_due(given_up.normal, mailbox.capacity), is_due(given_up.priority, priority_bound)
    if normal:
        given_up.normal = 0
    if priority:
        given_up.priority = 0
    if normal or priority:
        _look_through(mailbox, normal, priority)


def is_due(given_up: int, capacity: int) -> bool:
    """Tell whether to look for asks that were given up, after so many of them."""
    return given_up >= max(1, capacity // SHARE)


def _look_through(mailbox: Mailbox, normal: bool, priority: bool) -> None:
    """Make room in these lanes on the loop's thread: now, or soon."""
    loop = mailbox.cell.loop
    # A signal handler may give up an ask in the middle of a put.
    if runs_here(loop, get_ident()) and not mailbox.lock._is_owned():  # type: ignore[attr-defined]
        make_room(mailbox, normal, priority)
    else:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(make_room, mailbox, normal, priority)


def make_room(mailbox: Mailbox, normal: bool, priority: bool) -> None:
    """Take the asks that were given up out of these lanes, and let in who waits for room. On the loop's thread.

    Args:
        mailbox: the actor's.
        normal: whether to look through the normal lane.
        priority: whether to look through the priority lane.
    """
    gone: list[Envelope] = []  # until the lock is free: their finalizers are the program's code
    with mailbox.lock:
        if mailbox.closed:  # nobody waits for room, and the end of the actor takes the messages out
            return
        if normal:
            gone += _clear(mailbox.normal)
        if priority and mailbox._priority:
            gone += _clear(mailbox._priority)
        if gone:
            waiting.let_in(mailbox)
    number = len(gone)  # an actor's own thread counts, too, between two calls
    mailbox.cell.abandoned += number
    # An actor's own thread may have found the lane empty before, and nobody waiting for room after somebody was let in.
    mailbox.rouse()


def _clear(lane: deque[Envelope]) -> list[Envelope]:
    """Take the asks that were given up out of a lane, under the lock; return them."""
    for _ in range(TRIES):
        seen = tuple(lane)
        gone: list[Envelope] = []
        kept: list[Envelope] = []
        for each in seen:
            (gone if _is_given_up(each) else kept).append(each)
        if not gone:
            break
        rest = iter(kept)
        # In one line, with one call: nothing comes in between, neither the actor's thread nor a signal handler that sends.
        if lane and lane[0] is seen[0] and lane[-1] is seen[-1] and deque.__init__(lane, rest) is None:
            return gone
    return []


def make_room_in_stash(cell: Cell) -> None:
    """Take the asks that were given up out of a full stash, if there may be enough of them. In the actor's thread."""
    given_up, stashed = cell.mailbox.given_up, cell.stashed
    if stashed and given_up is not None and is_due(given_up.stash, cell.actor_class.stash_capacity):
        given_up.stash = 0
        kept = [each for each in stashed if not _is_given_up(each)]
        cell.abandoned += len(stashed) - len(kept)
        stashed[:] = kept


def _is_given_up(envelope: Envelope) -> bool:
    """Tell whether the actor would skip a message; see ``handling.work``. A request to stop outlives who has asked."""
    reply = envelope[1]
    return reply is not None and reply._state != PENDING and type(envelope[0]) is not ActorStop
