"""The positions of an instance's reader, and the records fetched for it. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from pixy.engine.consume.long_polls import Message
from pixy.engine.instances.messages import Progress
from pixy.kafka.consumer import Commit
from pixy.kafka.instance_consumer import END, partition_of, size_of
from pixy.kafka.partition_logs import FirstAttempt
from pixy.membership.instances import EarlierPosition
from pixy.wire.types import TopicPartition


class Positions:
    """The reader's position in each assigned partition, and which of them are committed.

    A position moves when records have reached the reader, or when the reader seeks; never because
    records were fetched. Every kind of commit commits positions and nothing else. An automatic one commits
    only those that the reader has confirmed: its next read confirms what was handed out before.
    """

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, int] = {}
        self._moved: set[TopicPartition] = set()
        self._confirmed: dict[TopicPartition, int] = {}
        self._unconfirmed: set[TopicPartition] = set()
        self._new: dict[TopicPartition, int] = {}
        """The starts that are to be committed although the reader has read nothing."""
        self._committed: dict[TopicPartition, int] = {}
        self._expected: dict[TopicPartition, frozenset[int]] = {}
        """Offsets that the group may have committed, as long as nobody but this reader commits; see :class:`EarlierPosition`."""
        self._earlier: dict[TopicPartition, EarlierPosition] = {}
        """Positions from before a restart, until their partitions are assigned again."""
        self._unread: dict[TopicPartition, bool] = {}
        """Those of them at which the reader has read nothing, and whether they are starts that are to be committed."""
        self.resuming = False
        """True if there are such positions to commit, and no partition is assigned yet: so they cannot be committed now."""
        self._late: dict[TopicPartition, FirstAttempt] = {}
        """The partitions that wait for their beginning, also from before a restart, and since when."""
        self._epochs: dict[TopicPartition, int] = {}
        self._last_epoch = 0

    @property
    def partitions(self) -> list[TopicPartition]:
        """The assigned partitions, sorted."""
        return sorted(self._positions)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset to hand out, by partition."""
        return dict(self._positions)

    def __contains__(self, partition: object) -> bool:
        return partition in self._positions

    def epochs(self) -> dict[TopicPartition, int]:
        """Return the epoch of each partition: it changes with every assignment and every seek, so that records
        taken before one can be told from records taken after it.
        """
        return dict(self._epochs)

    @property
    def late(self) -> dict[TopicPartition, FirstAttempt]:
        """See :attr:`pixy.membership.instances.Earlier.late`."""
        return dict(self._late)

    def wait(self, late: Mapping[TopicPartition, FirstAttempt]) -> None:
        """Note partitions that wait for their beginning, until it is assigned or sought.

        Args:
            late: since when each waits.
        """
        self._late.update(late)

    def begin_again(self) -> dict[TopicPartition, EarlierPosition]:
        """Forget the assignment, because a new session follows.

        Returns:
            The positions, also those from before an earlier restart: the new session has to resume there. Those that have not moved,
            too: where nothing is committed, a later end would leave out what was written meanwhile.
        """
        for partition, position in self._positions.items():
            if position == END:
                continue  # see ``late``
            # The confirmed position is the session's last commit, of which it is not known whether it has succeeded.
            last = {self._confirmed[partition]} if partition in self._confirmed else set()
            self._earlier[partition] = EarlierPosition(position, self._expected[partition] | last)
            self._unread.pop(partition, None)
            if partition not in self._moved:
                self._unread[partition] = partition in self._new
        for state in (
            self._positions,
            self._moved,
            self._epochs,
            self._confirmed,
            self._unconfirmed,
            self._new,
            self._expected,
        ):
            state.clear()
        self.resuming = any(self._unread.get(partition, True) for partition in self._earlier)
        return dict(self._earlier)

    def forget_earlier(self) -> None:
        """Forget the positions from before a restart: the reader gives up what it consumed."""
        self._earlier.clear()
        self._unread.clear()
        self._late = {each: first for each, first in self._late.items() if each in self._positions}
        self.resuming = False

    def assign(
        self, starts: Mapping[TopicPartition, int], new: Collection[TopicPartition] = frozenset()
    ) -> None:
        """Add partitions.

        Args:
            starts: the offset where each begins.
            new: those whose start is to be committed.
        """
        if starts:
            self.resuming = False  # members of a cooperative group may be assigned nothing first
        for partition, start in starts.items():
            earlier, unread = self._earlier.pop(partition, None), self._unread.pop(partition, None)
            if earlier is not None and earlier.offset == start:
                if unread is None:
                    self._moved.add(partition)
                    self._unconfirmed.add(partition)
                elif unread:
                    self._new[partition] = start
                self._expected[partition] = earlier.committed | {start}
            elif self._positions.get(partition) != start:
                self._forget(partition)
                self._expected[partition] = frozenset({start})
            self._positions[partition] = start
            if start != END:
                self._late.pop(partition, None)
            if partition in new:
                self._new[partition] = start
            self._begin_epoch(partition)

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move the positions of assigned partitions to where the reader continues."""
        for partition, offset in offsets.items():
            if partition in self._positions:
                self._move(partition, offset)
                self._late.pop(partition, None)
                self._confirmed[partition] = offset
                self._unconfirmed.discard(partition)
                self._begin_epoch(partition)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove partitions that are no longer assigned."""
        for partition in partitions:
            self._positions.pop(partition, None)
            self._late.pop(partition, None)
            self._forget(partition)
            self._epochs.pop(partition, None)

    def _forget(self, partition: TopicPartition) -> None:
        self._moved.discard(partition)
        self._unconfirmed.discard(partition)
        self._confirmed.pop(partition, None)
        self._new.pop(partition, None)
        self._committed.pop(partition, None)
        self._expected.pop(partition, None)

    def handed_out(self, records: Sequence[Message], epochs: Mapping[TopicPartition, int]) -> None:
        """Move the positions past records that have reached the reader.

        Args:
            records: in the order in which they were returned.
            epochs: of their partitions when the records were taken; a partition that was revoked or
                sought since has another epoch, and its position stays.
        """
        seen: set[TopicPartition] = set()
        for record in reversed(records):
            partition = partition_of(record)
            if partition in seen:
                continue
            seen.add(partition)
            if self._epochs.get(partition) == epochs.get(partition, -1):
                offset = record.offset()
                assert offset is not None
                self._move(partition, offset + 1)
            if len(seen) == len(epochs):
                return  # the last record of every partition has been seen

    def confirm(self) -> None:
        """Note that the reader has processed what it was handed out so far."""
        for partition in self._unconfirmed:
            self._confirmed[partition] = self._positions[partition]
        self._unconfirmed.clear()

    def uncommitted(self) -> tuple[Commit, ...]:
        """Return the positions that have moved since they were last committed, and the starts to be committed."""
        return self._commits({partition: self._positions[partition] for partition in self._moved})

    def confirmed(self) -> tuple[Commit, ...]:
        """Return what :meth:`uncommitted` does, without what the reader has not confirmed."""
        return self._commits(self._confirmed)

    def _commits(self, moved: Mapping[TopicPartition, int]) -> tuple[Commit, ...]:
        wanted = {**self._new, **moved}
        return tuple(
            Commit(*partition, wanted[partition], "")
            for partition in sorted(wanted)
            if self._committed.get(partition) != wanted[partition]
        )

    def still_valid(
        self, commits: Iterable[Commit], epochs: Mapping[TopicPartition, int]
    ) -> tuple[Commit, ...]:
        """Return those of some earlier positions that may still be committed: no later one of the partition is committed,
        and it was neither revoked nor sought since.

        Args:
            commits: the positions.
            epochs: of the partitions when the positions were taken.
        """
        return tuple(
            each
            for each in commits
            if (partition := (each.topic, each.partition)) in epochs
            and self._epochs.get(partition) == epochs[partition]
            and self._committed.get(partition, -1) < each.offset
        )

    def committed(self, commits: Iterable[Commit]) -> None:
        """Record that Kafka has accepted these commits. A client that commits what was handed out confirms it."""
        for commit in commits:
            partition, offset = (commit.topic, commit.partition), commit.offset
            if partition not in self._positions:
                continue
            self._committed[partition] = offset
            self._expected[partition] = frozenset({offset})
            self._new.pop(partition, None)
            if partition in self._unconfirmed and offset <= self._positions[partition]:
                self._confirmed[partition] = max(self._confirmed.get(partition, offset), offset)

    def progress(self) -> Progress:
        """See :data:`pixy.engine.instances.messages.Progress`."""
        found: Progress = []
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
        self._unconfirmed.add(partition)

    def _begin_epoch(self, partition: TopicPartition) -> None:
        self._last_epoch += 1
        self._epochs[partition] = self._last_epoch


class FetchedRecords:
    """A queue of records that were fetched and not yet handed out."""

    def __init__(self) -> None:
        self._records: deque[Message] = deque()
        self._behind: dict[TopicPartition, int] = {}
        self.size = 0
        """Bytes of keys and values."""

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._records)

    def leave_out(self, behind: Mapping[TopicPartition, int]) -> None:
        """Leave out records that the session fetches a second time, until :meth:`drop` forgets the partition.

        Args:
            behind: the first offset of each partition that is to be put.
        """
        self._behind.update(behind)

    def put(self, records: Iterable[Message], size: int) -> None:
        """Append records.

        Args:
            records: in the order of their offsets.
            size: bytes of their keys and values.
        """
        if self._behind:
            records = [record for record in records if self._is_next(record)]
            size = sum(map(size_of, records))
        self._records.extend(records)
        self.size += size

    def _is_next(self, record: Message) -> bool:
        partition, offset = partition_of(record), record.offset()
        if partition in self._behind:
            if offset is not None and offset < self._behind[partition]:
                return False
            del self._behind[partition]
        return True

    def take(self, most: int, max_bytes: int) -> list[Message]:
        """Remove and return the first records.

        Args:
            most: the most records.
            max_bytes: the most bytes of keys and values; the first record is taken whatever its size.
        """
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
        """Return records that did not reach the reader to the front."""
        self._records.extendleft(reversed(records))
        self.size += sum(map(size_of, records))

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove the records of these partitions."""
        dropped = set(partitions)
        for partition in dropped:
            self._behind.pop(partition, None)
        self._records = deque(each for each in self._records if partition_of(each) not in dropped)
        self.size = sum(map(size_of, self._records))


__all__ = ["FetchedRecords", "Positions"]
