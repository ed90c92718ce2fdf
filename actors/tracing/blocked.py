"""Finds the handler that keeps the event loop from turning.

A daemon thread asks the loop for a sign of life. When none comes in time it looks at the loop's
thread from outside: its stack names the code, and the cell among the stack's frames the actor. It
says so in the log at once, as the loop may never turn again; the event follows when it does.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType
from typing import TYPE_CHECKING

from actors._core.cell import Cell
from actors._events import LoopBlocked

if TYPE_CHECKING:
    from actors._system import ActorSystem

logger = logging.getLogger("actors")

MAX_FRAMES = 30
"""Innermost frames of a reported stack."""


class LoopWatch:
    """Watches one system's loop: ``watch = LoopWatch(system); watch.start(); ...; watch.stop()``.

    Also a context manager. A block of twice the threshold is always seen, one of the threshold
    sometimes: asking all the time would cost more than it is worth.

    Args:
        system: whose loop, and where :class:`actors.LoopBlocked` is published.
        threshold: seconds without a sign of life that count as blocked.
        every: seconds between two reports at least; what comes sooner is only counted.
    """

    def __init__(self, system: ActorSystem, threshold: float = 0.25, *, every: float = 10.0) -> None:
        if threshold <= 0:
            raise ValueError(f"a threshold is more than 0 seconds, not {threshold}")
        self.system = system
        self.threshold = threshold
        self.every = every
        self.blocks = 0
        """How often the loop was found blocked, reported or not."""
        self._loop_thread: int | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> LoopWatch:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to watch; nothing if it does already. From any thread."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, args=(self._stop,), name="actors-loop-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Cease to watch. Does not wait for the thread: it may be the loop's own that calls."""
        self._stop.set()
        self._thread = None

    def _watch(self, stop: threading.Event) -> None:
        reported = float("-inf")
        while not stop.wait(self.threshold / 2):
            turned = threading.Event()
            asked = time.monotonic()
            if not self._ask(turned):
                return
            if turned.wait(self.threshold) or self._loop_thread is None:
                continue
            frame = sys._current_frames().get(self._loop_thread)
            if frame is None or turned.is_set():
                continue
            self.blocks += 1
            if time.monotonic() - reported >= self.every:
                reported = time.monotonic()
                self._report(frame, asked)
            del frame  # it would keep its locals alive
            while not turned.wait(self.threshold):
                if stop.is_set() or self.system.loop.is_closed():
                    return

    def _ask(self, turned: threading.Event) -> bool:
        def sign() -> None:
            self._loop_thread = threading.get_ident()
            turned.set()

        try:
            self.system.loop.call_soon_threadsafe(sign)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _report(self, frame: FrameType, asked: float) -> None:
        cell = running_cell(frame)
        path = None if cell is None else cell.path
        stack = format_stack(frame)
        logger.error(
            "%s: the event loop has not turned for %.2f s in %s:\n%s",
            self.system.name,
            time.monotonic() - asked,
            path or "code outside of actors",
            stack,
        )
        try:
            self.system.loop.call_soon_threadsafe(self._publish, asked, path, stack)
        except RuntimeError:
            return

    def _publish(self, asked: float, path: str | None, stack: str) -> None:
        if self.system.events.wants(LoopBlocked):
            self.system.events.publish(LoopBlocked(time.monotonic() - asked, path, stack))


def running_cell(frame: FrameType | None) -> Cell | None:
    """The innermost actor whose code runs in this frame or one that called it."""
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("actors._"):
            owner = frame.f_locals.get("self")
            if isinstance(owner, Cell):
                return owner
        frame = frame.f_back
    return None


def format_stack(frame: FrameType) -> str:
    """The innermost ``MAX_FRAMES`` frames as text, the innermost last; asyncio's own left out."""
    frames = [
        each
        for each in traceback.walk_stack(frame)
        if not str(each[0].f_globals.get("__name__", "")).startswith(asyncio.__name__)
    ]
    summary = traceback.StackSummary.extract(iter(frames), limit=MAX_FRAMES, lookup_lines=True)
    summary.reverse()
    return "".join(summary.format()).rstrip()


__all__ = ["LoopWatch"]
