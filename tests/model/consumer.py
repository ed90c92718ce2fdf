"""A model of librdkafka's consumer: what an application sees of assign, pause, seek and poll."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pixy.wire.types import TopicPartition
from tests.model.log import Kafka, PartitionLog
from tests.model.world import Refused


@dataclass
class _Fetching:
    """An assigned partition.

    Args:
        topic_id: of the topic when it was assigned.
        next: the offset to fetch next.
        position: behind the last record that the application was given; None before the first.
        start: where it was assigned or sought; fetching resumes there if nothing was given yet.
    """

    topic_id: int
    next: int
    start: int
    position: int | None = None
    failed: bool = False


class Consumer:
    """A consumer without a group.

    Args:
        kafka: what it reads.
        reset: ``earliest``, ``latest`` or ``error``: where it goes on when its offset does not exist.
        committed: whether it reads committed records only.
        rng: decides whether it fetches between two changes of a log.
    """

    def __init__(
        self, kafka: Kafka, reset: str = "earliest", *, committed: bool = True, rng: random.Random
    ) -> None:
        self._kafka, self._reset, self._committed = kafka, reset, committed
        self._assigned: dict[TopicPartition, _Fetching] = {}
        self._paused: set[TopicPartition] = set()
        """Kept when a partition is no longer assigned: it comes back paused."""
        self._queue: deque[tuple[TopicPartition, int, bool]] = deque()
        kafka.watchers.append(lambda: self._fetch() if rng.random() < 0.5 else None)
        self._failures: deque[tuple[TopicPartition, str]] = deque()

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment."""
        self.remove(list(self._assigned))
        self.add(starts)

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Begin to fetch partitions."""
        for partition, offset in starts.items():
            topic = self._kafka.topics.get(partition[0])
            self._assigned[partition] = _Fetching(topic.id if topic else 0, offset, offset)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching partitions."""
        for partition in partitions:
            del self._assigned[partition]
            self._drop(partition)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching; what was fetched and not given to the application is fetched again."""
        for partition in partitions:
            self._paused.add(partition)
            self._drop(partition)
            fetching = self._assigned[partition]
            fetching.next = fetching.start if fetching.position is None else fetching.position

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on fetching."""
        self._paused.difference_update(partitions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from another offset; drops what was fetched."""
        fetching = self._assigned.get(partition)
        if fetching is None or fetching.failed:
            raise Refused("_STATE")
        self._drop(partition)
        fetching.next = fetching.start = offset
        fetching.position = None

    def position(self, partition: TopicPartition) -> int | None:
        """The offset behind the last record that was given to the application; None before the first."""
        fetching = self._assigned.get(partition)
        return None if fetching is None else fetching.position

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The first offset that can be read and the one behind the last, as this consumer's isolation sees it."""
        log = self._kafka.find(partition)
        if log is None:
            raise Refused("_UNKNOWN_PARTITION")
        if not log.leader:
            raise Refused("LEADER_NOT_AVAILABLE")
        return log.start, log.bound(committed=self._committed)

    def poll(self) -> tuple[TopicPartition, int | str] | None:
        """The next record (its offset) or error event (its name); None if there is nothing."""
        self._fetch()
        if self._failures:
            return self._failures.popleft()
        while self._queue:
            partition, offset, is_marker = self._queue.popleft()
            self._assigned[partition].position = offset + 1
            if not is_marker:  # librdkafka passes markers on to move the position, and then drops them
                return partition, offset
        return None

    def _drop(self, partition: TopicPartition) -> None:
        self._queue = deque(each for each in self._queue if each[0] != partition)

    def _fetch(self) -> None:
        for partition, fetching in self._assigned.items():
            if partition not in self._paused and not fetching.failed:
                log = self._kafka.find(partition)
                if log is not None and log.leader:
                    self._fetch_from(partition, fetching, log)

    def _fetch_from(self, partition: TopicPartition, fetching: _Fetching, log: PartitionLog) -> None:
        start = fetching.next
        if not log.start <= start <= log.end:
            if self._reset == "error":
                fetching.failed = True
                self._failures.append((partition, "_AUTO_OFFSET_RESET"))
                return
            start = log.start if self._reset == "earliest" else log.bound(committed=self._committed)
        found, fetching.next = log.read(start, 10_000, committed=self._committed)
        markers = log.markers(start, fetching.next)
        self._queue.extend((partition, at, at in markers) for at in sorted([*found, *markers]))
