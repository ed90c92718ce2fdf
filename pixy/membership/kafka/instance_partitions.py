"""The partitions that a consumer instance is assigned, and which of the reader's positions may still be committed. Pure.

Kafka takes a commit from any member of the group, for any partition. One that was handed over while the instance had a partition,
and that runs after it was given back, would move the next owner's offset back. So each assignment of a partition has a number, and
so has each commit when it is handed over. And a commit that is repeated after a rebalance must not undo a later one: so
the order of the commands counts, which their tokens show.

An instance hears of an assignment that it has not asked for a moment later. Until then the positions that it names are those of before: of
a topic that is gone, say. So it tells the number of the last one that it has heard of.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import NamedTuple

from pixy.kafka.group_offsets import Commit
from pixy.kafka.instance_consumer import END
from pixy.wire.types import TopicPartition


class Moment(NamedTuple):
    """When the instance has handed a command over: assignments that began later, or that it had not heard of, do not count.

    Attributes:
        number: those that began later have higher ones.
        heard: the number of the last :class:`~pixy.membership.instances.Assigned` that it had handled.
    """

    number: int
    heard: int


class InstancePartitions:
    """For one session, in its thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._heard = 0
        self._assigned: dict[TopicPartition, int] = {}
        """With the number of each assignment."""
        self._told: dict[TopicPartition, int] = {}
        """The starts of those of which an :class:`~pixy.membership.instances.Assigned` tells."""
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

    # -- on the loop ------------------------------------------------------------------------------

    def moment(self) -> Moment:
        """Return the present moment, for a command."""
        return Moment(next(self._numbers), self._heard)

    def heard(self, number: int) -> None:
        """Note that the instance has handled an event.

        Args:
            number: of the event; 0 for one that has none.
        """
        self._heard = max(self._heard, number)

    # -- in the thread ----------------------------------------------------------------------------

    def add(self, starts: Mapping[TopicPartition, int]) -> int:
        """Note partitions that are assigned from now on.

        Args:
            starts: where each begins.

        Returns:
            The number of the :class:`~pixy.membership.instances.Assigned` that tells of them.
        """
        number = next(self._numbers)
        self._assigned.update(dict.fromkeys(starts, number))
        self._told.update(starts)
        return number

    def replace(self, partitions: Iterable[TopicPartition], keep: Iterable[TopicPartition]) -> None:
        """Replace the assignment: exactly these partitions are assigned from now on, as the instance has asked.

        Args:
            partitions: which.
            keep: those of them whose assignment, and whose position, stays as it was.
        """
        number = next(self._numbers)
        chosen = dict.fromkeys(partitions)
        before = {each: self._assigned[each] for each in keep if each in self._assigned and each in chosen}
        self._assigned = {each: before.get(each, number) for each in chosen}
        self._told = {each: start for each, start in self._told.items() if each in before}
        self._latest = {each: token for each, token in self._latest.items() if each in before}

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are assigned no longer."""
        for partition in partitions:
            self._assigned.pop(partition, None)
            self._told.pop(partition, None)
            self._latest.pop(partition, None)

    def held(self, partition: TopicPartition, before: Moment) -> bool:
        """Return whether the partition is assigned, and was when a command was handed over.

        Args:
            partition: which.
            before: that moment.
        """
        number = self._assigned.get(partition)
        return number is not None and number < before.number and not self._unheard(partition, before)

    def _unheard(self, partition: TopicPartition, before: Moment) -> bool:
        return partition in self._told and self._assigned[partition] > before.heard

    def kept(
        self,
        partitions: Iterable[TopicPartition],
        positions: Mapping[TopicPartition, int],
        before: Moment,
    ) -> dict[TopicPartition, int]:
        """Return the positions from which chosen partitions continue.

        Those that the session has begun, of which the instance had not heard, continue there: its position is another
        topic's, END, or that of a seek, which may have failed.

        Args:
            partitions: that are chosen.
            positions: the reader's, by the instance.
            before: when they were handed over.
        """
        kept = {each: offset for each, offset in positions.items() if offset != END}
        for each in partitions:
            if self._unheard(each, before):
                kept[each] = min(self._told[each], kept.get(each, self._told[each]))
        return kept

    def to_commit(self, commits: Iterable[Commit], before: Moment, token: int) -> tuple[Commit, ...]:
        """Return those of some positions that may still be committed.

        Args:
            commits: the positions.
            before: when they were handed over.
            token: of the command; a higher one is later.
        """
        return tuple(
            each
            for each in commits
            if self.held(partition := (each.topic, each.partition), before)
            and self._latest.get(partition, token) <= token
        )

    def committed(self, commits: Iterable[Commit], token: int) -> None:
        """Note that Kafka has accepted what :meth:`to_commit` has returned.

        Args:
            commits: those that were accepted.
            token: of the command.
        """
        for each in commits:
            self._latest[each.topic, each.partition] = token


__all__ = ["InstancePartitions", "Moment"]
