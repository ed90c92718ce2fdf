"""Cancellation and Ctrl-C in an actor's code: failures of this code, and of nobody else.

``CancelledError`` and ``KeyboardInterrupt`` are no ``Exception``: an asker that got one as its reply would be
cancelled or interrupted itself, and pykka stops all actors for one. So both become :class:`Interrupted`. The
interrupt, which was meant for the program, leaves the loop as well.

The same holds for code of others that the runtime calls for itself: see :func:`failed_itself`.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from actors._errors import Interrupted

if TYPE_CHECKING:
    from actors._core.cell import Cell


def as_failure(cell: Cell, error: BaseException) -> BaseException:
    """Return the exception that askers and supervisors get for one that the actor's code has raised.

    Args:
        cell: the actor.
        error: what its code has raised.
    """
    if isinstance(error, asyncio.CancelledError):
        return interrupted(cell, error)
    # Elsewhere no signal raises it, so it is an exception like any other.
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        cell.loop.call_soon(_raise, error)
        cell.system.turns.gives_way = True  # who awaits the reply goes on after the loop has ended
        return interrupted(cell, error)
    return error


def interrupted(cell: Cell, error: BaseException) -> Interrupted:
    """Make the failure that stands for ``error``."""
    cancelled = isinstance(error, asyncio.CancelledError)
    what = "cancelled, or awaited something that was cancelled" if cancelled else f"interrupted: {error!r}"
    made = Interrupted(f"{cell.label} was {what}")
    made.__cause__ = error
    return made


def failed_itself(error: BaseException) -> bool:
    """Tell whether code of others (a subscriber, an instrument, a filter of the log) has failed by itself.

    It has, whatever it has raised, also ``CancelledError``, ``GeneratorExit`` and ``SystemExit``: none of them may go on into
    the runtime, in whose middle it was called. Only Ctrl-C is the program's: it leaves the loop in its next turn, and
    what it has hit is not to blame.

    Args:
        error: what the called code has raised.

    Raises:
        KeyboardInterrupt: Ctrl-C, where no loop runs.
    """
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return True
    loop = asyncio._get_running_loop()
    if loop is None:
        raise error
    loop.call_soon(_raise, error)
    return False


def _raise(error: BaseException) -> None:
    raise error
