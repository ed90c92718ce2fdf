"""Track the partitions of a consumer instance that have returned no record since they were assigned, sought or resumed.

They return their first records one after another, within a moment. A read in that time waits for those of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from pixy.kafka.instance_consumer import partition_of
from pixy.wire.types import TopicPartition

_SETTLING = 0.5
"""Seconds after an assignment, seek or resumption in which first records come."""
_GATHER = 0.05
"""Seconds that a read in that time waits for the other partitions' records, once it has some."""


class FirstRecords:
    """For one session, in its thread."""

    def __init__(self) -> None:
        self._silent: set[TopicPartition] = set()
        self._settled = 0.0

    def __bool__(self) -> bool:
        return bool(self._silent)

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Expect the first records of partitions that were assigned, sought or resumed."""
        self._silent.update(partitions)
        self._settled = time.monotonic() + _SETTLING

    def forget(self, partitions: set[TopicPartition]) -> None:
        """Forget partitions that are assigned no longer."""
        self._silent -= partitions

    def gather(
        self,
        found: list[Any],
        poll: Callable[[float], Any],
        keep: Callable[[Any, list[Any]], bool],
        stop: Callable[[], object],
    ) -> None:
        """Wait a moment for the first records of the other partitions.

        Args:
            found: what has come; more is appended.
            poll: returns a message, or None after as many seconds.
            keep: appends a message that is a record, and says whether it is.
            stop: true when there is something else to do.
        """
        self._silent.difference_update(map(partition_of, found))
        deadline = min(self._settled, time.monotonic() + _GATHER)
        while self._silent and not stop() and (left := deadline - time.monotonic()) > 0:
            message = poll(left)
            if message is not None and keep(message, found):
                self._silent.discard(partition_of(message))
        self._silent.clear()


__all__ = ["FirstRecords"]
