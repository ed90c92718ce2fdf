"""The cell: handles messages, one at a time, from the event loop's callbacks.

A message to an idle actor schedules one callback, which handles up to ``THROUGHPUT`` messages. Plain
handlers therefore cost no task (a task per actor that waits on its inbox cost a task switch per
message, about 2.5 against 0.9 microseconds a tell). Coroutine handlers get one task for as many
messages as wait, not one each.

The clock is read once per message on the way in and once on the way out: the end of one message is
the beginning of the next.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from actors._errors import StashFull, TooManyTasks
from actors._events import SlowHandler
from actors._future import Future
from actors._life import RUNNING, Life, ended_from_outside, pykka_logger
from actors._messages import ChildStopped, ReceiveTimeout, Terminated, Unwatch, Watch
from actors._policy import Supervision
from actors._pykka import ActorStop
from actors._stats import BUCKETS, SHIFT, ActorStatistics, histogram
from actors._timers import TimerFired

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors._actor import Actor
    from actors._envelope import Envelope
    from actors._system import ActorSystem

THROUGHPUT = 64
"""Messages handled before other callbacks of the loop get their turn."""

RECENT = 20
"""Headers of the last messages, kept for crash reports."""

_OWED_PURGE = 256
_IDLE = ReceiveTimeout()


class Cell(Life):
    """What runs an :class:`actors.Actor`."""

    __slots__ = (
        "_idle_after", "_reply", "abandoned", "began", "behaviours", "ended", "envelope", "receive",
        "recent", "runs", "waits",
    )

    def __init__(
        self, system: ActorSystem, parent: Cell | None, actor_class: type[Actor],
        args: tuple[Any, ...], kwargs: dict[str, Any], name: str, supervision: Supervision,
    ) -> None:
        super().__init__(system, parent, actor_class, args, kwargs, name, supervision)
        self.envelope: Envelope | None = None
        """What is being handled."""
        self.began = 0
        """When the message that is being handled was begun (or the last one ended), in ns."""
        self.receive: Callable[[Any], Any]
        """The current behaviour: ``on_receive``, or what ``become`` put in its place."""
        self.behaviours: list[Callable[[Any], Any]] | None = None
        self.recent: deque[tuple[type, Cell | None, int]] | None = None
        self.waits = [0] * BUCKETS
        self.runs = [0] * BUCKETS
        self.abandoned = 0
        self._reply: Future[Any] | None = None
        self._idle_after: float | None = None
        self.ended = self.clock()
        """When the last message was handled (or the actor was made), in ns."""

    # -- the loop -------------------------------------------------------------------------------

    def resume(self) -> None:
        """Handle messages (again): look into the mailbox soon."""
        assert self.actor is not None
        self.receive = self.actor.on_receive
        self.behaviours = None
        self.wake()

    def wake(self) -> None:
        """Schedule a look into the mailbox. Called by any thread."""
        dispatcher = self.system.dispatcher
        if dispatcher is not None:
            dispatcher.schedule(self)
        elif asyncio._get_running_loop() is self.loop:
            self.loop.call_soon(self._run, context=self.context)
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to run
                self.loop.call_soon_threadsafe(self._run, context=self.context)

    def _run(self) -> None:
        if self.task is not None or self.state is not RUNNING:
            return  # whoever ends the task, or starts the next life, looks again
        self.began = self.clock()
        for _ in range(THROUGHPUT):
            envelope = self.mailbox.get()
            if envelope is None:
                if self._falls_asleep():
                    return
                continue
            handler = self._handle(envelope)
            if handler is not None:
                self.task = self.loop.create_task(self._follow(handler), context=self.context)
                return
            if self.state is not RUNNING:
                return
        self.wake()

    def _falls_asleep(self) -> bool:
        # In this order: a thread that puts a message in between finds either the flag, or we the message.
        self.mailbox.asleep = True
        if self.mailbox.empty():
            return True
        self.mailbox.asleep = False
        return False

    def step(self) -> bool:
        """Handle one message; whether there is more to do at once. For a dispatcher."""
        if self.task is not None or self.state is not RUNNING:
            return False
        self.began = self.clock()
        envelope = self.mailbox.get()
        if envelope is None:
            return not self._falls_asleep()
        handler = self.context.run(self._handle, envelope)
        if handler is not None:
            self.task = self.loop.create_task(self._follow(handler), context=self.context)
            return False
        return self.state is RUNNING and not (self.mailbox.empty() and self._falls_asleep())

    def _handle(self, envelope: Envelope) -> CoroutineType[Any, Any, Any] | None:
        """Handle a message; the coroutine if its handler is one."""
        message, reply, sent, sender, trace = envelope
        if reply is not None and reply._state:
            self.abandoned += 1  # the asker gave up before we began
            return None
        kind = type(message)
        receive = self.receive
        if kind in _SPECIAL:
            special = _SPECIAL[kind](self, envelope)
            if special is None:
                return None
            receive, message = special
        self.envelope, self._reply, self.trace = envelope, reply, trace
        began = self.began
        hooks = self.hooks
        error: BaseException | None = None
        try:
            if hooks is not None and (fault := hooks.began(self, envelope)) is not None:
                raise fault
            result = receive(message)
            if type(result) is CoroutineType:
                return result
            reply = self._reply
            if reply is not None:
                reply.try_set(result)
        except BaseException as failure:
            error = failure
        self.began = self.ended = ended = self.clock()
        run = ended - began
        try:
            self.waits[((began - sent) >> SHIFT).bit_length()] += 1
            self.runs[(run >> SHIFT).bit_length()] += 1
        except IndexError:
            self._count_long(began - sent, run)
        if self.recent is None:
            self.recent = deque(maxlen=RECENT)
        self.recent.append((kind, sender, sent))
        if hooks is not None:
            hooks.ended(self, envelope, began, ended, error)
        if run > self.system.slow_ns:
            self._slow(kind, run)
        self.envelope = None
        if error is not None:
            self._handler_failed(envelope, error)
        return None

    async def _follow(self, handler: CoroutineType[Any, Any, Any]) -> None:
        """Await a handler, then go on with the mailbox as long as there is something in it."""
        task = self.task
        in_a_row = 0
        while True:
            envelope, began = self.envelope, self.began
            assert envelope is not None
            error: BaseException | None = None
            try:
                result = await handler
            except BaseException as failure:
                if ended_from_outside(failure):
                    self._abort(envelope)
                    raise
                error = failure
            else:
                if self._reply is not None:
                    self._reply.try_set(result)
            if self.task is not task:
                return  # this life ended while the handler did
            self._account(envelope, began, error)
            if error is not None:
                self._handler_failed(envelope, error)
            following = self._next() if self.system.dispatcher is None else None
            if following is None or self.task is not task:
                break
            handler = following
            in_a_row += 1
            if in_a_row % THROUGHPUT == 0:
                await asyncio.sleep(0)
                if self.task is not task:
                    handler.close()
                    self._abort(envelope)
                    return
        if self.task is task:
            self.task = None
            if self.state is RUNNING:
                self.wake()

    def _next(self) -> CoroutineType[Any, Any, Any] | None:
        for _ in range(THROUGHPUT):
            if self.state is not RUNNING:
                return None
            envelope = self.mailbox.get()
            if envelope is None:
                return None
            handler = self._handle(envelope)
            if handler is not None:
                return handler
        return None

    def _abort(self, envelope: Envelope) -> None:
        reply, self._reply = self._reply, None
        self.envelope = None
        if reply is not None:
            reply.try_fail(self.dead("stopped before handling the message"))

    def _account(self, envelope: Envelope, began: int, error: BaseException | None) -> None:
        message, _, sent, sender, _ = envelope
        self.began = self.ended = ended = self.clock()
        self._count_long(began - sent, ended - began)
        if self.recent is None:
            self.recent = deque(maxlen=RECENT)
        self.recent.append((type(message), sender, sent))
        if self.hooks is not None:
            self.hooks.ended(self, envelope, began, ended, error)
        self.envelope = None

    def _count_long(self, wait: int, run: int) -> None:
        for counts, duration in ((self.waits, wait), (self.runs, run)):
            counts[min((max(duration, 0) >> SHIFT).bit_length(), BUCKETS - 1)] += 1

    def _slow(self, kind: type, run: int) -> None:
        events = self.system.events
        if events.wants(SlowHandler):
            events.publish(SlowHandler(self.path, kind.__name__, run / 1e9))

    def _handler_failed(self, envelope: Envelope, error: BaseException) -> None:
        self.failed += 1
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.try_fail(error)
        if envelope[1] is not None and isinstance(error, Exception):
            # As in pykka: the asker gets the error, the actor lives on.
            pykka_logger.info(
                f"Exception returned from {self.ref} to caller:",
                exc_info=(type(error), error, error.__traceback__),
            )
            return
        self.failed_message = envelope[0]
        self.fail(error, "on_receive", resumable=True)

    # -- the runtime's own messages -----------------------------------------------------------------

    def _stop_asked(self, envelope: Envelope) -> None:
        if envelope[1] is not None:
            self._stop_replies = [*(self._stop_replies or ()), envelope[1]]
        self.request_stop()

    def _timer_fired(self, envelope: Envelope) -> tuple[Callable[[Any], Any], Any] | None:
        fired = envelope[0]
        if not self.timers.accept(fired):
            return None
        return self._idle() if fired.message is _IDLE else (self.receive, fired.message)

    def _idle(self) -> tuple[Callable[[Any], Any], Any] | None:
        if self._idle_after is None:
            return None
        left = self._idle_after - (self.clock() - self.ended) / 1e9
        if left > 1e-6:
            self.timers.set(_IDLE, left, _IDLE)
            return None
        self.timers.set(_IDLE, self._idle_after, _IDLE)
        return self.receive, _IDLE

    def _child_stopped(self, envelope: Envelope) -> tuple[Callable[[Any], Any], Any]:
        assert self.actor is not None
        return self.actor.on_child_stopped, envelope[0].ref

    def _terminated(self, envelope: Envelope) -> tuple[Callable[[Any], Any], Any] | None:
        ref = envelope[0].ref
        if not self.watching or ref not in self.watching:
            return None  # unwatched since
        self.watching.discard(ref)
        return self.receive, envelope[0]

    def _watch_asked(self, envelope: Envelope) -> None:
        self.watched_by(envelope[0].watcher, type(envelope[0]) is Watch)

    def _proxied(self, envelope: Envelope) -> tuple[Callable[[Any], Any], Any]:
        assert self.actor is not None
        return self.actor._handle_receive, envelope[0]

    # -- what an actor may do -------------------------------------------------------------------

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
            self._owed = set()
        owed = self._owed
        owed.add(reply)
        if len(owed) >= _OWED_PURGE and len(owed) & (len(owed) - 1) == 0:
            # At each power of two: what is settled leaves, so the cost per reply is constant.
            self._owed = {future for future in owed if not future.done()}
        return reply

    def start_task(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        """See :meth:`actors.Actor.start_task`."""
        if self._tasks is None:
            self._tasks = set()
        if len(self._tasks) >= self.actor_class.max_tasks:
            coroutine.close()
            raise TooManyTasks(f"{self.path} has {len(self._tasks)} tasks under way")
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        if self._tasks is not None:
            self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error, "task")

    def become(self, behaviour: Callable[[Any], Any], discard_old: bool) -> None:
        """See :meth:`actors.Actor.become`."""
        if not discard_old:
            self.behaviours = [*(self.behaviours or ()), self.receive]
        self.receive = behaviour

    def unbecome(self) -> None:
        """See :meth:`actors.Actor.unbecome`."""
        assert self.actor is not None
        self.receive = self.behaviours.pop() if self.behaviours else self.actor.on_receive

    def stash(self) -> None:
        """See :meth:`actors.Actor.stash`."""
        if self.envelope is None:
            raise ValueError("there is no message to stash: none is being handled")
        if self.stashed is None:
            self.stashed = []
        if len(self.stashed) >= self.actor_class.stash_capacity:
            raise StashFull(f"{self.path} has stashed {len(self.stashed)} messages")
        self.stashed.append(self.envelope)
        self._reply = None

    def unstash_all(self) -> None:
        """See :meth:`actors.Actor.unstash_all`."""
        stashed, self.stashed = self.stashed, None
        self.mailbox.put_back(stashed or [])

    def set_receive_timeout(self, seconds: float | None) -> None:
        """See :meth:`actors.Actor.set_receive_timeout`."""
        self._idle_after = seconds
        if seconds is None:
            self.timers.cancel(_IDLE)
        else:
            self.timers.set(_IDLE, seconds, _IDLE)

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
            path=self.path, actor_class=self.actor_class.__name__, state=self.state,
            processed=runs.total, failed=self.failed, abandoned=self.abandoned,
            restarts=self.restarts, children=len(self.children), tasks=len(self._tasks or ()),
            mailbox=self.mailbox.statistics(), wait=histogram(self.waits), run=runs,
            current=None if envelope is None else type(envelope[0]).__name__,
            current_age=0.0 if envelope is None else (self.clock() - self.began) / 1e9,
        )

    def describe(self) -> str:
        """What the actor is at, for a report of a stop that did not end."""
        envelope = self.envelope
        at = "" if envelope is None else f", handling {type(envelope[0]).__name__}"
        return f"{self.path} ({self.state}{at}, {len(self.mailbox)} waiting)"


_SPECIAL: dict[type, Callable[[Cell, Envelope], tuple[Callable[[Any], Any], Any] | None]] = {
    ActorStop: Cell._stop_asked,
    TimerFired: Cell._timer_fired,
    ChildStopped: Cell._child_stopped,
    Terminated: Cell._terminated,
    Watch: Cell._watch_asked,
    Unwatch: Cell._watch_asked,
    ProxyCall: Cell._proxied,
    ProxyGetAttr: Cell._proxied,
    ProxySetAttr: Cell._proxied,
}
