"""What an instance has handed out, partition by partition, and which records wait to be. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from pixy.engine.consume.long_polls import Message
from pixy.kafka.consumer import Commit
from pixy.kafka.instance_consumer import place_of, size_of
from pixy.wire.types import TopicPartition


class Book:
    """Positions: where the reader stands in each assigned partition, and what of it is committed.

    A position moves when records have reached the reader, or when the reader seeks; never because
    records were fetched. Only positions are committed, by whatever kind of commit.
    """

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._moved: set[TopicPartition] = set()
        self._committed: dict[TopicPartition, int] = {}
        self._earlier: dict[TopicPartition, int] = {}
        self._terms: dict[TopicPartition, int] = {}
        self._term = 0

    @property
    def partitions(self) -> list[TopicPartition]:
        """What is assigned, sorted."""
        return sorted(self._positions)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset that the reader is to get, by partition."""
        return dict(self._positions)

    def __contains__(self, partition: object) -> bool:
        return partition in self._positions

    def terms(self) -> dict[TopicPartition, int]:
        """By partition the number of the assignment or seek since which its records are of use."""
        return dict(self._terms)

    def begin_again(self) -> dict[TopicPartition, int]:
        """The session is gone and another one follows: what was assigned is not, for now.

        Returns:
            Where the reader is, and has to go on, in the partitions that moved.
        """
        self._earlier = {partition: self._positions[partition] for partition in self._moved}
        self._positions.clear()
        self._moved.clear()
        self._terms.clear()
        return dict(self._earlier)

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Partitions were assigned, and begin at these offsets."""
        for partition, start in starts.items():
            if self._earlier.pop(partition, None) == start:
                self._moved.add(partition)
            elif self._positions.get(partition) != start:
                self._moved.discard(partition)
            self._positions[partition] = start
            self._renew(partition)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The reader goes on elsewhere; that is its position from now on."""
        for partition, offset in offsets.items():
            if partition in self._positions:
                self._move(partition, offset)
                self._renew(partition)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not ours any more."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._moved.discard(partition)
            self._committed.pop(partition, None)
            self._terms.pop(partition, None)

    def handed_out(self, records: Sequence[Message], terms: Mapping[TopicPartition, int]) -> None:
        """Records have reached the reader; those of a partition that was revoked or sought
        meanwhile (its term is another one) do not count.
        """
        reached: set[TopicPartition] = set()
        for record in reversed(records):
            partition = place_of(record)
            if partition in reached:
                continue
            reached.add(partition)
            if self._terms.get(partition) == terms.get(partition, -1):
                offset = record.offset()
                assert offset is not None
                self._move(partition, offset + 1)
            if len(reached) == len(terms):
                return  # each partition's last one has been seen

    def uncommitted(self) -> tuple[Commit, ...]:
        """What a commit has to write."""
        return tuple(
            Commit(*partition, self._positions[partition], "")
            for partition in sorted(self._moved)
            if self._committed.get(partition) != self._positions[partition]
        )

    def committed(self, commits: Iterable[Commit]) -> None:
        """These commits were made."""
        for commit in commits:
            partition = (commit.topic, commit.partition)
            if partition in self._positions:
                self._committed[partition] = commit.offset

    def progress(self) -> list[tuple[TopicPartition, int, int | None]]:
        """For each partition read from: the offset of the last record that was handed out, and of
        the last one that is committed.
        """
        found: list[tuple[TopicPartition, int, int | None]] = []
        for partition in sorted(self._moved):
            committed = self._committed.get(partition)
            found.append(
                (
                    partition,
                    self._positions[partition] - 1,
                    None if committed is None else committed - 1,
                )
            )
        return found

    def _move(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset
        self._moved.add(partition)

    def _renew(self, partition: TopicPartition) -> None:
        self._term += 1
        self._terms[partition] = self._term


class Shelf:
    """Records that were fetched and wait to be handed out, in their order."""

    def __init__(self) -> None:
        self._records: deque[Message] = deque()
        self.size = 0
        """Bytes of keys and values."""

    def __len__(self) -> int:
        return len(self._records)

    def put(self, records: Iterable[Message], size: int) -> None:
        """More records."""
        self._records.extend(records)
        self.size += size

    def take(self, most: int, max_bytes: int) -> list[Message]:
        """Up to ``most`` records of up to ``max_bytes``; the first one whatever its size."""
        records = self._records
        if len(records) <= most and self.size <= max_bytes:
            taken = list(records)
            records.clear()
            self.size = 0
            return taken
        taken, left = [], max_bytes
        while records and len(taken) < most:
            size = size_of(records[0])
            if taken and size > left:
                break
            left -= size
            self.size -= size
            taken.append(records.popleft())
        return taken

    def put_back(self, records: list[Message]) -> None:
        """Records that did not reach the reader are the next ones again."""
        self._records.extendleft(reversed(records))
        self.size += sum(map(size_of, records))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the records of these partitions."""
        gone = set(partitions)
        self._records = deque(each for each in self._records if place_of(each) not in gone)
        self.size = sum(map(size_of, self._records))


__all__ = ["Book", "Shelf"]
