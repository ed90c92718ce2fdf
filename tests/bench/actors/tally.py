"""Count the messages that enter and leave a pipeline, with the time and the memory in use."""

from __future__ import annotations

import gc
import time

from tests.bench.actors.handlers import Result, expect, rss_kib

SAMPLES = 100


class Tally:
    """Supplies the numbers from 0 as messages; checks at the end, by count and sum, that all arrived.

    The first tenth of the messages is the warm-up; time and growth of memory are measured after it.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.fed = self.taken = self.sum = 0
        self.most_under_way = 0
        self._warm = count // 10
        self._every = max(1, count // SAMPLES)
        self._begun = self._ended = 0.0
        self._resident: list[float] = []
        gc.collect()

    def more(self) -> bool:
        """Return whether messages are left to send."""
        return self.fed < self.count

    def next(self) -> int:
        """Return the next message to send."""
        message = self.fed
        self.fed = message + 1
        return message

    def take(self, message: int) -> None:
        """Count a message that left the pipeline."""
        self.taken += 1
        self.sum += message
        if self.taken % self._every == 0:
            self._sample()
        if self.taken == self._warm:
            self._begun = time.perf_counter()
        elif self.taken == self.count:
            self._ended = time.perf_counter()

    def _sample(self) -> None:
        self.most_under_way = max(self.most_under_way, self.fed - self.taken)
        if self.taken >= self._warm:
            self._resident.append(rss_kib())

    def complete(self) -> bool:
        """Return whether all messages have left the pipeline."""
        return self.taken >= self.count

    def result(self) -> Result:
        """Return the figures.

        Raises:
            RuntimeError: a message was lost or came twice.
        """
        expect((self.taken, self.sum), (self.count, self.count * (self.count - 1) // 2))
        took = self._ended - self._begun
        return {
            "per_second": (self.count - self._warm) / took,
            "taken": self.taken,
            "under_way": self.most_under_way,
            "growth_mib": (max(self._resident) - self._resident[0]) / 1024,
            "rss_mib": self._resident[-1] / 1024,
        }
