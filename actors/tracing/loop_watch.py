"""Find the handler that blocks the event loop.

A daemon thread asks the loop for a sign of life. If none comes in time, the thread inspects the stack of the
loop's thread: the innermost frame names the code, and the cell among the frames names the actor. The thread
logs this at once, because the loop may never turn again. The :class:`actors.LoopBlocked` event follows when
the loop turns.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType
from typing import TYPE_CHECKING, Final

from actors._core import following
from actors._core.cell import Cell
from actors._core.log_safely import log_safely
from actors._events import LoopBlocked
from actors.tracing._switch import Switch

if TYPE_CHECKING:
    from actors._system import ActorSystem

logger = logging.getLogger("actors")

MAX_FRAMES = 30
"""Most frames of a reported stack, counted from the innermost."""
_LOOPS: Final = frozenset({"asyncio", "selectors", "uvloop"})
_RUNNERS: Final = frozenset({"asyncio.base_events", "asyncio.runners", "uvloop"})


class LoopWatch(Switch):
    """Watch one system's event loop: ``with LoopWatch(system): ...``, or call ``start`` and ``stop``.

    A block of twice the threshold is always found, a block of the threshold only sometimes: asking for a sign
    of life more often would cost more than it is worth.

    Args:
        system: the system whose loop is watched and which publishes :class:`actors.LoopBlocked`.
        threshold: seconds without a sign of life after which the loop counts as blocked; more than 0.
        every: minimum seconds between two reports; blocks in between are only counted.

    Raises:
        ValueError: the threshold is not positive.
    """

    def __init__(self, system: ActorSystem, threshold: float = 0.25, *, every: float = 10.0) -> None:
        if threshold <= 0:
            raise ValueError(f"the threshold must be more than 0 seconds, not {threshold}")
        self.system = system
        self.threshold = threshold
        self.every = every
        self.blocks = 0
        """How often the loop was found blocked, reported or not."""
        self._loop_thread: int | None = None
        self._native: int | None = None
        """The loop's thread, as the kernel numbers it."""
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start watching; do nothing if already started. Callable from any thread."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, args=(self._stop,), name="actors-loop-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop watching. Does not join the thread: the caller may be on the loop's own thread."""
        self._stop.set()
        self._thread = None

    def _watch(self, stop: threading.Event) -> None:
        last_report = float("-inf")
        while not stop.wait(self.threshold / 2):
            turned = threading.Event()
            asked_at, queued = time.monotonic(), self._queued()
            if not self._request_sign(turned):
                return
            if turned.wait(self.threshold) or self._loop_thread is None:
                continue
            frame = sys._current_frames().get(self._loop_thread)
            if frame is None or turned.is_set():
                continue
            self.blocks += 1
            if time.monotonic() - last_report >= self.every:
                last_report = time.monotonic()
                self._report(frame, asked_at, queued)
            del frame  # a frame keeps its locals alive
            while not turned.wait(self.threshold):
                if stop.is_set() or self.system.loop.is_closed():
                    return

    def _request_sign(self, turned: threading.Event) -> bool:
        """Have the loop set ``turned`` in its next turn; False if the loop is closed."""

        def sign() -> None:
            self._loop_thread, self._native = threading.get_ident(), threading.get_native_id()
            turned.set()

        try:
            self.system.loop.call_soon_threadsafe(sign)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _queued(self) -> float:
        """Return for how many seconds the loop's thread has waited for a processor so far; 0 if that is not known."""
        try:
            with open(f"/proc/self/task/{self._native}/schedstat", "rb") as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def _report(self, frame: FrameType, asked_at: float, queued: float) -> None:
        cell = running_cell(frame)
        path = None if cell is None else cell.path
        stack = format_stack(frame)
        took = time.monotonic() - asked_at
        starved = min(took, self._queued() - queued)
        if starved >= took / 2:
            log_safely(
                logger.warning,
                "%s: the event loop has not turned for %.2f s, %.2f of which it waited for a processor: the machine is busy",
                self.system.name,
                took,
                starved,
            )
        elif only_runner(frame):
            log_safely(
                logger.warning,
                "%s: the event loop has not turned for %.2f s, and no Python code runs on it: "
                "the machine is busy, or a callback waits in C",
                self.system.name,
                took,
            )
        else:
            log_safely(
                logger.error,
                "%s: the event loop has not turned for %.2f s in %s:\n%s",
                self.system.name,
                took,
                path or "code outside of actors",
                stack,
            )
        try:
            self.system.loop.call_soon_threadsafe(self._publish, asked_at, queued, path, stack)
        except RuntimeError:  # the loop is closed
            return

    def _publish(self, asked_at: float, queued: float, path: str | None, stack: str) -> None:
        if self.system.events.wants(LoopBlocked):
            took = time.monotonic() - asked_at
            starved = min(took, max(0.0, self._queued() - queued))
            self.system.events.publish(LoopBlocked(took, path, stack, starved))


def running_cell(frame: FrameType | None) -> Cell | None:
    """Find the innermost actor whose code runs in this frame or in one of its callers."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("actors._"):
            owner = frame.f_locals.get("cell" if module == following.__name__ else "self")
            if isinstance(owner, Cell):
                return owner
        frame = frame.f_back
    return None


def only_runner(frame: FrameType | None) -> bool:
    """Return whether a stack has nothing above what runs the loop: no handler, callback or coroutine is to blame."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module in _RUNNERS and frame.f_code.co_name in ("run", "run_forever", "run_until_complete"):
            return True
        if module.partition(".")[0] not in _LOOPS:
            return False
        frame = frame.f_back
    return False


def format_stack(frame: FrameType) -> str:
    """Format the innermost ``MAX_FRAMES`` frames, innermost last, without those of asyncio."""
    frames = [
        each
        for each in traceback.walk_stack(frame)
        if not str(each[0].f_globals.get("__name__", "")).startswith(asyncio.__name__)
    ]
    summary = traceback.StackSummary.extract(iter(frames), limit=MAX_FRAMES, lookup_lines=True)
    summary.reverse()
    return "".join(summary.format()).rstrip()


__all__ = ["LoopWatch"]
