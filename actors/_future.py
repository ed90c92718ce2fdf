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
from collections.abc import Awaitable, Callable, Generator, Iterable
from threading import get_ident
from typing import Any, TypeVar, cast

import pykka

from actors._core import deadlock
from actors._core.context import current
from actors._core.promise import ERROR, PENDING, VALUE, Callback, Promise, Waiter
from actors._core.pykka_names import Unset
from actors._errors import AskCycle, WouldDeadlock

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")


def on_event_loop() -> bool:
    """Whether the calling thread runs an event loop right now."""
    return asyncio._get_running_loop() is not None


class Future(Promise[T]):
    """The reply to an ask. ``await`` it on a loop, or ``get`` it in a thread without one."""

    _await_hook: Callable[[], Awaitable[Any]] | None = None
    """Awaits the values that a derived future is computed from."""
    _compute_hook: Callable[[Any], T]
    """Computes it from these, for the first awaiter that has them."""
    _computing: list[None] | None = None
    """One entry for each who awaits a derived future, or blocks for it: a list, as several threads may come and go."""
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
        """
        loop = asyncio.get_running_loop()
        entry = Callback(callback, loop, contextvars.copy_context() if context is None else context)
        self.__dict__.setdefault("_callbacks", []).append(entry)
        if self._state != PENDING:
            with contextlib.suppress(ValueError):  # the thread that settled the future has taken it
                self._callbacks.remove(entry)  # type: ignore[union-attr]
                entry.schedule(self)
        elif self._get_hook is not None:
            task = loop.create_task(self._compute())
            self.__dict__.setdefault("_tasks", []).append(task)  # the loop alone would hold it weakly

    def observe(self, callback: Callable[[Any], object]) -> None:
        """Call ``callback(self)`` as :meth:`add_done_callback` does, for somebody who does not wait for the value.

        It does not keep the last awaiter's cancellation from giving the future up.
        """
        self._observers += 1
        self.add_done_callback(callback)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> int:
        """Forget a callback; return how many times it was there."""
        before = list(self._callbacks or ())
        removed = [entry for entry in before if entry.function == callback]
        for entry in removed:
            with contextlib.suppress(ValueError):
                self._callbacks.remove(entry)  # type: ignore[union-attr]
        return len(removed)

    async def _compute(self) -> None:
        with contextlib.suppress(BaseException):  # the outcome keeps it
            await self

    def as_asyncio(self) -> asyncio.Future[T]:
        """Make an asyncio future of the running loop with the same outcome; cancelling it cancels this one.

        For what insists on asyncio's type, such as ``asyncio.wait`` in the eyes of a type checker.
        """
        task = asyncio.ensure_future(self.as_coroutine())
        task.add_done_callback(self._given_up)
        return task

    def _given_up(self, task: asyncio.Future[T]) -> None:
        # A task that is cancelled before its first step has not begun to wait.
        if task.cancelled() and not (self._computing or self._is_awaited()):
            self.cancel()

    def _is_awaited(self) -> bool:
        """Whether somebody waits for the value, in whatever way."""
        return bool(self._waiters or self._blocked) or len(self._callbacks or ()) > self._observers

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
            computing: list[None] = self.__dict__.setdefault("_computing", [])
            computing.append(None)
            try:
                self._settle(VALUE, super().get(timeout=timeout))
            finally:
                computing.pop()
            return self._outcome()
        if self._state == PENDING:
            if on_event_loop():
                raise WouldDeadlock(
                    "Future.get() on the event loop's thread would wait for itself; "
                    "use 'await future' instead"
                )
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
        # A lock waits threading.TIMEOUT_MAX seconds at most (292 years).
        if lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            return
        with contextlib.suppress(ValueError):  # it was about to be released
            blocked.remove(lock)
        if self._state != PENDING:
            return
        raise pykka.Timeout(f"{timeout} seconds")

    def set_get_hook(self, func: Any) -> None:
        """See :meth:`pykka.Future.set_get_hook`. Raises ``queue.Full`` if already settled."""
        if self._state != PENDING:
            raise queue.Full
        self._get_hook_result = Unset()
        self._get_hook = func

    def __await__(self) -> Generator[Any, None, T]:
        if self._get_hook is not None and self._state == PENDING:
            return (yield from self._hooked().__await__())
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

    async def _hooked(self) -> T:
        computing: list[None] = self.__dict__.setdefault("_computing", [])
        computing.append(None)
        try:
            if isinstance(self._get_hook_result, Unset):
                if self._await_hook is not None:
                    values = await self._await_hook()
                    if self._state != PENDING:  # another awaiter was here before
                        return self._outcome()
                    self._get_hook_result = self._compute_hook(values)
                else:  # a user's own hook is a blocking function: run it in a worker thread
                    await asyncio.get_running_loop().run_in_executor(None, self.get)
        except asyncio.CancelledError:
            # The awaiter's task was cancelled, or this future's sources were. The latter is its outcome.
            if any(isinstance(source, Future) and source.cancelled() for source in self._sources):
                self.cancel()
            raise
        except Exception as error:
            self._settle(ERROR, error)
            raise
        finally:
            computing.pop()
        self._settle(VALUE, self._get_hook_result)
        return self._outcome()

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
        try:
            self.__dict__.setdefault("_waiters", []).append(entry)
            if self._state == PENDING:
                yield from waiter.__await__()
        except asyncio.CancelledError:
            if self._forget(entry):
                self.cancel()
            raise
        finally:
            if cell is not None:
                cell.waiting_on = None

    def _forget(self, entry: Waiter) -> bool:
        """Remove a waiter; tell whether it was the last one."""
        try:
            cast("list[Waiter]", self._waiters).remove(entry)
        except ValueError:
            return False  # the reply has come
        return not self._is_awaited()

    # -- futures computed from it ---------------------------------------------------------------

    def map(self, func: Callable[[T], M]) -> Future[M]:
        """See :meth:`pykka.Future.map`."""
        return _derived(super().map(func), self.as_coroutine, func, self)

    def filter(self: Future[Iterable[J]], func: Callable[[J], bool]) -> Future[Iterable[J]]:
        """See :meth:`pykka.Future.filter`."""
        return _derived(
            pykka.Future.filter(self, func),
            self.as_coroutine,
            lambda values: list(filter(func, values)),
            self,
        )

    def join(self: Future[Any], *futures: pykka.Future[Any]) -> Future[Iterable[Any]]:
        """See :meth:`pykka.Future.join`."""

        async def values() -> list[Any]:
            return [await _anywhere(future) for future in (self, *futures)]

        return _derived(pykka.Future.join(self, *futures), values, lambda joined: joined, self, *futures)

    def reduce(self: Future[Iterable[J]], func: Callable[[R, J], R], *args: R) -> Future[R]:
        """See :meth:`pykka.Future.reduce`."""
        return _derived(
            pykka.Future.reduce(self, func, *args),
            self.as_coroutine,
            lambda values: functools.reduce(func, values, *args),
            self,
        )


def _derived(
    future: pykka.Future[M],
    values: Callable[[], Awaitable[Any]],
    compute: Callable[[Any], M],
    *sources: pykka.Future[Any],
) -> Future[M]:
    made = cast("Future[M]", future)
    made._await_hook, made._compute_hook = values, compute
    made._sources = sources
    return made


async def _anywhere(future: pykka.Future[T]) -> T:
    if isinstance(future, Future):
        return cast("T", await future)
    # Awaiting one of pykka's own futures would block the loop.
    return await asyncio.get_running_loop().run_in_executor(None, future.get)
