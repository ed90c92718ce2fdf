"""Ctrl-C that is never lost, and never strikes inside of gRPC.

Python raises KeyboardInterrupt wherever the main thread is. In gRPC's own code nobody gets it, or a lock stays held and the program never
ends. So during a call the signal is only remembered, and the wait for the answer looks for it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

LOOK: Final = 0.2
"""Seconds between two looks for Ctrl-C during a call."""

_state: Final = {"seen": False, "deferred": False}


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was typed and nobody has got it."""
    if _state["seen"]:
        _state["seen"] = False
        raise KeyboardInterrupt


def handled() -> None:
    """Somebody has got it."""
    _state["seen"] = False


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Only remember Ctrl-C for as long as the context lasts; then :func:`check` raises it."""
    _state["deferred"] = True
    try:
        yield
    finally:
        _state["deferred"] = False


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """Watch for Ctrl-C for as long as the context lasts. One that the caller ignores stays ignored."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        _state["seen"] = True
        if not _state["deferred"]:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        handled()


__all__ = ["LOOK", "check", "deferred", "handled", "remembered"]
