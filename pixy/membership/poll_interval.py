"""How long one poll may keep its client busy, when many clients poll.

A wake-up costs some 25 microseconds of processor time, nearly all of it for the kernel and the GIL
(measured with 200 consumers: 26 at 20 ms a poll, 25 at 100 ms). So a process that wakes 6,500 times a
second spends a sixth of a core: 200 waiting readers have slices of 31 ms then (with 40 a commit's p99
was 47 to 52 ms), and a thousand of them slices of 154. A lone one gets the shortest.
"""

from __future__ import annotations

import threading

WAKE_UPS = 6500
SHORTEST, LONGEST = 0.005, 0.25


class PollInterval:
    """How many readers of this process wait, and what that means for each; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.waiting = 0

    def __enter__(self) -> PollInterval:
        with self._lock:
            self.waiting += 1
        return self

    def __exit__(self, *_exc: object) -> None:
        with self._lock:
            self.waiting -= 1

    @property
    def seconds(self) -> float:
        """Seconds."""
        return min(max(self.waiting / WAKE_UPS, SHORTEST), LONGEST)
