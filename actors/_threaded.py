"""Actors for blocking work: the same tree, supervision and API, with a thread each.

All methods of the actor except ``__init__`` run in its thread, as in pykka. The system's loop keeps
the actor's lives, children, timers and tasks, as it does for every actor. A message goes straight from
the sender to the thread, past the loop.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import itertools
import queue
import threading
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, ClassVar

from actors._actor import HOOKS, Actor
from actors._core import actions
from actors._core.accounting import account
from actors._core.cell import Cell
from actors._core.crash_reports import report
from actors._core.handling import broken_off, work
from actors._core.lifecycle import RUNNING, STOPPING, stop_grace
from actors._core.termination import depart
from actors._errors import ActorError, NoAnswer

_numbers = itertools.count()

ANSWER = 1.0
"""Seconds that a thread gets at least to answer the loop: also an idle one needs its turn on a busy machine."""


class Worker:
    """One thread that does jobs in order, until :meth:`end`.

    Args:
        name: the thread's.
        daemon: whether the program may end while the thread runs.
        context: where the jobs run, as far as they enter none themselves.
    """

    __slots__ = ("_jobs", "thread")

    def __init__(self, name: str, daemon: bool, context: contextvars.Context) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=context.run, args=(self._work,), name=name, daemon=daemon)
        self.thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def submit(self, job: Callable[[], None]) -> None:
        """Do a job after those that were submitted before."""
        self._jobs.put(job)

    def end(self) -> None:
        """End the thread after the jobs that wait."""
        self._jobs.put(None)


class ThreadedCell(Cell):
    """A cell whose messages are handled in a thread."""

    threaded = True

    __slots__ = ("_abandoned", "_halted", "_tasks_lock", "_worker")

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._worker: Worker | None = None
        self._abandoned = False
        """Whether the thread has not come back from a handler or a hook; nothing more runs in it."""
        self._halted = False
        """Whether the thread waits for the loop, which deals with a failure or a stop."""
        self._tasks_lock = threading.RLock()

    def _submit(self, job: Callable[[], None]) -> None:
        self._thread().submit(job)

    def _thread(self) -> Worker:
        """The thread, which begins at its first use. Raises what ``threading.Thread.start`` does."""
        if self.own is self.context:
            # A copy in each life: two threads cannot be in one context, and the loop runs tasks in ours.
            self.own = self.context.copy()
        if self._worker is None:
            actor_class: Any = self.actor_class
            self._worker = Worker(
                f"{actor_class.__name__}-{next(_numbers)}", actor_class.use_daemon_thread, self.own.copy()
            )
        return self._worker

    def prepare(self) -> BaseException | None:
        """Begin the thread; see :meth:`Cell.prepare`."""
        try:
            self._thread()
        except Exception as error:  # the system has no more threads
            return error
        return None

    # -- messages, in the thread ------------------------------------------------------------------

    def resume(self) -> None:
        """See :meth:`Cell.resume`."""
        self._halted = False
        super().resume()

    def wake(self) -> None:
        """Have the thread look into the mailbox. Called by any thread."""
        if self.state is RUNNING:
            self._submit(self.run)

    def run(self) -> None:
        """Handle the messages that wait, in the thread."""
        while self.state is RUNNING and not self._halted:
            try:
                handler = self.handling_context().run(work, self, 1)
            except BaseException as error:  # a defect of the runtime: the thread goes on
                report(self, error, "on_receive")
                broken_off(self, error)
                return
            if handler is not None:
                self._refuse(handler)
            elif self.mailbox.empty() and self.falls_asleep():
                return

    def _refuse(self, handler: CoroutineType[Any, Any, Any]) -> None:
        envelope = self.envelope
        assert envelope is not None
        error = _no_coroutine(handler)
        account(self, envelope, self.began, error)
        self.handler_failed(envelope, error)

    # -- what is left to the loop -----------------------------------------------------------------

    def fail(self, error: BaseException, where: str, *, resumable: bool = False) -> None:
        """See :meth:`Cell.fail`; the loop decides on a failure in the thread."""
        if asyncio._get_running_loop() is self.loop:
            super().fail(error, where, resumable=resumable)
        else:
            self._halted = True
            if not self.system.on_loop(self._fail_on_loop, error, where, resumable):
                self.system.loop_closed()

    def _fail_on_loop(self, error: BaseException, where: str, resumable: bool) -> None:
        super().fail(error, where, resumable=resumable)
        if self.state is RUNNING:  # the directive was RESUME
            self._halted = False
            self.wake()

    def request_stop(self) -> None:
        """See :meth:`Cell.request_stop`; the loop carries it out."""
        if asyncio._get_running_loop() is self.loop:
            super().request_stop()
        else:
            self._halted = True
            if not self.system.on_loop(super().request_stop):
                self.system.loop_closed()

    async def call(self, hook: str, *args: Any) -> None:
        """Run a hook in the thread; see :meth:`Cell.call`.

        Args:
            hook: the hook's name.
            args: for the hook.
        """
        ending = self.begin_hook(hook, args)
        if ending is not None and (error := await ending) is not None:
            raise error

    def begin_hook(self, hook: str, args: tuple[Any, ...]) -> asyncio.Future[BaseException | None] | None:
        """Have the thread run a hook; see :meth:`Cell.begin_hook`."""
        if self._abandoned or getattr(type(self.actor), hook) is getattr(Actor, hook):
            return None
        ending: asyncio.Future[BaseException | None] = self.loop.create_future()
        function = getattr(self.actor, hook)  # Now: the hook of this life must never run on the next one's.
        self._submit(lambda: self._run_hook(function, args, ending))
        return ending

    def _run_hook(
        self, hook: Callable[..., Any], args: tuple[Any, ...], ending: asyncio.Future[BaseException | None]
    ) -> None:
        error: BaseException | None = None
        try:
            result = self.own.run(hook, *args)
            if type(result) is CoroutineType:
                error = _no_coroutine(result)
        except BaseException as failure:
            error = failure
        self._settle_soon(ending, error)

    def _settle_soon(self, future: asyncio.Future[Any], result: Any) -> None:
        self.system.on_loop(_settle, future, result)

    async def end_handler(self, task: asyncio.Task[None] | None, grace: float) -> None:
        """Wait for the thread to come back; see :meth:`Cell.end_handler`. One that does not is abandoned."""
        await super().end_handler(task, grace)
        if self._worker is None or self._abandoned:
            return
        back: asyncio.Future[None] = self.loop.create_future()
        self._submit(functools.partial(self._settle_soon, back, None))
        await asyncio.wait([back], timeout=max(2 * stop_grace(self), ANSWER))
        if back.done():
            return
        self._abandon("its handler", back)
        envelope = self.envelope
        if envelope is not None and envelope[1] is not None:
            envelope[1].try_fail(self.dead("was abandoned in its handler", NoAnswer))

    async def give_up_hook(self, ending: asyncio.Future[BaseException | None]) -> None:
        """Give the thread ``stop_grace`` to come back from a last hook, which nobody can cancel; then abandon it."""
        await asyncio.wait([ending], timeout=max(stop_grace(self), ANSWER))
        if not ending.done():
            self._abandon("its last hook", ending)

    def _abandon(self, where: str, back: asyncio.Future[Any]) -> None:
        """Let nothing more run in the thread. Its life cannot end, so there is no next one.

        Args:
            where: what it does not come back from.
            back: done when it has come back all the same.
        """
        self._abandoned = True
        self.system.abandon(self, back)
        report(
            self,
            ActorError(f"the thread of {self.path} does not come back from {where} and is abandoned"),
            "on_receive",
        )
        depart(self)
        self.state = STOPPING

    def cut_off(self) -> None:
        """Do nothing: a thread's handler ends by itself, before anything else runs in the thread."""

    def start_task(
        self,
        coroutine: Coroutine[Any, Any, Any],
        cancelled: Callable[[asyncio.CancelledError], None] | None = None,
    ) -> None:
        """See :func:`actions.start_task`; the coroutine runs on the system's loop.

        Raises:
            TooManyTasks: ``max_tasks`` of them are under way, or on their way to the loop.
        """
        if asyncio._get_running_loop() is self.loop:
            super().start_task(coroutine, cancelled)
            return
        with self._tasks_lock:
            actions.hand_over(self, coroutine, cancelled)

    def start_handed(
        self,
        coroutine: Coroutine[Any, Any, Any],
        cancelled: Callable[[asyncio.CancelledError], None] | None,
    ) -> None:
        """See :func:`actions.start_handed`."""
        with self._tasks_lock:  # a task counts once, also in the middle of this
            super().start_handed(coroutine, cancelled)

    def retire(self) -> None:
        """End the thread."""
        if self._worker is not None:
            self._worker.end()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _no_coroutine(handler: CoroutineType[Any, Any, Any]) -> TypeError:
    handler.close()
    return TypeError(
        f"{handler.__qualname__} is a coroutine: a ThreadedActor has no loop to run it on; "
        "make it a plain function, or the actor an Actor"
    )


class ThreadedActor(Actor):
    """An actor whose handlers and hooks may block: they run in a thread of its own.

    They are plain functions; blocking calls (``ask``, ``Future.get``, ``stop``) are allowed in them.
    ``start_task`` and ``pipe_to_self`` run on the system's loop. A thread cannot be cancelled: when the
    actor stops, its handler gets twice its ``stop_grace`` to end, a second at least; then the thread is
    abandoned, and the :class:`~actors.StopReport` names the actor.
    """

    use_daemon_thread: ClassVar[bool] = False
    """Whether the program may end while the thread runs; see :class:`pykka.ThreadingActor`."""

    _cell_class = ThreadedCell

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        hooks = {hook: getattr(cls, hook) for hook in HOOKS}
        for name, function in (
            hooks | {each.__name__: each for each in cls._dispatch_table.values()}
        ).items():
            if inspect.iscoroutinefunction(function):
                raise TypeError(
                    f"{cls.__qualname__}.{name} is a coroutine function: a ThreadedActor has no "
                    "loop to run it on; make it a plain function, or the actor an Actor"
                )
