"""A pykka future that can be awaited on any loop and waited for in any thread.

pykka's own ``await`` blocks the event loop (pykka issue 99); this one registers with the loop and is
woken by it. A future whose last awaiter was cancelled is cancelled itself, so that the actor does
not work for somebody who is gone.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeVar

import pykka

from actors._errors import WouldDeadlock

if TYPE_CHECKING:
    from pykka._types import OptExcInfo

T = TypeVar("T")

_PENDING, _VALUE, _ERROR, _CANCELLED = range(4)


def on_event_loop() -> bool:
    """Whether the calling thread is running an event loop right now."""
    return asyncio._get_running_loop() is not None


class Future(pykka.Future[T]):
    """The reply to an ask. ``await`` it on a loop, or ``get`` it in a thread without one."""

    # Class attributes instead of pykka's __init__: a future is made for every ask.
    _get_hook = None
    _state = _PENDING
    _value: Any = None
    _waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] | None = None
    _event: threading.Event | None = None

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<actors.Future {('pending', 'value', 'error', 'cancelled')[self._state]}>"

    # -- settling ---------------------------------------------------------------------------

    def set(self, value: T | None = None) -> None:
        """Set the value. Raises ``queue.Full`` if the future is settled already (as in pykka)."""
        if self._get_hook is not None or not self._settle(_VALUE, value):
            raise queue.Full

    def set_exception(self, exc_info: OptExcInfo | None = None) -> None:
        """Set an exception (the one being handled, without an argument)."""
        error = (exc_info or sys.exc_info())[1]
        if self._get_hook is not None or not self._settle(_ERROR, error):
            raise queue.Full

    def try_set(self, value: T) -> bool:
        """Set the value unless somebody settled or cancelled the future; tell whether it was set."""
        return self._settle(_VALUE, value)

    def try_fail(self, error: BaseException) -> bool:
        """Set an exception unless the future is settled or cancelled; tell whether it was set."""
        return self._settle(_ERROR, error)

    def cancel(self) -> bool:
        """Give the reply up: the ask is not executed if it has not begun. False if settled."""
        return self._settle(_CANCELLED, asyncio.CancelledError())

    def done(self) -> bool:
        """Whether there is a value, an error, or nobody left who wants one."""
        return self._state != _PENDING

    def cancelled(self) -> bool:
        """Whether the reply was given up."""
        return self._state == _CANCELLED

    def value(self) -> T | None:
        """The value if there is one, without waiting; else None."""
        return self._value if self._state == _VALUE else None

    def _settle(self, state: int, value: Any) -> bool:
        with self._lock:
            if self._state != _PENDING:
                return False
            self._state, self._value = state, value
            waiters, self._waiters = self._waiters, None
            event = self._event
        if event is not None:
            event.set()
        if waiters:
            here = asyncio._get_running_loop()
            for loop, waiter in waiters:
                if loop is here:
                    _wake(waiter)
                elif not loop.is_closed():
                    loop.call_soon_threadsafe(_wake, waiter)
        return True

    # -- waiting ----------------------------------------------------------------------------

    def get(self, *, timeout: float | None = None) -> T:
        """Wait in a thread for the value; see :meth:`pykka.Future.get`.

        Raises:
            WouldDeadlock: on a thread that runs an event loop; ``await`` the future there.
            pykka.Timeout: nothing within ``timeout`` seconds.
        """
        if self._get_hook is not None:
            return super().get(timeout=timeout)
        if self._state == _PENDING:
            if on_event_loop():
                raise WouldDeadlock(
                    "Future.get() on the event loop's thread would wait for itself; "
                    "use 'await future' instead"
                )
            with self._lock:
                if self._state == _PENDING and self._event is None:
                    self._event = threading.Event()
                event = self._event
            if event is not None and self._state == _PENDING and not event.wait(timeout):
                raise pykka.Timeout(f"{timeout} seconds")
        return self._outcome()

    def set_get_hook(self, func: Any) -> None:
        """See :meth:`pykka.Future.set_get_hook`. Raises ``queue.Full`` if already settled."""
        if self._state != _PENDING:
            raise queue.Full
        self._get_hook_result = pykka._future._Unset()
        self._get_hook = func

    def __await__(self) -> Generator[Any, None, T]:
        if self._get_hook is not None:
            # A hook is a blocking function: a worker thread runs it.
            loop = asyncio.get_running_loop()
            return (yield from loop.run_in_executor(None, self.get).__await__())
        if self._state == _PENDING:
            yield from self._park(asyncio.get_running_loop())
        return self._outcome()

    __iter__ = __await__

    def _park(self, loop: asyncio.AbstractEventLoop) -> Generator[Any, None, None]:
        waiter = loop.create_future()
        with self._lock:
            if self._state != _PENDING:
                return
            if self._waiters is None:
                self._waiters = []
            self._waiters.append((loop, waiter))
        try:
            yield from waiter.__await__()
        except asyncio.CancelledError:
            if self._forget(loop, waiter):
                self.cancel()
            raise

    def _forget(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> bool:
        """Take a waiter out; tell whether it was the last one."""
        with self._lock:
            if self._waiters is None:
                return False
            self._waiters.remove((loop, waiter))
            return not self._waiters and self._event is None

    def _outcome(self) -> T:
        if self._state == _VALUE:
            return self._value  # type: ignore[no-any-return]
        raise self._value


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
