"""Finds partitions that librdkafka was told to fetch and does not, though they have messages. Pure; told the time.

A topic that was deleted and made again has leader epochs that begin at 0. librdkafka (2.16) takes them for outdated if
it knows a higher one of the old topic, and then fetches with the old one, which the broker refuses, for ever
(librdkafka issue 4898 describes it of producers). It says nothing, and only a new client helps. That costs the group a
rebalance, so it is not done for every topic that is made again, but on evidence: a partition that is fetched returns
a message or its end at once. If it returns neither, and its log has messages for us, it is stuck.

librdkafka may also not know the partition yet: it asks for the partitions of its topics every
``topic.metadata.refresh.interval.ms`` (10 s), and a member keeps one that the new topic lacks, until it is added
there. So librdkafka is told to ask before it is called stuck.

Other topics are not watched: a slow connection is no reason to begin again, which would make it slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from pixy.kafka.partition_logs import Log
from pixy.wire.types import TopicPartition

LOOK_AFTER: Final = 3.0
"""Seconds of silence after which a partition is looked up, and looked up again."""
PATIENCE: Final = 3.0
"""Seconds for librdkafka to return a message that a look-up has found."""
PATIENCE_BUSY: Final = 20.0
"""The same while it returns messages of other partitions."""


class Unheard:
    """Watches the partitions of one session, in the session's thread."""

    def __init__(self) -> None:
        self.silent: dict[TopicPartition, float] = {}
        """Partitions that have returned nothing yet, and when to look them up; mostly empty."""
        self._starts: dict[TopicPartition, int] = {}
        self._suspect: dict[TopicPartition, float] = {}
        """Those that have messages, and since when that is known."""
        self._to_learn: set[str] = set()
        """The topics of those that librdkafka may not know yet."""

    def started(self, starts: Mapping[TopicPartition, int], now: float) -> None:
        """Note that librdkafka was told to fetch partitions of topics that were made again while it ran.

        Args:
            starts: from which offset; -2 for the oldest.
            now: seconds.
        """
        for partition, offset in starts.items():
            self._starts[partition] = offset
            self.silent[partition] = now + LOOK_AFTER
            self._suspect.pop(partition, None)

    def heard(self, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions that have returned a message or their end, or are fetched no longer."""
        for partition in partitions:
            self.silent.pop(partition, None)
            self._starts.pop(partition, None)
            self._suspect.pop(partition, None)

    def due(self, now: float) -> list[TopicPartition]:
        """Return the partitions to look up now."""
        if not self.silent:
            return []
        found = [each for each, at in self.silent.items() if at <= now and each not in self._suspect]
        for partition in found:
            self.silent[partition] = now + LOOK_AFTER
        return found

    def looked_up(self, logs: Mapping[TopicPartition, Log], now: float) -> None:
        """Take the outcome of a look-up.

        Args:
            logs: where the partitions' messages begin and end.
            now: seconds.
        """
        for partition, log in logs.items():
            waits = partition in self.silent and max(self._starts[partition], log.oldest) < log.stable
            if waits and partition not in self._suspect:
                self._suspect[partition] = now
                self._to_learn.add(partition[0])

    def to_learn(self) -> set[str]:
        """Return the topics that librdkafka has to ask for now, because partitions of theirs have become suspect."""
        return self._to_learn

    def learned(self, now: float) -> None:
        """Note that librdkafka has asked for the topics of :meth:`to_learn`: their partitions have all of their time from here on."""
        for partition in self._suspect:
            if partition[0] in self._to_learn:
                self._suspect[partition] = now
        self._to_learn = set()

    def stuck(self, now: float, *, busy: bool = False) -> list[TopicPartition]:
        """Return the partitions that are stuck.

        Args:
            now: seconds.
            busy: a poll has just brought messages of other partitions. What comes late may lie behind them in librdkafka's
                queue, and there for long if clients are slow; so it has more time. A mistake costs one rebalance: a new client
                has met the topic under no other id.
        """
        patience = PATIENCE_BUSY if busy else PATIENCE
        return [each for each, since in self._suspect.items() if now - since >= patience]


__all__ = ["LOOK_AFTER", "PATIENCE", "PATIENCE_BUSY", "Unheard"]
