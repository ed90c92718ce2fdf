"""How long one poll may keep its client busy, when many clients poll.

A wake-up costs some 25 microseconds of processor time, nearly all of it for the GIL. So a process
that wakes 8,000 times a second spends a fifth of a core: 200 waiting readers have slices of 25 ms
then, and 2,000 of them slices of 250 ms. A lone one gets the shortest.
"""

from __future__ import annotations

import threading

WAKE_UPS = 8000
SHORTEST, LONGEST = 0.005, 0.25


class Pace:
    """How long one poll of a waiting read may take: all of them together wake so often a second."""

    def __init__(self) -> None:
        self._waiting = 0
        self._lock = threading.Lock()

    def __enter__(self) -> float:
        with self._lock:
            self._waiting += 1
            waiting = self._waiting
        return min(max(waiting / WAKE_UPS, SHORTEST), LONGEST)

    def __exit__(self, *_exc: object) -> None:
        with self._lock:
            self._waiting -= 1
