"""What an actor's own code calls: watches, replies, its mailbox, timers, background work, its stop.

Each acts for the actor only while this instance is it: see :meth:`ActorActions._living_cell`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pykka
from pykka import ActorDeadError

from actors._checks import ref_of
from actors._core import actions, death_watch
from actors._core.closing import stop_if_empty
from actors._core.lifecycle import RESTARTING
from actors._core.pykka_names import ActorStop
from actors._core.supervision import between_lives
from actors._messages import Piped, Request

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._future import Future
    from actors._ref import ActorRef

R = TypeVar("R")


class ActorActions(pykka.Actor):
    """The half of :class:`actors.Actor` that its own code calls."""

    _cell: Cell

    def watch(self, ref: ActorRef[Any]) -> None:
        """Ask for a :class:`Terminated` message when an actor has stopped for good.

        It comes once per watched actor, at once if the actor has stopped already. A restart is not a
        stop. This actor's own restart or stop ends its watches.

        Raises:
            TypeError: it is no ref, but a proxy, a path or the like.
        """
        ref_of("what is watched", ref)
        death_watch.watch(self._living_cell(), ref)

    def unwatch(self, ref: ActorRef[Any]) -> None:
        """End a watch; no message comes, even if it is in the mailbox already."""
        ref_of("what is watched", ref)
        if self._cell.actor is self:  # the watches of an instance from before have ended with its life
            death_watch.unwatch(self._cell, ref)

    # -- replies ----------------------------------------------------------------------------------

    @property
    def is_asked(self) -> bool:
        """Tell whether the current message is an ask whose reply the handler still owes."""
        reply = self._cell.reply
        return reply is not None and reply.wanted

    @overload
    def take_reply(self, request: Request[R]) -> Future[R]: ...
    @overload
    def take_reply(self, request: None = None) -> Future[Any]: ...
    def take_reply(self, request: Request[Any] | None = None) -> Future[Any]:
        """Take over the reply to the current message, to settle it after the handler has returned.

        Settle it with ``try_set`` or ``try_fail``: they tell whether somebody still waits. If this
        actor stops or fails first, the asker gets ``ActorDeadError``. The reply to a tell, or one that has
        been taken already, is a future that nobody waits for: they say False.

        Args:
            request: the current message, so that a type checker knows the future's type; not used
                otherwise.
        """
        return actions.take_reply(self._living_cell())

    # -- the mailbox ----------------------------------------------------------------------------

    def stash(self) -> None:
        """Put the current message aside; its asker, if any, waits on.

        Raises:
            StashFull: ``stash_capacity`` messages are put aside already.
            ValueError: this message is stashed already, or no message is being handled.
        """
        actions.stash(self._living_cell())

    def unstash_all(self) -> None:
        """Handle the stashed messages next, in order. A restart does so by itself.

        If messages are put aside and unstashed again and again, a message of the normal lane (a stop, for example) is
        handled in between from the 64th time on.
        """
        actions.unstash_all(self._living_cell())

    def become(self, behaviour: Callable[[Any], Any], *, discard_old: bool = True) -> None:
        """Handle messages with another function in place of ``on_receive``, until the next restart.

        Args:
            behaviour: gets each message; a plain or a coroutine function.
            discard_old: False puts the current behaviour on a stack for :meth:`unbecome`.

        Raises:
            TypeError: ``behaviour`` cannot be called.
        """
        actions.become(self._living_cell(), behaviour, discard_old=discard_old)

    def unbecome(self) -> None:
        """Return to the behaviour below on the stack, or to ``on_receive``."""
        actions.unbecome(self._living_cell())

    def set_receive_timeout(self, seconds: float | None) -> None:
        """Send this actor a :class:`ReceiveTimeout` after each so many seconds without a message.

        None ends that.
        """
        actions.set_receive_timeout(self._living_cell(), seconds)

    # -- time and work ----------------------------------------------------------------------------

    def set_timer(self, key: Any, delay: float, message: Any, *, every: float | None = None) -> None:
        """Send this actor a message later, in the system lane.

        Args:
            key: names the timer. A timer with the same key is replaced, even if its message is in the
                mailbox already.
            delay: seconds until the message, 0 or more.
            message: what to send.
            every: seconds from the handling of each message to the next one; None sends one only.

        Raises:
            ValueError: ``delay`` is below 0, or ``every`` is not above 0.
        """
        self._living_cell().timers.set(key, delay, message, every)

    def cancel_timer(self, key: Any) -> None:
        """Cancel a timer if it is set; its message is not handled, even if it is in the mailbox."""
        if self._cell.actor is self:
            self._cell.timers.cancel(key)

    def has_timer(self, key: Any) -> bool:
        """Tell whether a timer is set: it has a message still to come."""
        return self._cell.actor is self and self._cell.timers.has(key)

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine beside the mailbox, until this life of the actor ends.

        An exception in it is a failure of the actor; so is a cancellation, unless this life of the actor has ended.
        It must not touch the actor's state: it sends a message to do that.

        Raises:
            TooManyTasks: ``max_tasks`` of them are under way.
        """
        self._living_cell(coroutine).start_task(coroutine)

    def pipe_to_self(
        self,
        work: Awaitable[Any],
        *,
        on_value: Callable[[Any], Any] | None = None,
        on_error: Callable[[BaseException], Any] | None = None,
        tag: Any = None,
    ) -> None:
        """Await something beside the mailbox and receive its outcome as a message (priority lane).

        If this life ends first, the work is cancelled and no message comes.

        Args:
            work: a coroutine, an asyncio future or an :class:`actors.Future`.
            on_value: makes the message from the value; None sends a :class:`Piped`.
            on_error: makes the message from the error; None sends a :class:`Piped`.
            tag: the ``tag`` of the :class:`Piped`.

        Raises:
            TooManyTasks: ``max_tasks`` tasks are under way, or as many outcomes wait in the mailbox beyond the bound of urgent messages.
        """

        def outcome(value: Any, error: BaseException | None) -> Any:
            if error is not None:
                return Piped(None, error, tag) if on_error is None else on_error(error)
            return Piped(value, None, tag) if on_value is None else on_value(value)

        actions.pipe(self._living_cell(work), work, outcome)

    # -- the end ----------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop this actor after the messages that are in its mailbox now; nothing if it has been restarted since."""
        if self._lives():
            self._cell.ref.stop(block=False)

    def stop_if_idle(self) -> bool:
        """Stop this actor unless a message waits for it, be it stashed; for one that stops when nobody has needed it for a while.

        What is sent between :meth:`stop` and the end is lost, or its asker gets ``ActorDeadError``. Here the mailbox is
        closed in the same step: from now on, each sender gets that error, and can look for another actor.

        Returns:
            Whether the actor stops. False also if it has been restarted since.
        """
        cell = self._cell
        if not self._lives():
            return False
        return stop_if_empty(cell.mailbox, (ActorStop(), None, cell.system.clock(), None, None, None))

    def _living_cell(self, work: Any = None) -> Cell:
        """The cell, as long as this instance is the actor: it must not act for the next one, nor when it has stopped.

        Args:
            work: what to close if it is not.
        """
        cell = self._cell
        if cell.actor is not self or (cell.state is RESTARTING and between_lives(cell)):
            if inspect.iscoroutine(work):
                work.close()
            if cell.actor is None:
                raise ActorDeadError(f"{cell.label} has stopped")
            raise ActorDeadError(f"{cell.label} has been restarted: this is an instance from before")
        return cell

    def _lives(self) -> bool:
        """Tell whether this instance is the actor; not if its last hook has ended and a restart follows."""
        return self._cell.actor is self and not between_lives(self._cell)
