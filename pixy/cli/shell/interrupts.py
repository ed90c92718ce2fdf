"""Ctrl-C and SIGTERM that are never lost, and never strike inside of gRPC.

Python raises KeyboardInterrupt wherever the main thread is. In gRPC's own code nobody gets it, or a lock stays held and the program never
ends. So during a call the signal is only remembered, and the wait for the answer looks for it. SIGTERM, which timeout, systemd and kill
send, raises KeyboardInterrupt, too: a command ends in one way, and only the exit code tells which signal it was.

What is printed whole has a moment after the signal: an alarm ends the wait for a reader that does not read.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

from pixy.cli.streams import abandon

LOOK: Final = 0.2
"""Seconds between two looks for a signal during a call."""
PATIENCE: Final = 0.5
"""Seconds that :func:`printing` has after a signal."""
_WATCHED: Final = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""Signals that end a command, and their handlers in a program that nobody has told otherwise."""

_state: Final = {
    "seen": False,
    "deferred": False,
    "printing": False,
    "alarm": False,  # whether SIGALRM comes here
    "number": int(signal.SIGINT),
}


def check() -> None:
    """Raise KeyboardInterrupt if a signal came and nobody has got it."""
    if _state["seen"]:
        _state["seen"] = False
        raise KeyboardInterrupt


def handled() -> None:
    """Somebody has got it."""
    _state["seen"] = False


def postponed() -> None:
    """Somebody has got it and has something to finish: the next :func:`check` raises it again."""
    _state["seen"] = True


def exit_code() -> int:
    """Return the exit code of a command that was interrupted: 128 and the number of the last signal, which is forgotten."""
    number, _state["number"] = _state["number"], int(signal.SIGINT)
    return 128 + number


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Only remember signals for as long as the context lasts; then :func:`check` raises them."""
    outer = _state["deferred"], _state["printing"]
    _state["deferred"], _state["printing"] = True, False
    try:
        yield
    finally:
        _state["deferred"], _state["printing"] = outer


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Remember a signal until something is printed whole, but no longer than :data:`PATIENCE`, and no second one.

    Raises:
        KeyboardInterrupt: the reader did not read; what he has not got is dropped, also what is printed later.
    """
    outer = _state["deferred"], _state["printing"]
    _state["deferred"], _state["printing"] = True, True
    try:
        if _state["seen"]:
            _set_alarm(PATIENCE)
        yield
    except KeyboardInterrupt:
        abandon()
        raise
    finally:
        _state["deferred"], _state["printing"] = outer
        _set_alarm(0)


def _set_alarm(seconds: float) -> None:
    if _state["alarm"]:
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _ring(_number: int, _frame: Any) -> None:
    if _state["printing"]:
        raise KeyboardInterrupt


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Watch for Ctrl-C and SIGTERM for as long as the context lasts. One that the caller ignores stays ignored."""
    main = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in _WATCHED} if main else {}
    watched = {number: known for number, known in before.items() if known is _WATCHED[number]}

    def interrupt(number: int, frame: Any) -> None:
        strikes = not _state["deferred"] or (_state["printing"] and _state["seen"])
        _state["seen"], _state["number"] = True, number
        if strikes:
            signal.default_int_handler(number, frame)
        if _state["printing"]:
            _set_alarm(PATIENCE)

    _state["number"] = int(signal.SIGINT)
    for number in watched:
        signal.signal(number, interrupt)
    rings = bool(watched) and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    if rings:
        signal.signal(signal.SIGALRM, _ring)
        _state["alarm"] = True
    try:
        yield
    finally:
        if rings:
            _set_alarm(0)
            _state["alarm"] = False
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
        for number, known in watched.items():
            signal.signal(number, known)
        if watched:
            handled()


__all__ = [
    "LOOK",
    "PATIENCE",
    "check",
    "deferred",
    "exit_code",
    "handled",
    "postponed",
    "printing",
    "remembered",
]
