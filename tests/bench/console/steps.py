"""How long the console's steps hold the event loop, measured within: processor time of the loop's thread, one callback at a time."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

CONSOLE = "actors.console"
"""What the names of the console's tasks begin with."""
LONG = 0.010
"""Seconds that no step of the console may hold the loop."""


@dataclass
class Steps:
    """The steps since the last reset.

    Collections of garbage are counted apart: Python runs them by itself, in whatever step they fall due.
    """

    counts: Counter[str] = field(default_factory=Counter)
    """By the names of tasks."""
    long: int = 0
    longest: dict[str, float] = field(default_factory=dict)
    """Seconds, by the names of tasks."""
    computed: float = 0.0
    """Seconds of all."""
    collection: float = 0.0
    """Seconds of the longest collection of garbage."""
    _collected: float = 0.0
    _began: float = 0.0

    def reset(self) -> None:
        """Begin anew."""
        self.counts, self.long = Counter(), 0
        self.longest, self.computed, self.collection = {}, 0.0, 0.0

    @contextlib.contextmanager
    def measured(self) -> Iterator[Steps]:
        """Measure each callback of asyncio's loop that belongs to a task of the console."""
        run = asyncio.Handle._run  # type: ignore[attr-defined]

        def timed(handle: asyncio.Handle) -> None:
            task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
            name = task.get_name() if isinstance(task, asyncio.Task) else ""
            if not name.startswith(CONSOLE):
                run(handle)
                return
            self._collected, began = 0.0, time.thread_time()
            run(handle)
            self._add(name, time.thread_time() - began - self._collected)

        asyncio.Handle._run = timed  # type: ignore[attr-defined]
        gc.callbacks.append(self._collecting)
        try:
            yield self
        finally:
            asyncio.Handle._run = run  # type: ignore[attr-defined]
            gc.callbacks.remove(self._collecting)

    def _add(self, name: str, took: float) -> None:
        self.counts[name] += 1
        self.computed += took
        self.long += took > LONG
        if took > self.longest.get(name, 0.0):
            self.longest[name] = took

    def _collecting(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._began = time.thread_time()
            return
        took = time.thread_time() - self._began
        self._collected += took
        self.collection = max(self.collection, took)


__all__ = ["CONSOLE", "LONG", "Steps"]
