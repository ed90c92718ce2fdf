"""How long bytes wait inside the tap: told apart from what the broker takes.

The bytes of a request wait from the turn of the event loop in which the tap could have read them until the broker's socket has
accepted them; those of a response likewise until they are handed to the client's socket. The kernel does not say when bytes came,
so the wait before that turn is not known: what is shown is the least.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

BOUNDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5)
"""Upper ends of the buckets of waits inside the tap, in seconds; one more bucket is open."""

_DELAYS: Final = 1_000
"""Times at which a broker accepted nothing, of one connection, that are remembered until their requests are answered."""


class Turns:
    """When the current turn of the event loop began: what is read later in it has waited since then."""

    __slots__ = ("_began", "_loop")

    def __init__(self) -> None:
        self._began = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    def began(self, now: float) -> float:
        """Return when the turn began, at the latest: the time of its first read.

        Args:
            now: the time in seconds since the epoch.
        """
        if not self._began:
            self._began = now
            if self._loop is None:  # asked for once: it costs a system call (getpid), with each read
                self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._over)
        return min(self._began, now)  # a clock may step back

    def _over(self) -> None:
        self._began = 0.0


class Queueing:
    """The waits of one connection. All times are in seconds since the epoch, zero if not known."""

    __slots__ = ("_delays", "answered", "asked", "held", "sent")

    def __init__(self) -> None:
        self.asked = 0.0
        """Since when the bytes of requests wait that are observed now."""
        self.sent = 0.0
        """When they were handed to the broker's socket."""
        self.answered = 0.0
        """Since when the bytes of responses wait that are observed now."""
        self.held = [0.0, 0.0]
        """Seconds in which the broker, and the client, did not accept what the tap had for it."""
        self._delays: deque[tuple[int, int, float]] = deque(maxlen=_DELAYS)

    @property
    def waited(self) -> float:
        """Seconds that the requests that are observed now have waited in the tap."""
        return max(0.0, self.sent - self.asked)

    def delayed(self, first: int, last: int, seconds: float) -> None:
        """Note that the broker accepted some requests only after a time.

        Args:
            first: the number of the first of them among the connection's requests.
            last: the number of the last.
            seconds: the time.
        """
        self._delays.append((first, last, seconds))

    def delay(self, number: int) -> float:
        """Return for how many seconds the broker did not accept a request. Ask in the order of requests."""
        delays = self._delays
        while delays and delays[0][1] < number:
            delays.popleft()
        return delays[0][2] if delays and delays[0][0] <= number else 0.0


__all__ = ["BOUNDS", "Queueing", "Turns"]
