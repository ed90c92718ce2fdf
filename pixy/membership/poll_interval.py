"""The length of one poll when many clients of a process poll at the same time.

A wake-up costs some 25 microseconds of processor time, nearly all of it for the kernel and the GIL
(measured with 200 consumers: 26 at 20 ms a poll, 25 at 100 ms). At 6,500 wake-ups a second a process
spends a sixth of a core on them: 200 waiting readers then poll for 31 ms each (at 40 ms a commit's p99
was 47 to 52 ms), and a thousand for 154 ms. A single reader gets the shortest interval.
"""

from __future__ import annotations

import threading

WAKE_UPS = 6500
"""Wake-ups of all waiting readers of a process, per second."""
SHORTEST, LONGEST = 0.005, 0.25
"""Bounds of one poll, in seconds."""


class PollInterval:
    """Counts the readers of this process that wait, as a context manager; usable from any thread."""

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
        """Seconds that each waiting reader polls at a time."""
        return min(max(self.waiting / WAKE_UPS, SHORTEST), LONGEST)
