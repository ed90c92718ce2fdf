"""The partitions that a consumer instance is assigned, and which of the reader's positions may still be committed. Pure.

Kafka takes a commit from any member of the group, for any partition. One that was handed over while the instance had a partition,
and that runs after it was given back, would move the next owner's offset back. So each assignment of a partition has a number, and
so has each commit when it is handed over. And a commit that is repeated after a rebalance must not undo a later one: so
the order of the commands counts, which their tokens show.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, KeysView

from pixy.kafka.group_offsets import Commit
from pixy.wire.types import TopicPartition


class InstancePartitions:
    """For one session, in its thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._assigned: dict[TopicPartition, int] = {}
        """With the number of each assignment."""
        self._latest: dict[TopicPartition, int] = {}
        """The tokens of the latest commits that Kafka has accepted."""

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._assigned)

    def __len__(self) -> int:
        return len(self._assigned)

    @property
    def keys(self) -> KeysView[TopicPartition]:
        """The partitions, as a set."""
        return self._assigned.keys()

    def next_number(self) -> int:
        """A number that no assignment and no commit has had. Thread-safe."""
        return next(self._numbers)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """These are assigned from now on."""
        number = self.next_number()
        for partition in partitions:
            self._assigned[partition] = number

    def replace(self, partitions: Iterable[TopicPartition], keep: Iterable[TopicPartition]) -> None:
        """Exactly these are assigned from now on.

        Args:
            partitions: which.
            keep: those of them whose assignment, and whose position, stays as it was.
        """
        before = {each: self._assigned[each] for each in keep if each in self._assigned}
        self._assigned.clear()
        self.add(partitions)
        self._assigned |= {each: number for each, number in before.items() if each in self._assigned}
        self._latest = {each: token for each, token in self._latest.items() if each in before}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are assigned no longer."""
        for partition in partitions:
            self._assigned.pop(partition, None)
            self._latest.pop(partition, None)

    def held(self, partition: TopicPartition, before: int) -> bool:
        """Whether it is assigned, and was when the number ``before`` was given out."""
        return self._assigned.get(partition, before) < before

    def assigned_after(self, number: int, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions whose present assignment is later than a number.

        Args:
            number: see :meth:`next_number`.
            partitions: which.
        """
        return [each for each in partitions if self._assigned.get(each, number) > number]

    def to_commit(self, commits: Iterable[Commit], before: int, token: int) -> tuple[Commit, ...]:
        """Those of some positions that may still be committed.

        Args:
            commits: the positions.
            before: the number that was given out when they were handed over.
            token: of the command; a higher one is later.
        """
        return tuple(
            each
            for each in commits
            if self.held(partition := (each.topic, each.partition), before)
            and self._latest.get(partition, token) <= token
        )

    def committed(self, commits: Iterable[Commit], token: int) -> None:
        """Kafka has accepted what :meth:`to_commit` has returned."""
        for each in commits:
            self._latest[each.topic, each.partition] = token


__all__ = ["InstancePartitions"]
