"""A pykka future that can be awaited on any loop and waited for in any thread.

pykka's own ``await`` blocks the event loop (pykka issue 99); this one is woken by the loop. When the last
awaiter is cancelled, the future is cancelled, so that the actor does not work for an asker that is gone.
``map``, ``filter``, ``join`` and ``reduce`` make futures that the first one to ask computes, as in pykka,
but on the loop when they are awaited there. Cancelling one cancels the futures that it is computed from, as
``asyncio.gather`` does.

``asyncio.wait`` takes these futures as they are, by ``add_done_callback``; ``gather``, ``wait_for`` and the like
wrap them. ``as_asyncio`` and ``as_coroutine`` convert one for what insists on its own types.

A future has no lock (making and taking one was 0.3 us of a 5 us ask). Settling enters a ``_claim`` into
its dict, at which one call succeeds and all others fail. A waiter enters itself first and looks at the
state afterwards; settling sets the state first and looks for waiters afterwards. So one of the two sees
the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import queue
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterable
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import pykka

from actors._core import deadlock
from actors._core.context import current
from actors._core.loops import runs_here
from actors._core.pykka_names import Unset
from actors._errors import AskCycle, WouldDeadlock

if TYPE_CHECKING:
    from pykka._types import OptExcInfo

    from actors._core.cell import Cell

T = TypeVar("T")
J = TypeVar("J")
M = TypeVar("M")
R = TypeVar("R")

Waiter: TypeAlias = "tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]"
"""An awaiter of a future: its loop, and the asyncio future to wake it by."""

Callback: TypeAlias = "tuple[Callable[[Any], object], asyncio.AbstractEventLoop, contextvars.Context | None]"
"""What to call when a future is done, on which loop, in which context."""

_PENDING, _VALUE, _ERROR, _CANCELLED = range(4)


def on_event_loop() -> bool:
    """Whether the calling thread runs an event loop right now."""
    return asyncio._get_running_loop() is not None


class Future(pykka.Future[T]):
    """The reply to an ask. ``await`` it on a loop, or ``get`` it in a thread without one."""

    # Class attributes in place of pykka's __init__: every ask makes a future.
    _get_hook = None
    _await_hook: Callable[[], Awaitable[Any]] | None = None
    """Awaits the values that a derived future is computed from."""
    _compute_hook: Callable[[Any], T]
    """Computes it from these, for the first awaiter that has them."""
    _state = _PENDING
    _value: Any = None
    _waiters: list[Waiter] | None = None
    _callbacks: list[Callback] | None = None
    _observers = 0
    """How many of the callbacks do not wait for the value; see :meth:`observe`."""
    _blocked: list[Any] | None = None
    _computing: list[None] | None = None
    """One entry for each who awaits a derived future, or blocks for it: a list, as several threads may come and go."""
    _expiry: tuple[asyncio.TimerHandle, asyncio.AbstractEventLoop] | None = None
    _sources: tuple[pykka.Future[Any], ...] = ()
    """The futures that this one is computed from."""
    target: Cell | None = None
    """The actor that owes the reply, as far as it is known."""
    wanted = True
    """Whether somebody waits for the value. False: a process actor's tell, of which only the end counts."""

    def __init__(self) -> None:
        """Not pykka's, which sets what stands above."""

    def __repr__(self) -> str:
        return f"<actors.Future {('pending', 'value', 'error', 'cancelled')[self._state]}>"

    # -- settling ---------------------------------------------------------------------------

    def set(self, value: T | None = None) -> None:
        """Set the value. Raises ``queue.Full`` if the future is settled already (as in pykka)."""
        if self._get_hook is not None or not self._settle(_VALUE, value):
            raise queue.Full

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Set an exception; without an argument, the one that is being handled."""
        kind, error, traceback = exc_info or sys.exc_info()
        if error is None:
            error = kind() if kind is not None else RuntimeError("set_exception() without an error")
        elif traceback is not None and error.__traceback__ is not traceback:
            error = error.with_traceback(traceback)
        if self._get_hook is not None or not self._settle(_ERROR, error):
            raise queue.Full

    def try_set(self, value: T) -> bool:
        """Set the value, unless the future is settled or cancelled; tell whether it was set."""
        return self._settle(_VALUE, value)

    def try_fail(self, error: BaseException) -> bool:
        """Set an exception, unless the future is settled or cancelled; tell whether it was set."""
        return self._settle(_ERROR, error)

    def cancel(self) -> bool:
        """Give up the reply: the actor does not handle the ask if it has not begun to. False if settled.

        A future that is computed from others (``map``, ``filter``, ``join``, ``reduce``) cancels these.
        """
        if not self._settle(_CANCELLED, asyncio.CancelledError()):
            return False
        for source in self._sources:
            if isinstance(source, Future):
                source.cancel()
        return True

    def expire(self, timeout: float) -> None:
        """Give up the reply with ``pykka.Timeout`` as its error, after ``timeout`` seconds."""
        self._settle(_ERROR, pykka.Timeout(f"{timeout} seconds"))

    def expires(self, timer: asyncio.TimerHandle) -> None:
        """Keep the timer that will call :meth:`expire`, to cancel it when the reply comes."""
        self._expiry = timer, asyncio.get_running_loop()
        if self._state != _PENDING:  # a thread has settled the future meanwhile
            timer.cancel()

    def done(self) -> bool:
        """Whether the future has a value or an error, or is cancelled."""
        return self._state != _PENDING

    def cancelled(self) -> bool:
        """Whether the future is cancelled."""
        return self._state == _CANCELLED

    def value_set(self) -> bool:
        """Whether the future has a value."""
        return self._state == _VALUE

    def value(self) -> T | None:
        """The value if the future has one, else None; does not wait."""
        return self._value if self._state == _VALUE else None

    def exception(self) -> BaseException | None:
        """The error if the future has one or is cancelled, else None; does not wait."""
        return self._value if self._state in (_ERROR, _CANCELLED) else None

    def _settle(self, state: int, value: Any) -> bool:
        claim = (get_ident(),)
        first = self.__dict__.setdefault("_claim", claim)
        if first is not claim:
            # Another thread is at the next statement; or this one is, and a signal handler has interrupted it.
            while self._state == _PENDING and first != claim:
                time.sleep(0)
            return False
        self._value, self._state = value, state  # in this order
        self.target = None
        expiry = self._expiry
        # The first half of each of these tests is loops.runs_here() without the call.
        if expiry is not None and (
            getattr(expiry[1], "_thread_id", None) == get_ident() or runs_here(expiry[1], get_ident())
        ):
            expiry[0].cancel()
            expiry = None  # else the loop's own thread has to cancel the timer, which holds the reply
        # Whoever waits may leave between the look at a list and the pop: another thread does it.
        while self._blocked:
            try:
                lock = self._blocked.pop()
            except IndexError:
                break
            lock.release()
        while self._waiters:
            try:
                loop, waiter = self._waiters.pop(0)
            except IndexError:
                break
            if getattr(loop, "_thread_id", None) == get_ident() or runs_here(loop, get_ident()):
                if not waiter.done():
                    waiter.set_result(None)
            else:
                timer = None
                if expiry is not None and expiry[1] is loop:
                    timer, expiry = expiry[0], None  # one call for both
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits there
                    loop.call_soon_threadsafe(_wake, waiter, timer)
        if expiry is not None:
            with contextlib.suppress(RuntimeError):
                expiry[1].call_soon_threadsafe(expiry[0].cancel)
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:
                break
            self._call_soon(*callback)
        return True

    def _call_soon(
        self,
        callback: Callable[[Any], object],
        loop: asyncio.AbstractEventLoop,
        context: contextvars.Context | None,
    ) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(callback, self, context=context)

    def add_done_callback(
        self, callback: Callable[[Any], object], *, context: contextvars.Context | None = None
    ) -> None:
        """Call ``callback(self)`` on the running loop when the future is done; see :class:`asyncio.Future`.

        A future of ``map``, ``filter``, ``join`` or ``reduce`` is computed for that, on this loop.
        """
        loop = asyncio.get_running_loop()
        entry = (callback, loop, contextvars.copy_context() if context is None else context)
        self.__dict__.setdefault("_callbacks", []).append(entry)
        if self._state != _PENDING:
            with contextlib.suppress(ValueError):  # the thread that settled the future has taken it
                self._callbacks.remove(entry)  # type: ignore[union-attr]
                self._call_soon(*entry)
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
        removed = [entry for entry in before if entry[0] == callback]
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
        if self._state == _PENDING:
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
        if self._get_hook is not None and self._state == _PENDING:
            computing: list[None] = self.__dict__.setdefault("_computing", [])
            computing.append(None)
            try:
                self._settle(_VALUE, super().get(timeout=timeout))
            finally:
                computing.pop()
            return self._outcome()
        if self._state == _PENDING:
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
        if self._state != _PENDING:
            return
        # A lock waits threading.TIMEOUT_MAX seconds at most (292 years).
        if lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            return
        with contextlib.suppress(ValueError):  # it was about to be released
            blocked.remove(lock)
        if self._state != _PENDING:
            return
        raise pykka.Timeout(f"{timeout} seconds")

    def set_get_hook(self, func: Any) -> None:
        """See :meth:`pykka.Future.set_get_hook`. Raises ``queue.Full`` if already settled."""
        if self._state != _PENDING:
            raise queue.Full
        self._get_hook_result = Unset()
        self._get_hook = func

    def __await__(self) -> Generator[Any, None, T]:
        if self._get_hook is not None and self._state == _PENDING:
            return (yield from self._hooked().__await__())
        cell = self.target
        if (
            cell is not None
            and cell.mailbox.home == (thread := get_ident())
            and cell.system.turns.at_once(cell, thread)
        ):
            yield
        if self._state == _PENDING:
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
                    if self._state != _PENDING:  # another awaiter was here before
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
            self._settle(_ERROR, error)
            raise
        finally:
            computing.pop()
        self._settle(_VALUE, self._get_hook_result)
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
            if self._state == _PENDING:
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

    def _outcome(self) -> T:
        if self._state == _VALUE:
            return self._value  # type: ignore[no-any-return]
        raise self._value

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


def _wake(waiter: asyncio.Future[None], timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
    if not waiter.done():
        waiter.set_result(None)
