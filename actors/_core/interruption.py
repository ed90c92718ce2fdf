"""Cancellation and Ctrl-C in an actor's code: failures of this code, and of nobody else.

``CancelledError`` and ``KeyboardInterrupt`` are no ``Exception``: an asker that got one as its reply would be
cancelled or interrupted itself, and pykka stops all actors for one. So both become :class:`Interrupted`. The
interrupt, which was meant for the program, leaves the loop as well. So does the ``SystemExit`` of a signal handler.

The same holds for code of others that the runtime calls for itself: see :func:`failed_itself`.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal.getsignal() hashes and compares the handler: code of others
import asyncio
import functools
import inspect
import signal
import threading
import traceback
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from actors._core.error_fields import is_a, traceback_of
from actors._errors import Interrupted

if TYPE_CHECKING:
    from actors._core.cell import Cell


def as_failure(cell: Cell, error: BaseException) -> BaseException:
    """Return the exception that askers and supervisors get for one that the actor's code has raised.

    Args:
        cell: the actor.
        error: what its code has raised.
    """
    if is_a(error, asyncio.CancelledError):
        return interrupted(cell, error)
    if of_program(error):
        cell.loop.call_soon(raise_in_loop, error)
        cell.system.turns.gives_way = True  # who awaits the reply goes on after the loop has ended
        return interrupted(cell, error)
    return error


def interrupted(cell: Cell, error: BaseException) -> Interrupted:
    """Make the failure that stands for ``error``.

    Args:
        cell: the actor's whose code it has hit.
        error: a cancellation, Ctrl-C or the exit of a signal handler.
    """
    cancelled = is_a(error, asyncio.CancelledError)
    what = (
        "cancelled, or awaited something that was cancelled" if cancelled else f"interrupted: {_text(error)}"
    )
    made = Interrupted(f"{cell.label} was {what}")
    made.__cause__ = error
    return made


def _text(error: BaseException) -> str:
    try:
        return repr(error)
    except BaseException:  # its own code's; what has interrupted is under way to the program already
        return type(error).__name__


def of_program(error: BaseException) -> bool:
    """Tell whether an exception is meant for the program: Ctrl-C, or the ``SystemExit`` of one of its signal handlers.

    Signals reach the main thread only. Elsewhere both are exceptions like any others.
    """
    if not is_a(error, (KeyboardInterrupt, SystemExit)):
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    return is_a(error, KeyboardInterrupt) or _left_signal_handler(error)


def _left_signal_handler(error: BaseException) -> bool:
    """Tell whether a function has raised ``error`` that was given its caller's frame: the one that a signal has interrupted.

    The arguments' names may stand for anything now: nothing is done with that but to look what it is. A function that has
    deleted an argument is recognised if it is installed as a handler.
    """
    for frame, _ in traceback.walk_tb(traceback_of(error)):
        caller, code = frame.f_back, frame.f_code
        # What is no function, as a class's body, may keep its names in an object of others.
        if caller is None or not code.co_flags & inspect.CO_OPTIMIZED:
            continue
        names, varargs, _, values = inspect.getargvalues(frame)
        given = [values[name] for name in names if name in values]
        rest = values.get(varargs, ()) if varargs is not None else ()
        if type(rest) is tuple:
            given.extend(rest)
        if any(each is caller for each in given):
            return True
        deleted = len(given) < len(names) or (varargs is not None and varargs not in values)
        if deleted and any(each is code for each in _handlers()):
            return True
    return False


def _handlers() -> list[CodeType]:
    """The code of the program's signal handlers that are installed now, as far as they are functions or methods."""
    codes = []
    for number in range(1, signal.NSIG):
        handler: Any = _signal.getsignal(number)
        while type(handler) in (functools.partial, MethodType):
            handler = handler.func if type(handler) is functools.partial else handler.__func__
        if type(handler) is FunctionType:
            codes.append(handler.__code__)
    return codes


def failed_itself(error: BaseException) -> bool:
    """Tell whether code of others (a subscriber, an instrument, a filter of the log) has failed by itself.

    It has, whatever it has raised, also ``CancelledError``, ``GeneratorExit`` and ``SystemExit``: none of them may go on into
    the runtime, in whose middle it was called. Only what is the program's (see :func:`of_program`) leaves the loop in its
    next turn, and what it has hit is not to blame.

    Args:
        error: what the called code has raised.

    Raises:
        BaseException: ``error``, if it is the program's and no loop runs.
    """
    if not of_program(error):
        return True
    loop = asyncio._get_running_loop()
    if loop is None:
        raise error
    loop.call_soon(raise_in_loop, error)
    return False


def raise_in_loop(error: BaseException) -> None:
    """Raise an error; as a callback of the loop: let it leave the loop."""
    raise error
