"""Find callbacks that hold up the event loop, also on a machine that is busy with other programs."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from asyncio.base_events import _format_handle  # type: ignore[attr-defined]
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LIMIT = 0.1
"""Seconds."""


class SlowCallbacks:
    """Finds callbacks that compute or sleep for longer than ``LIMIT``.

    A callback that computes uses processor time of the loop's thread. A callback that blocks (in a socket,
    a lock, ``sleep``) sleeps. A callback that waits for a processor, because other programs use them all,
    does neither: the kernel counts that time separately (second field of ``schedstat``), and it is
    subtracted here. Without ``schedstat`` processor time is the only measure.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self._schedstat = -1

    @contextmanager
    def watching(self) -> Iterator[SlowCallbacks]:
        """Watch each callback of this thread's loop."""
        run = asyncio.Handle._run  # type: ignore[attr-defined]

        def timed(handle: asyncio.Handle) -> None:
            began, computed, queued = time.perf_counter(), time.thread_time(), self._queued()
            run(handle)
            elapsed = time.perf_counter() - began
            if elapsed < LIMIT:
                return
            computed = time.thread_time() - computed
            slept = elapsed - computed - (self._queued() - queued) if self._schedstat >= 0 else 0.0
            if max(computed, slept) >= LIMIT:
                self.found.append(f"{_format_handle(handle)}: computed {computed:.3f} s, slept {slept:.3f} s")

        with suppress(OSError):
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        # A callback may trigger a garbage collection: exempt the objects of earlier tests from it.
        gc.collect()
        gc.freeze()
        asyncio.Handle._run = timed  # type: ignore[attr-defined]
        try:
            yield self
        finally:
            asyncio.Handle._run = run  # type: ignore[attr-defined]
            gc.unfreeze()
            if self._schedstat >= 0:
                os.close(self._schedstat)

    def _queued(self) -> float:
        """Seconds that this thread has waited for a processor."""
        if self._schedstat < 0:
            return 0.0
        return int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9
