"""Futures of asyncio that have the outcome of a reply, for what insists on that type.

A task for each would wait for the reply until it comes, though nobody kept the task: a program that polls one reply,
``asyncio.wait([reply.as_asyncio()], timeout=1)``, would have one more with each poll.
"""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar, cast

from actors._core import deadlock
from actors._core.context import current
from actors._core.error_fields import is_a
from actors._core.error_text import repr_of
from actors._errors import AskCycle

if TYPE_CHECKING:
    from actors._future import Future

T = TypeVar("T")


class Mirror(asyncio.Future[T]):
    """An asyncio future with the outcome of another one. Who listens to it waits for that; alone, it does not.

    Args:
        source: the other one.
        loop: the running loop.
    """

    def __init__(self, source: Future[T], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._source, self._listeners = source, 0
        self._observer = _Observer(weakref.ref(self))
        if source.done():
            self.copy(source)
        else:
            source.observe(self._observer)

    def __del__(self) -> None:
        observer = getattr(self, "_observer", None)
        if observer is not None and not self._source.done():
            self._source.unobserve(observer)
        super().__del__()

    def __await__(self) -> Generator[Any, None, T]:
        cell = None if self.done() else current.get()
        try:
            if cell is not None:
                cell = deadlock.enter(cell, self._source)
            return (yield from super().__await__())
        except AskCycle:
            self.cancel()  # as for an awaiter of the source; nothing if it is the outcome
            raise
        finally:
            if cell is not None:
                cell.waiting_on = None

    __iter__ = __await__

    def copy(self, source: Future[T]) -> None:
        """Take the outcome over."""
        if self.done():
            return
        error = source.exception()
        if error is None:
            self.set_result(cast("T", source.value()))
        elif is_a(error, asyncio.CancelledError):
            super().cancel()
        elif is_a(error, StopIteration):  # asyncio's futures refuse it
            self.set_exception(RuntimeError(f"the reply's error is {repr_of(error)}"))
        else:
            self.set_exception(error)

    def add_done_callback(
        self, callback: Callable[[Any], object], /, *, context: contextvars.Context | None = None
    ) -> None:
        """See :class:`asyncio.Future`."""
        super().add_done_callback(
            callback, context=contextvars.copy_context() if context is None else context
        )
        self._listeners += 1
        if self._listeners == 1 and not self.done():
            self._source.add_done_callback(self.copy)  # which keeps this one, too

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> int:
        """See :class:`asyncio.Future`."""
        removed = super().remove_done_callback(callback)
        self._listeners -= removed
        if removed and not self._listeners and not self.done():
            self._source.remove_done_callback(self.copy)
        return removed

    def cancel(self, msg: Any = None) -> bool:
        """See :class:`asyncio.Future`; the source is given up unless somebody else waits for it."""
        if not super().cancel(msg=msg):
            return False
        source = self._source
        source.remove_done_callback(self.copy)
        source.unobserve(self._observer)
        if not source.is_awaited():
            source.cancel()
        return True


class _Observer:
    """Passes a future's outcome to its mirror, if that is still there."""

    __slots__ = ("_mirror",)

    def __init__(self, mirror: weakref.ref[Mirror[Any]]) -> None:
        self._mirror = mirror

    def __call__(self, source: Future[Any]) -> None:
        mirror = self._mirror()
        if mirror is not None:
            mirror.copy(source)
