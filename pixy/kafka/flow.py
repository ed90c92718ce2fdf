"""Decides how many messages to take from librdkafka and which partitions to pause.

``pause`` discards prefetched messages and ``resume`` costs 0.2 to 0.5 s, so pausing is the last
resort. Usually the client takes messages only while some partition has room, and librdkafka's own bounded
queue holds the rest. A partition is paused only when it is full (its clients have stopped) while others
have room: librdkafka has one queue for all partitions, which the full one's messages would fill. It
resumes at a quarter of its limit.

It does no I/O and is thread-safe: the client's thread takes messages, the event loop gives room back.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


class _Share:
    __slots__ = ("held", "held_bytes", "paused")

    def __init__(self) -> None:
        self.held = 0
        self.held_bytes = 0
        self.paused = False


class FlowControl(Generic[P]):
    """Counts the messages that each partition's owner holds and has not delivered.

    Args:
        max_messages: of one partition.
        max_bytes: of one partition.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._lock = threading.Condition()
        self._shares: dict[P, _Share] = {}
        self._nudged = False

    def assigned(self, partitions: Iterable[P]) -> None:
        """Add partitions, or reset them to holding nothing."""
        with self._lock:
            for partition in partitions:
                self._shares[partition] = _Share()

    def revoked(self, partitions: Iterable[P]) -> None:
        """Remove partitions."""
        with self._lock:
            for partition in partitions:
                self._shares.pop(partition, None)

    def resumed(self, partition: P) -> None:
        """Note that a partition, which may have been paused, is fetched again. Its owner holds as much as before."""
        with self._lock:
            share = self._shares.get(partition)
            if share is not None:
                share.paused = False

    def took(self, partition: P, messages: int, size: int) -> None:
        """Count messages handed to the partition's owner.

        Args:
            partition: one that is not assigned is ignored.
            messages: how many.
            size: bytes of their keys and values.
        """
        with self._lock:
            share = self._shares.get(partition)
            if share is not None:
                share.held += messages
                share.held_bytes += size

    def credit(self, partition: P, messages: int, size: int) -> None:
        """Count messages that the owner no longer holds, and wake a thread that waits for demand.

        Args:
            partition: one that is not assigned is ignored.
            messages: how many.
            size: bytes of their keys and values.
        """
        with self._lock:
            share = self._shares.get(partition)
            if share is not None:
                share.held = max(0, share.held - messages)
                share.held_bytes = max(0, share.held_bytes - size)
                self._lock.notify()

    def demand(self) -> int:
        """Return the number of messages to take now."""
        with self._lock:
            return self._demand()

    def wait_for_demand(self, timeout: float) -> int:
        """Wait at most ``timeout`` seconds for demand or a nudge, and return the demand."""
        with self._lock:
            if not self._nudged and self._demand() == 0:
                self._lock.wait(timeout)
            self._nudged = False
            return self._demand()

    def nudge(self) -> None:
        """Wake the waiting thread whether there is demand or not."""
        with self._lock:
            self._nudged = True
            self._lock.notify()

    def changes(self) -> tuple[list[P], list[P]]:
        """Return the partitions to pause and those to resume, and count them as paused and resumed."""
        pause: list[P] = []
        resume: list[P] = []
        with self._lock:
            starving = self._demand() > 0
            for partition, share in self._shares.items():
                if share.paused:
                    if self._fill(share) <= 0.25:
                        share.paused = False
                        resume.append(partition)
                elif self._fill(share) >= (1.0 if starving else 2.0):
                    share.paused = True
                    pause.append(partition)
        return pause, resume

    def _fill(self, share: _Share) -> float:
        return max(share.held / self._max_messages, share.held_bytes / self._max_bytes)

    def _demand(self) -> int:
        return sum(
            self._max_messages - share.held
            for share in self._shares.values()
            if not share.paused and share.held < self._max_messages and share.held_bytes < self._max_bytes
        )
