"""Ctrl-C while modules are imported, and while the interpreter ends: nothing is written."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

_EXIT_INTERRUPTED: Final = 130


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """End the process on Ctrl-C for as long as the context lasts.

    Nothing has begun that would have to be undone. An exception instead would go through the half of a library: some swallow it, some
    print it, and what is imported again afterwards may be broken. One that the caller ignores stays ignored.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if main else None
    if before is None or before is signal.SIG_IGN:
        yield
        return

    def end(_number: int, _frame: Any) -> None:
        os._exit(_EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def ending() -> None:
    """Let Ctrl-C end the process as the system does: Python waits for threads at its end, and would print where."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


__all__ = ["ending", "importing"]
