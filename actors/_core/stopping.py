"""The replies to requests to stop. A request is one message, however often it is made.

The replies are kept weakly: nobody waits for one that nobody keeps, and a program that asks for a stop again
and again would otherwise make a reply for each. One that has a callback, or that a task awaits, is kept until it
is settled: the actor's end is what calls them, and nothing else may hold them.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeAlias

from actors._core.context import current
from actors._core.lifecycle import STOPPED
from actors._core.pykka_names import ActorStop
from actors._future import Future

if TYPE_CHECKING:
    from actors._core.cell import Cell

StopReplies: TypeAlias = "dict[weakref.ref[StopReply], StopReply | None]"
"""The replies that somebody keeps; a value is the reply itself if somebody waits for it."""


class StopReply(Future[bool]):
    """The reply to a request to stop."""

    _kept: StopReplies | None = None

    def keep_in(self, replies: StopReplies) -> None:
        """Note where it is settled from."""
        replies[weakref.ref(self, lambda gone: replies.pop(gone, None))] = None
        self._kept = replies

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """See :meth:`Future.add_done_callback`."""
        self._hold()
        super().add_done_callback(callback, context=context)

    def _park(self, loop: asyncio.AbstractEventLoop) -> Generator[Any, None, None]:
        self._hold()
        yield from super()._park(loop)

    def _hold(self) -> None:
        kept = self._kept
        if kept is not None:
            kept[weakref.ref(self)] = self
            if self.done():  # a thread has settled it meanwhile
                kept.pop(weakref.ref(self), None)

    def _settle(self, state: int, value: Any) -> bool:
        settled = super()._settle(state, value)
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.pop(weakref.ref(self), None)
        return settled


def request(cell: Cell) -> StopReply:
    """Have an actor stop after the messages that are in its mailbox now. In any thread.

    Args:
        cell: the actor's.

    Returns:
        the reply: False if it was dead already.
    """
    reply = StopReply()
    reply.target = cell
    envelope = (ActorStop(), None, cell.clock(), current.get(), None, None)
    if not note(cell, reply) or not cell.mailbox.push_stop(envelope):
        reply.try_set(False)
    restart = cell.restart
    if restart is not None:  # soon: who asks does not expect the actor's end in the middle of it
        cell.system.on_loop(cell.loop.call_soon, restart.stop_asked, cell)
    cell.system.check_loop()
    return reply


def note(cell: Cell, reply: StopReply) -> bool:
    """Have a reply settled when the actor has stopped; False if its mailbox is closed already. In any thread.

    Args:
        cell: the actor's.
        reply: to a request to stop.
    """
    with cell.mailbox.lock:
        if cell.mailbox.closed or cell.state is STOPPED:
            return False
        if cell.stop_replies is None:
            cell.stop_replies = {}
        reply.keep_in(cell.stop_replies)
    return True


def settle(cell: Cell) -> None:
    """Answer all requests: the actor has stopped."""
    for each in tuple(cell.stop_replies or ()):
        reply = each()
        if reply is not None:
            reply.try_set(True)
    cell.stop_replies = None
