"""A model of Kafka's logs: topics, offsets that hold no record, retention, transactions, committed offsets.

The simulations and the scenarios use the same model. It has no time and no IO.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from pixy.wire.types import TopicPartition


class OutOfRange(Exception):
    """OFFSET_OUT_OF_RANGE."""


class PartitionLog:
    """The log of one partition, with the offsets ``start <= offset < end``."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self.leader = True
        self._gaps: set[int] = set()
        """Offsets that compaction has emptied."""
        self._markers: set[int] = set()
        """Offsets of the markers that end transactions."""
        self._aborted: set[int] = set()
        self._open: dict[str, list[int]] = {}
        """The records of each open transaction."""

    def append(self, count: int, transaction: str = "") -> None:
        """Write records, maybe as a part of a transaction."""
        offsets = range(self.end, self.end + count)
        self.end += count
        if transaction:
            self._open.setdefault(transaction, []).extend(offsets)

    def mark(self, transaction: str, *, commit: bool) -> None:
        """Write the marker that ends a transaction. It takes an offset and is never given to a client."""
        offsets = self._open.pop(transaction, [])
        if offsets:
            if not commit:
                self._aborted.update(offsets)
            self._markers.add(self.end)
            self.end += 1

    def compact(self, offsets: Iterable[int]) -> None:
        """Remove records; their offsets stay empty."""
        self._gaps.update(offsets)

    def delete(self, before: int) -> None:
        """Remove the records below an offset, as retention does."""
        self.start = max(self.start, min(before, self.end))

    @property
    def stable_end(self) -> int:
        """The end of what ``read_committed`` can see: the first record of an open transaction."""
        return min((offsets[0] for offsets in self._open.values()), default=self.end)

    def bound(self, *, committed: bool) -> int:
        """The end of what a consumer can see."""
        return self.stable_end if committed else self.end

    def read(self, offset: int, most: int, *, committed: bool) -> tuple[list[int], int]:
        """Read at most ``most`` records.

        Args:
            offset: where to begin.
            most: at least 1.
            committed: leave out aborted records and those behind an open transaction.

        Returns:
            The records' offsets and the offset to read from next: behind markers too.

        Raises:
            OutOfRange: the offset is below the first or above the last.
        """
        if not self.start <= offset <= self.end:
            raise OutOfRange
        bound, found = self.bound(committed=committed), []
        while offset < bound and len(found) < most:
            if not (
                offset in self._gaps or offset in self._markers or (committed and offset in self._aborted)
            ):
                found.append(offset)
            offset += 1
        return found, offset

    def markers(self, start: int, end: int) -> list[int]:
        """The offsets of markers in ``[start, end)``."""
        return sorted(each for each in self._markers if start <= each < end)


class Topic:
    """A topic of one life: it has an id, and another one when it is made again."""

    def __init__(self, topic_id: int, partitions: int) -> None:
        self.id = topic_id
        self.partitions = [PartitionLog() for _ in range(partitions)]


class Kafka:
    """Topics and the committed offsets of groups."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.committed: dict[str, dict[TopicPartition, tuple[int, str]]] = defaultdict(dict)
        """By group: offset and metadata of each partition."""
        self.watchers: list[Callable[[], None]] = []
        """Called after each change of a topic or a log."""
        self._lives = 0

    def create(self, name: str, partitions: int) -> None:
        """Create a topic, with an id that no topic has had."""
        self._lives += 1
        self.topics[name] = Topic(self._lives, partitions)
        self.changed()

    def delete(self, name: str) -> None:
        """Delete a topic. Groups forget the offsets that they committed for it."""
        del self.topics[name]
        for offsets in self.committed.values():
            for partition in [each for each in offsets if each[0] == name]:
                del offsets[partition]
        self.changed()

    def grow(self, name: str, partitions: int) -> None:
        """Add partitions, up to this number."""
        logs = self.topics[name].partitions
        logs.extend(PartitionLog() for _ in range(partitions - len(logs)))
        self.changed()

    def partitions(self) -> list[TopicPartition]:
        """All partitions that exist."""
        return [
            (name, number) for name, topic in self.topics.items() for number in range(len(topic.partitions))
        ]

    def find(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, if it exists."""
        topic = self.topics.get(partition[0])
        if topic is None or partition[1] >= len(topic.partitions):
            return None
        return topic.partitions[partition[1]]

    def log(self, partition: TopicPartition) -> PartitionLog:
        """The log of a partition that exists."""
        return self.topics[partition[0]].partitions[partition[1]]

    def produce(self, partition: TopicPartition, count: int = 1, transaction: str = "") -> None:
        """Write records."""
        self.log(partition).append(count, transaction)
        self.changed()

    def end(self, transaction: str, *, commit: bool) -> None:
        """End a transaction in all partitions that it wrote to."""
        for topic in self.topics.values():
            for log in topic.partitions:
                log.mark(transaction, commit=commit)
        self.changed()

    def changed(self) -> None:
        """Tell the watchers."""
        for watcher in self.watchers:
            watcher()
