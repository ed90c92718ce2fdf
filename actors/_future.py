"""A pykka future that can be awaited on any loop and waited for in any thread.

pykka's own ``await`` blocks the event loop (pykka issue 99); this one is woken by the loop. When the last
awaiter is cancelled, the future is cancelled, so that the actor does not work for an asker that is gone.
``map``, ``filter``, ``join`` and ``reduce`` make futures that the first one to ask computes, as in pykka,
but on the loop when they are awaited there. Cancelling one cancels the futures that it is computed from, as
``asyncio.gather`` does.

``asyncio.wait`` takes these futures as they are, by ``add_done_callback``; ``gather``, ``wait_for`` and the like
wrap them. ``as_asyncio`` and ``as_coroutine`` convert one for what insists on its own types.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from threading import get_ident
from typing import Any, TypeVar, cast

import pykka

from actors._core import deadlock
from actors._core.context import current
from actors._core.derived import compute, compute_in_thread, derived, joined
from actors._core.loops import call_on
from actors._core.mirror import Mirror
from actors._core.promise import PENDING, Callback, Promise, Waiter
from actors._core.pykka_names import Unset
from actors._errors import AskCycle, WouldDeadlock

WITHDRAWN = object()
"""The message of a cancellation that ends a task of the runtime, after which nobody is gone who waited."""

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")


def on_event_loop() -> bool:
    """Tell whether the calling thread runs an event loop right now."""
    return asyncio._get_running_loop() is not None


def get_or_give_up(future: Future[T], timeout: float | None) -> T:
    """Wait in a thread for the value of an ask, and give the ask up if it does not come in time. Raises as :meth:`Future.get`."""
    try:
        return future.get(timeout=timeout)
    except pykka.Timeout:
        future.cancel()
        raise


def never_block(what: str, instead: str) -> None:
    """Refuse to block a thread that runs an event loop.

    Args:
        what: would block.
        instead: what to write.

    Raises:
        WouldDeadlock: the thread runs one.
    """
    if on_event_loop():
        raise WouldDeadlock(
            f"{what} on the event loop's thread would wait for itself; use '{instead}' instead"
        )


class Future(Promise[T]):
    """The reply to an ask. ``await`` it on a loop, or ``get`` it in a thread without one."""

    _await_hook: Callable[[], Awaitable[Any]] | None = None
    """Awaits the values that a derived future is computed from."""
    _compute_hook: Callable[[Any], T]
    """Computes it from these, for the first awaiter that has them."""
    _single: Future[Any] | None = None
    """The future that this one is computed from, if it is one of these and the only one: not with ``join``."""
    _computing: list[object] | None = None
    """One entry for each who awaits a derived future, or blocks for it: a list, as several threads may come and go."""
    _tasks: dict[asyncio.AbstractEventLoop, tuple[asyncio.Task[None], object]] | None = None
    """The tasks that compute a derived future for callbacks, with their entries in ``_computing``."""
    _observers = 0
    """How many of the callbacks do not wait for the value; see :meth:`observe`."""
    wanted = True
    """Whether somebody waits for the value. False: a process actor's tell, of which only the end counts."""

    # -- callbacks ------------------------------------------------------------------------------

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``callback(self)`` on the running loop when the future is done; see :class:`asyncio.Future`.

        A future of ``map``, ``filter``, ``join`` or ``reduce`` is computed for that, on this loop.

        Args:
            callback: gets this future.
            context: where the callback runs; None takes a copy of the current one.
        """
        loop = asyncio.get_running_loop()
        entry = Callback(callback, loop, contextvars.copy_context() if context is None else context)
        if self.deadline is not None:
            entry.timer = self.timer_here(loop)
        callbacks: list[Callback] = self.__dict__.setdefault("_callbacks", [])
        callbacks.append(entry)
        if self._state != PENDING:
            with contextlib.suppress(ValueError):  # the thread that settled the future has taken it
                callbacks.remove(entry)
                entry.schedule(self)
        elif self._get_hook is not None:
            tasks = self.__dict__.setdefault("_tasks", {})  # the loop alone would hold it weakly
            if loop not in tasks:
                token = object()
                tasks[loop] = loop.create_task(self._compute(loop, token)), token

    def observe(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback(self)`` as :meth:`add_done_callback` does, for somebody who does not wait for the value.

        It does not keep the last awaiter's cancellation from giving the future up.
        """
        self._observers += 1
        self.add_done_callback(callback)

    def unobserve(self, callback: Callable[[Any], object]) -> None:
        """Forget a callback of :meth:`observe`. In any thread."""
        self._observers -= self.remove_done_callback(callback)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget a callback; return how many times it was there."""
        callbacks = self._callbacks or []
        removed = [entry for entry in tuple(callbacks) if entry.function == callback]
        for entry in removed:
            with contextlib.suppress(ValueError):
                callbacks.remove(entry)
            if entry.timer is not None:
                call_on(entry.loop, entry.drop_timer)
        if removed and self._tasks and self._state == PENDING:
            self._withdraw()
        return len(removed)

    async def _compute(self, loop: asyncio.AbstractEventLoop, token: object) -> None:
        try:
            with contextlib.suppress(BaseException):  # the outcome keeps it
                if self._state == PENDING:
                    await compute(self, token)
        finally:
            if self._tasks is not None and self._tasks.get(loop, (None, None))[1] is token:
                del self._tasks[loop]

    def _withdraw(self) -> None:
        """End the tasks whose callbacks have been removed. Nobody waits through them, and nobody gives the future up."""
        for loop, (task, token) in tuple((self._tasks or {}).items()):
            if not any(entry.loop is loop for entry in tuple(self._callbacks or ())):
                cast("dict[Any, Any]", self._tasks).pop(loop, None)
                with contextlib.suppress(ValueError):
                    (self._computing or []).remove(token)
                call_on(loop, task.cancel, WITHDRAWN)

    def as_asyncio(self) -> asyncio.Future[T]:
        """Make an asyncio future of the running loop with the same outcome; cancelling it cancels this one.

        For what insists on asyncio's type, such as ``asyncio.wait`` in the eyes of a type checker. It waits for the value
        while somebody waits for it; if nobody keeps it, nothing is left of it.
        """
        return Mirror(self, asyncio.get_running_loop())

    def is_awaited(self) -> bool:
        """Tell whether somebody waits for the value, in whatever way."""
        return bool(self._computing or self._waiters or self._blocked) or (
            len(self._callbacks or ()) > self._observers
        )

    async def as_coroutine(self) -> T:
        """Await the future in a coroutine, as ``TaskGroup.create_task`` wants it."""
        return await self

    def result(self) -> T:
        """The value of a future that is done; raises its error.

        Raises:
            asyncio.InvalidStateError: it is not done.
        """
        if self._state == PENDING:
            raise asyncio.InvalidStateError("the future is not done")
        return self._outcome()

    # -- waiting ----------------------------------------------------------------------------

    def get(self, *, timeout: float | None = None) -> T:
        """Wait in a thread for the value; see :meth:`pykka.Future.get`.

        Raises:
            WouldDeadlock: the calling thread runs an event loop; ``await`` the future there.
            AskCycle: the actor that would answer waits, in turn, for the calling one.
            pykka.Timeout: no reply within ``timeout`` seconds.
        """
        if self._get_hook is not None and self._state == PENDING:
            compute_in_thread(self, timeout)
            return self._outcome()
        if self._state == PENDING:
            never_block("Future.get()", "await future")
            try:
                with deadlock.blocking(self):
                    self._block(timeout)
            except AskCycle:
                self.cancel()  # as for an awaiter: what was refused is not handled
                raise
        return self._outcome()

    def _block(self, timeout: float | None) -> None:
        # A bare lock, released once: threading.Event makes three objects and takes 2 us.
        lock = threading.Lock()
        lock.acquire()
        blocked = self.__dict__.setdefault("_blocked", [])
        blocked.append(lock)
        if self._state != PENDING:
            return
        deadline = self.deadline
        if deadline is not None:
            left = max(0.0, deadline[0] - time.monotonic())
            if timeout is None or left < timeout:
                timeout = left
            else:
                deadline = None
        # A lock waits threading.TIMEOUT_MAX seconds at most (292 years).
        if lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            return
        with contextlib.suppress(ValueError):  # it was about to be released
            blocked.remove(lock)
        if self._state != PENDING:
            return
        if deadline is None:
            raise pykka.Timeout(f"{timeout} seconds")
        self.expire(deadline[1])  # the loop should have, but may be blocked

    def set_get_hook(self, func: Any) -> None:
        """See :meth:`pykka.Future.set_get_hook`. Raises ``queue.Full`` if already settled."""
        if self._state != PENDING:
            raise queue.Full
        self._get_hook_result = Unset()
        self._get_hook, self._await_hook = func, None

    def __await__(self) -> Generator[Any, None, T]:
        if self._get_hook is not None and self._state == PENDING:
            yield from compute(self).__await__()
            return self._outcome()
        cell = self.target
        if (
            cell is not None
            and cell.mailbox.home == (thread := get_ident())
            and cell.system.turns.at_once(cell, thread)
        ):
            yield
        if self._state == PENDING:
            yield from self._park(asyncio.get_running_loop())
        return self._outcome()

    __iter__ = __await__

    def _park(self, loop: asyncio.AbstractEventLoop) -> Generator[Any, None, None]:
        cell = current.get()
        if cell is not None:
            try:
                cell = deadlock.enter(cell, self)
            except AskCycle:
                self.cancel()
                raise
        waiter = loop.create_future()
        entry = (loop, waiter)
        timer = None if self.deadline is None else self.timer_here(loop)
        try:
            self.__dict__.setdefault("_waiters", []).append(entry)
            if self._state == PENDING:
                yield from waiter.__await__()
        except asyncio.CancelledError as error:
            if self._forget(entry) and not (error.args and error.args[0] is WITHDRAWN):
                self.cancel()
            raise
        finally:
            if timer is not None:
                timer.cancel()
            if cell is not None:
                cell.waiting_on = None

    def _forget(self, entry: Waiter) -> bool:
        """Remove a waiter; tell whether it was the last one."""
        try:
            cast("list[Waiter]", self._waiters).remove(entry)
        except ValueError:
            return False  # the reply has come
        return not self.is_awaited()

    # -- futures computed from it ---------------------------------------------------------------

    def map(self, func: Callable[[T], M]) -> Future[M]:
        """See :meth:`pykka.Future.map`."""
        return derived(super().map(func), self.as_coroutine, func, self)

    def filter(self: Future[Iterable[J]], func: Callable[[J], bool]) -> Future[Iterable[J]]:
        """See :meth:`pykka.Future.filter`."""
        return derived(
            pykka.Future.filter(self, func),
            self.as_coroutine,
            lambda values: list(filter(func, values)),
            self,
        )

    def join(self: Future[Any], *futures: pykka.Future[Any]) -> Future[Iterable[Any]]:
        """See :meth:`pykka.Future.join`."""
        return joined(pykka.Future.join(self, *futures), (self, *futures))

    def reduce(self: Future[Iterable[J]], func: Callable[[R, J], R], *args: R) -> Future[R]:
        """See :meth:`pykka.Future.reduce`."""
        return derived(
            pykka.Future.reduce(self, func, *args),
            self.as_coroutine,
            lambda values: functools.reduce(func, values, *args),
            self,
        )
