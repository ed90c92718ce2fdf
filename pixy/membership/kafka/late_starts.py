"""The partitions of a consumer instance that begin at their end, which could not be asked for when they were assigned.

One that has no leader, mostly. Left to itself, librdkafka would ask for the end as soon as there is a leader, and
what was written in the moment before would never be read. So these are paused, and begin where their log ended when
they were assigned (:class:`~pixy.kafka.partition_logs.FirstAttempt`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from pixy.kafka.instance_consumer import InstanceConsumer
from pixy.kafka.partition_logs import FirstAttempt, Log
from pixy.membership.kafka.start_lookups import MOST, StartLookups
from pixy.wire.types import TopicPartition

_RETRY, _MAX_RETRY = 0.1, 3.0
"""Seconds before the next lookup: doubled up to the latter."""


class LateStarts:
    """For one session, in its thread.

    Args:
        client: the session's.
        lookups: ask in threads of their own, so that reads go on.
        command: takes what other threads want to be run in the session's thread.
        found: called with the logs of partitions that can begin now; it fetches them again.
    """

    def __init__(
        self,
        client: InstanceConsumer,
        lookups: StartLookups,
        command: Callable[[Callable[[], None]], None],
        found: Callable[[Mapping[TopicPartition, Log]], None],
    ) -> None:
        self._client = client
        self._lookups = lookups
        self._command = command
        self._found = found
        self._waiting: dict[TopicPartition, FirstAttempt] = {}
        self._retry, self._retry_at = _RETRY, 0.0

    def add(self, partitions: Mapping[TopicPartition, FirstAttempt]) -> None:
        """Pause these newly assigned partitions. They wait since their first attempts."""
        if partitions:
            self._client.pause(partitions)
            self._waiting.update(partitions)
            self._retry = _RETRY
            self._retry_at = time.monotonic() + _RETRY

    def drop(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Let these partitions wait no longer; return those that waited."""
        return {each for each in partitions if self._waiting.pop(each, None) is not None}

    @property
    def waiting(self) -> dict[TopicPartition, FirstAttempt]:
        """Return the partitions that wait, with their first attempts."""
        return dict(self._waiting)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch those that do not wait."""
        self._client.resume([each for each in partitions if each not in self._waiting])

    @property
    def due(self) -> bool:
        """True if it is time for a lookup."""
        return bool(self._waiting) and time.monotonic() >= self._retry_at

    def look_up(self) -> None:
        """Begin a lookup that is due."""
        if self.due:
            self._retry_at = time.monotonic() + self._retry
            self._retry = min(_MAX_RETRY, 2 * self._retry)
            if self._lookups.running < MOST:
                wanted = dict(self._waiting)
                self._lookups.logs(
                    wanted, lambda logs: self._command(lambda: self._take(wanted, logs)), wanted
                )

    def _take(
        self, wanted: Mapping[TopicPartition, FirstAttempt], logs: Mapping[TopicPartition, Log]
    ) -> None:
        found = {each: log for each, log in logs.items() if self._waiting.get(each) is wanted[each]}
        self.drop(found)
        if found:
            self._found(found)


__all__ = ["LateStarts"]
