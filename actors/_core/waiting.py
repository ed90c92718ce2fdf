"""Senders that wait for room in a full mailbox: in a thread, or in a coroutine.

A waiting message and its ``room``, a future that is done when the message is in the normal lane, stand in
the mailbox's ``waiting`` queue. The actor moves them into the lane as it takes messages out. The runtime's own messages
of the normal lane, which need no room otherwise, line up in the queue while there is one: what was sent before them comes first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from pykka import Timeout

from actors._errors import AskCycle
from actors._future import Future, on_event_loop

if TYPE_CHECKING:
    from actors._core.envelope import Envelope
    from actors._core.mailbox import Mailbox

MAX_WAITING = 10_000
"""Senders that may wait for room in one mailbox at the same time."""


def may_block(mailbox: Mailbox) -> bool:
    """Tell whether this thread may block until there is room.

    Not if it runs an event loop, or is a signal handler that has interrupted a put into the same mailbox.
    """
    return not (on_event_loop() or mailbox.lock._is_owned())  # type: ignore[attr-defined]


def wait_for_room(mailbox: Mailbox, envelope: Envelope) -> Future[None] | None:
    """Put a message into the normal lane, or into the queue before it if the lane is full.

    Args:
        mailbox: the recipient's.
        envelope: the message with its reply and sender.

    Returns:
        a future that is done when the message is in the lane; None if it is in now.

    Raises:
        ActorDeadError: the actor has stopped.
        MailboxFull: too many senders wait already.
    """
    room: Future[None] | None = None
    with mailbox.lock:
        closed = mailbox.closed
        if not closed and len(mailbox.normal) < mailbox.capacity and not mailbox.waiting:
            mailbox.normal.append(envelope)
        elif not closed:
            room = _queue(mailbox, envelope)
    if closed:
        raise mailbox.dead(envelope)
    # Also if it waits: the actor may have emptied the lane, and fallen asleep, since the look at its length.
    mailbox.rouse()
    return room


def waits(entry: tuple[Envelope, Future[None]]) -> bool:
    """Tell whether an entry of the queue still waits: its sender and its asker have not given up."""
    envelope, room = entry
    return not room.done() and (envelope[1] is None or not envelope[1].done())


def _queue(mailbox: Mailbox, envelope: Envelope) -> Future[None]:
    made: deque[tuple[Envelope, Future[None]]] = deque()
    # Look and set in one line: a signal handler may have made one meanwhile.
    mailbox.waiting = queue = made if mailbox.waiting is None else mailbox.waiting
    if len(queue) >= MAX_WAITING:
        for entry in tuple(queue):
            queue.popleft()
            if waits(entry):
                queue.append(entry)
    if len(queue) >= MAX_WAITING:
        raise mailbox.full(MAX_WAITING)
    return _add(mailbox, queue, envelope)


def _add(mailbox: Mailbox, queue: deque[tuple[Envelope, Future[None]]], envelope: Envelope) -> Future[None]:
    room: Future[None] = Future()
    room.target = mailbox.cell
    queue.append((envelope, room))
    mailbox.rare = True
    return room


def stand_behind(mailbox: Mailbox, envelope: Envelope) -> None:
    """Put one of the runtime's messages behind all that were sent before it, those that wait included. Under the lock.

    Args:
        mailbox: the recipient's.
        envelope: the message.
    """
    queue = mailbox.waiting
    if queue:
        _add(mailbox, queue, envelope)
    else:
        mailbox.normal.append(envelope)


def line_up(mailbox: Mailbox, envelope: Envelope) -> None:
    """Put a message whose sender does not wait behind those of the senders that do. Under the lock.

    Args:
        mailbox: the recipient's.
        envelope: the message.

    Raises:
        MailboxFull: too many messages wait already.
    """
    _queue(mailbox, envelope).target = None


def block_for_room(mailbox: Mailbox, room: Future[None], timeout: float | None) -> None:
    """Block this thread until a waiting message is in the lane.

    Args:
        mailbox: the full mailbox.
        room: the future of :func:`wait_for_room`.
        timeout: seconds to wait at most; None waits without a limit.

    Raises:
        MailboxFull: no room in time.
        ActorDeadError: the actor has stopped meanwhile.
        AskCycle: the actor waits, in turn, for the calling one.
    """
    try:
        room.get(timeout=timeout)
    except Timeout:
        if room.cancel():
            raise mailbox.full() from None
        room.result()  # let in, or refused, at the same moment
    except AskCycle:
        if room.cancelled():
            raise
        room.result()  # let in, or refused, at the same moment


async def let_in_within(mailbox: Mailbox, room: Future[None], timeout: float | None) -> None:
    """Wait in a coroutine until a waiting message is in the lane.

    Args:
        mailbox: the full mailbox.
        room: the future of :func:`wait_for_room`.
        timeout: seconds to wait at most; None waits without a limit.

    Raises:
        MailboxFull: no room in time.
        ActorDeadError: the actor has stopped meanwhile.
    """
    try:
        async with asyncio.timeout(timeout):
            await room
    except TimeoutError:
        if not room.value_set():  # else the message got in at the same moment
            raise mailbox.full() from None


def let_in(mailbox: Mailbox) -> None:
    """Move waiting messages into the room that has become free in the lane.

    Under the lock, so that no other sender gets in before them.
    """
    with mailbox.lock:
        while mailbox.waiting and len(mailbox.normal) < mailbox.capacity:
            entry = envelope, room = mailbox.waiting[0]
            reply = envelope[1]
            if (reply is None or not reply.done()) and room.try_set(None):
                mailbox.normal.append(envelope)
            # The last: the sender of an entry that Ctrl-C takes along would wait for ever.
            if mailbox.waiting[0] is entry:  # else a signal handler has tidied up the queue
                del mailbox.waiting[0]
