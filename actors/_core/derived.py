"""Futures of ``map``, ``filter``, ``join`` and ``reduce``: computed by the first who waits for one, once for all who do.

A chain of them is computed from its first link on, in a loop: there may be thousands of links.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pykka

from actors._core.error_fields import is_a
from actors._core.interruption import of_program
from actors._core.promise import ERROR, PENDING, VALUE, Promise

if TYPE_CHECKING:
    from actors._future import Future

M = TypeVar("M")


def derived(
    future: pykka.Future[M],
    values: Callable[[], Awaitable[Any]],
    compute: Callable[[Any], M],
    source: Future[Any],
) -> Future[M]:
    """Make pykka's derived future one that can also be computed on a loop, from one other future.

    Args:
        future: pykka's.
        values: awaits what it is computed from.
        compute: computes it from that.
        source: what it is computed from.
    """
    made = cast("Future[M]", future)
    made._await_hook, made._compute_hook = values, compute
    made._sources, made._single = (source,), source
    return made


def joined(future: pykka.Future[Any], sources: tuple[pykka.Future[Any], ...]) -> Future[Any]:
    """Do the same for pykka's future of several others' values."""

    async def values() -> list[Any]:
        return [await _anywhere(source) for source in sources]

    made = cast("Future[Any]", future)
    made._await_hook, made._compute_hook = values, _as_it_is
    made._sources = sources
    return made


def _as_it_is(values: Any) -> Any:
    return values


async def _anywhere(future: pykka.Future[Any]) -> Any:
    if isinstance(future, Promise):
        return await future
    # Awaiting one of pykka's own futures would block the loop.
    return await asyncio.get_running_loop().run_in_executor(None, future.get)


class _Computing:
    """Notes that somebody computes a future, and all in its chain.

    Args:
        future: the derived one.
        token: the entry; None makes one.
    """

    __slots__ = ("_chain", "_token")

    def __init__(self, future: Future[Any], token: object = None) -> None:
        self._chain = _chain(future)
        self._token = object() if token is None else token

    def __enter__(self) -> list[Future[Any]]:
        for each in self._chain:
            each.__dict__.setdefault("_computing", []).append(self._token)
        return self._chain

    def __exit__(self, *_exc: object) -> None:
        for each in self._chain:
            with contextlib.suppress(ValueError):  # withdrawn
                each.__dict__["_computing"].remove(self._token)


def _chain(future: Future[Any]) -> list[Future[Any]]:
    """A derived future and those that it is computed from one by one, as far as these are not done; it is not empty."""
    chain = [future]
    while (
        (source := chain[-1]._single) is not None
        and source._await_hook is not None
        and source._state == PENDING
    ):
        chain.append(source)
    return chain


def compute_in_thread(future: Future[Any], timeout: float | None) -> None:
    """Compute a future in this thread, and all in its chain; each waits ``timeout`` seconds at most."""
    with _Computing(future) as chain:
        first = chain[-1]
        if first._await_hook is None:
            future._settle(VALUE, pykka.Future.get(future, timeout=timeout))
            return
        if first._single is not None:
            value = first._single.get(timeout=timeout)
        else:
            value = [source.get(timeout=timeout) for source in first._sources]
        for each in reversed(chain):
            if each._state == PENDING:
                each._settle(VALUE, each._compute_hook(value))
            value = each._outcome()


async def compute(future: Future[Any], token: object = None) -> None:
    """Compute a future on this loop, and all in its chain. Raises only what hits the awaiting task.

    Args:
        future: the derived one.
        token: the entry in its ``_computing``; None makes one.
    """
    with _Computing(future, token) as chain:
        first, value = chain[-1], None
        failure: BaseException | None = None
        try:
            if first._await_hook is not None:
                value = await first._await_hook()
            else:  # a user's own hook is a blocking function: run it in a worker thread
                value = await asyncio.get_running_loop().run_in_executor(None, future.get)
        except asyncio.CancelledError:
            # The awaiter's task was cancelled, or the sources were. The latter is the outcome.
            for each in reversed(chain):
                if any(isinstance(source, Promise) and source.cancelled() for source in each._sources):
                    each.cancel()
            raise
        except BaseException as error:
            # What is no Exception is the outcome if it comes from a source, else it hits the awaiting task.
            failed = [source for source in first._sources if failed_with(source, error)]
            if not is_a(error, Exception) and not failed:
                raise
            failure = error
            for source in failed:
                # Without the frames of this awaiter: from Python 3.12 on (cpython issue 100964) they refer to those of all who
                # await him, and the future would keep what their locals refer to.
                BaseException.with_traceback(error, cast("Promise[Any]", source)._keep_trace())
        for each in reversed(chain):
            value, failure = _derive(each, value, failure)


def failed_with(future: object, error: BaseException) -> bool:
    """Tell whether a future has failed, and awaiting it has raised its error."""
    return isinstance(future, Promise) and future.exception() is error


def _derive(
    future: Future[Any], value: Any, failure: BaseException | None
) -> tuple[Any, BaseException | None]:
    """Settle a derived future, unless another awaiter has; return its value and its error.

    Args:
        future: the derived one.
        value: what it is computed from.
        failure: the error that came in its place.
    """
    if future._state == PENDING:
        if failure is None and future._await_hook is not None:
            try:
                value = future._compute_hook(value)
            except BaseException as error:
                if of_program(error):
                    raise
                failure = error
        if is_a(failure, asyncio.CancelledError):
            future.cancel()
        elif failure is not None:
            future._settle(ERROR, failure)
        else:
            future._settle(VALUE, value)
    if future._state == VALUE:
        return future._value, None
    future._keep_trace()  # before more frames of this awaiter are in it
    return None, future._value
