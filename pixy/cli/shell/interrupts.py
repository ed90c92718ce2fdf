"""Ctrl-C and SIGTERM that are never lost, and never strike inside of gRPC.

Python raises KeyboardInterrupt wherever the main thread is. In gRPC's own code nobody gets it, or a lock stays held and the program never
ends. So during a call the signal is only remembered, and the wait for the answer looks for it. SIGTERM, which timeout, systemd and kill
send, raises KeyboardInterrupt, too: a command ends in one way, and only the exit code tells which signal it was.

What is printed whole has a moment after the signal: an alarm ends the wait for a reader that does not read. An alarm of the caller's
(``timeout -s ALRM``, or one set before exec) still ends the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
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
    "number": int(signal.SIGINT),
}


class _Alarm:
    """The process's alarm, borrowed for as long as a reader has patience; one of the caller's is put back, and ends the program."""

    def __init__(self) -> None:
        self.ours = False
        """True if SIGALRM comes here: its handler is not the caller's."""
        self._due = self._late = False
        self._theirs: tuple[float, float] | None = None
        """The time at which the caller's alarm rings, on the monotonic clock, and its interval in seconds."""

    def set(self) -> None:
        """Ring after :data:`PATIENCE`."""
        if not self.ours:
            return
        left, interval = signal.setitimer(signal.ITIMER_REAL, PATIENCE)
        if left and not self._due:
            self._theirs = time.monotonic() + left, interval
        self._due = True

    def cancel(self) -> None:
        """Do not ring any more."""
        if not self._due:
            return
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        if self._due:  # else the handler has run just now
            self._due, self._late = False, not left
        self._put_back()

    def ring(self, _number: int, _frame: Any) -> None:
        """Handle SIGALRM. Raises KeyboardInterrupt where something is printed."""
        if self._due:
            self._due = False
            self._put_back()
            if _state["printing"]:
                raise KeyboardInterrupt
        elif self._late:
            self._late = False  # it rang while it was cancelled
        else:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGALRM)

    def _put_back(self) -> None:
        if self._theirs is not None:
            (at, interval), self._theirs = self._theirs, None
            signal.setitimer(signal.ITIMER_REAL, max(0.001, at - time.monotonic()), interval)


_alarm: Final = _Alarm()


def check() -> None:
    """Raise KeyboardInterrupt if a signal came and nobody has got it."""
    if _state["seen"]:
        _state["seen"] = False
        raise KeyboardInterrupt


def handled() -> None:
    """Note that somebody has got the signal."""
    _state["seen"] = False


def postponed() -> None:
    """Note that somebody has got the signal and has something to finish: the next :func:`check` raises it again."""
    _state["seen"] = True


def exit_code() -> int:
    """Return the exit code of a command that was interrupted: 128 and the number of the last signal, which is forgotten."""
    number, _state["number"] = _state["number"], int(signal.SIGINT)
    return 128 + number


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Remember signals and nothing more, for as long as the context lasts; then :func:`check` raises them."""
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
    try:
        with _bounded():
            yield
    except KeyboardInterrupt:
        abandon()
        raise


@contextlib.contextmanager
def remarking() -> Iterator[None]:
    """Bound the time for a remark on standard error as :func:`printing` does where signals are deferred; elsewhere one strikes at once.

    Raises:
        KeyboardInterrupt: a signal came. If nobody reads standard error, the remark and later ones are dropped.
    """
    try:
        with _bounded() if _state["deferred"] else contextlib.nullcontext():
            yield
    except KeyboardInterrupt:
        abandon(unless_read=True)
        raise


@contextlib.contextmanager
def _bounded() -> Iterator[None]:
    outer = _state["deferred"], _state["printing"]
    _state["deferred"], _state["printing"] = True, True
    try:
        if _state["seen"]:
            _alarm.set()
        yield
    finally:
        _state["deferred"], _state["printing"] = outer
        _alarm.cancel()


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
            _alarm.set()

    _state["number"] = int(signal.SIGINT)
    for number in watched:
        signal.signal(number, interrupt)
    rings = bool(watched) and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    if rings:
        signal.signal(signal.SIGALRM, _alarm.ring)
        _alarm.ours = True
    try:
        yield
    finally:
        if rings:
            _alarm.cancel()
            _alarm.ours = False
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
    "remarking",
    "remembered",
]
