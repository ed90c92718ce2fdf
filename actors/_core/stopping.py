"""The replies to requests to stop. A request is one message, however often it is made.

The replies are kept weakly: nobody waits for one that nobody keeps, and a program that asks for a stop again
and again would otherwise make a reply for each.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from actors._core.lifecycle import STOPPED

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._future import Future


def note(cell: Cell, reply: Future[Any]) -> bool:
    """Have a reply settled when the actor has stopped; False if its mailbox is closed already. In any thread."""
    with cell.mailbox.lock:
        if cell.mailbox.closed or cell.state is STOPPED:
            return False
        if cell.stop_replies is None:
            cell.stop_replies = {}
        replies = cell.stop_replies
        replies[weakref.ref(reply, lambda gone: replies.pop(gone, None))] = None
    return True


def settle(cell: Cell) -> None:
    """Answer all requests: the actor has stopped."""
    replies, cell.stop_replies = cell.stop_replies, None
    for each in tuple(replies or ()):
        reply = each()
        if reply is not None:
            reply.try_set(True)
