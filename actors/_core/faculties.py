"""What an actor may do beside handling messages, as far as its cell has a part in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from actors._core.stats import BUCKETS, ActorStatistics, histogram
from actors._core.termination import Mortal
from actors._errors import StashFull, TooManyTasks
from actors._future import Future
from actors._messages import ReceiveTimeout, Restored, Terminated
from actors._policy import Supervision

if TYPE_CHECKING:
    from actors._actor import Actor
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._system import ActorSystem

_OWED_PURGE = 256
IDLE = ReceiveTimeout()


class Faculties(Mortal):
    """Replies, tasks, behaviours, the stash, idleness, statistics."""

    __slots__ = (
        "_handler",
        "_idle_after",
        "_reply",
        "_stashed_last",
        "abandoned",
        "began",
        "behaviours",
        "ended",
        "envelope",
        "receive",
        "recent",
        "runs",
        "waits",
    )

    def __init__(
        self,
        system: ActorSystem,
        parent: Cell | None,
        actor_class: type[Actor],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str,
        supervision: Supervision,
    ) -> None:
        super().__init__(system, parent, actor_class, args, kwargs, name, supervision)
        self.envelope: Envelope | None = None
        """What is being handled."""
        self._stashed_last: Envelope | None = None
        self._handler: CoroutineType[Any, Any, Any] | None = None
        self.began = 0
        """When the message that is being handled was begun (or the last one ended), in ns."""
        self.receive: Callable[[Any], Any] | None = None
        """What ``become`` put in the place of ``on_receive``."""
        self.behaviours: list[Callable[[Any], Any] | None] | None = None
        self.recent: deque[tuple[type, Cell | None, int]] | None = None
        self.waits = [0] * BUCKETS
        self.runs = [0] * BUCKETS
        self.abandoned = 0
        self._reply: Future[Any] | None = None
        self._idle_after: float | None = None
        self.ended = self.clock()
        """When the last message was handled (or the actor was made), in ns."""

    def is_asked(self) -> bool:
        """See :attr:`actors.Actor.is_asked`."""
        return self._reply is not None

    def take_reply(self) -> Future[Any]:
        """See :meth:`actors.Actor.take_reply`."""
        reply, self._reply = self._reply, None
        if reply is None:
            return Future()
        reply.target = None
        if self._owed is None:
            self._owed = {}
        owed = self._owed
        owed[reply] = None
        if len(owed) >= _OWED_PURGE and len(owed) & (len(owed) - 1) == 0:
            # At each power of two: what is settled leaves, so the cost per reply is constant.
            self._owed = {future: None for future in owed if not future.done()}
        return reply

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """See :meth:`actors.Actor.start_task`."""
        if self._tasks is None:
            self._tasks = {}
        if len(self._tasks) >= self.actor_class.max_tasks:
            coroutine.close()
            raise TooManyTasks(f"{self.path} has {len(self._tasks)} tasks under way")
        task = self.loop.create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if self._tasks is not None:
            self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error, "task")

    def become(self, behaviour: Callable[[Any], Any], discard_old: bool) -> None:
        """See :meth:`actors.Actor.become`."""
        if not discard_old:
            self.behaviours = [*(self.behaviours or ()), self.receive]
        self.receive = behaviour

    def unbecome(self) -> None:
        """See :meth:`actors.Actor.unbecome`."""
        self.receive = self.behaviours.pop() if self.behaviours else None

    @property
    def behaviour(self) -> Callable[[Any], Any]:
        """What handles messages now."""
        return self.receive or self.actor.on_receive

    def stash(self) -> None:
        """See :meth:`actors.Actor.stash`."""
        if self.envelope is None:
            raise ValueError("there is no message to stash: none is being handled")
        if self._stashed_last is self.envelope:
            raise ValueError("this message is stashed already")
        if self.stashed is None:
            self.stashed = []
        if len(self.stashed) >= self.actor_class.stash_capacity:
            raise StashFull(f"{self.path} has stashed {len(self.stashed)} messages")
        envelope = self.envelope
        if isinstance(envelope[0], Terminated):
            envelope = (Restored(envelope[0]), *envelope[1:])
        self.stashed.append(envelope)
        self._stashed_last = self.envelope
        self._reply = None

    def unstash_all(self) -> None:
        """See :meth:`actors.Actor.unstash_all`."""
        stashed, self.stashed = self.stashed, None
        self.mailbox.put_back(stashed or [])

    def set_receive_timeout(self, seconds: float | None) -> None:
        """See :meth:`actors.Actor.set_receive_timeout`."""
        self._idle_after = seconds
        if seconds is None:
            self.timers.cancel(IDLE)
        else:
            self.timers.set(IDLE, seconds, IDLE)

    # -- looking in -----------------------------------------------------------------------------

    def recent_headers(self) -> tuple[tuple[str, str | None, float], ...]:
        """See :class:`actors.ActorFailed`."""
        now = self.clock()
        return tuple(
            (kind.__name__, None if sender is None else sender.path, (now - sent) / 1e9)
            for kind, sender, sent in self.recent or ()
        )

    def statistics(self) -> ActorStatistics:
        """See :class:`actors.ActorStatistics`."""
        envelope = self.envelope
        runs = histogram(self.runs)
        return ActorStatistics(
            path=self.path,
            actor_class=self.actor_class.__name__,
            state=self.state,
            processed=runs.total,
            failed=self.failed,
            abandoned=self.abandoned,
            restarts=self.restarts,
            children=len(self.children),
            tasks=len(self._tasks or ()),
            mailbox=self.mailbox.statistics(),
            wait=histogram(self.waits),
            run=runs,
            current=None if envelope is None else type(envelope[0]).__name__,
            current_age=0.0 if envelope is None else (self.clock() - self.began) / 1e9,
        )

    def describe(self) -> str:
        """What the actor is at, for a report of a stop that did not end."""
        envelope = self.envelope
        at = "" if envelope is None else f", handling {type(envelope[0]).__name__}"
        return f"{self.path} ({self.state}{at}, {len(self.mailbox)} waiting)"

    def idle(self) -> tuple[Callable[[Any], Any], Any] | None:
        """The receive timeout's timer fired: the message if the actor was idle for so long."""
        if self._idle_after is None:
            return None
        left = self._idle_after - (self.clock() - self.ended) / 1e9
        if left > 1e-6:
            self.timers.set(IDLE, left, IDLE)
            return None
        self.timers.set(IDLE, self._idle_after, IDLE)
        return self.behaviour, IDLE
