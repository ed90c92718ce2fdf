"""Metadata, offsets and groups of a cluster, for programs with an event loop. No call blocks the loop.

No request goes through librdkafka: see :mod:`pixy.kafka.brokers`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from pixy.errors import KafkaError
from pixy.kafka import sandbox_offsets
from pixy.kafka.brokers import LIMIT, Brokers
from pixy.kafka.errors import unknown_topic
from pixy.kafka.group_members import DescribedGroup, GroupMembers, Groups, ListedGroup
from pixy.kafka.group_offsets import Commit, GroupOffsets
from pixy.kafka.partition_logs import PartitionLogs
from pixy.kafka.settings import Settings, group_id
from pixy.kafka.threads import KafkaThreads
from pixy.kafka.topic_changes import TopicChanges
from pixy.kafka.topic_configs import Configs, topic_configs
from pixy.kafka.topics import PartitionInfo, Topics
from pixy.wire.results import NEWEST
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition

T = TypeVar("T")

_KEPT: Final = 4
"""Connections to each broker that stay open between two requests."""


class KafkaAdmin:
    """Requests to a cluster. Every method raises PixyError.

    Args:
        settings: see :func:`pixy.kafka.settings.admin`.
        timeout: seconds that a request may take where only one broker can answer, and in which others are asked.
        threads: how many requests may block a thread at the same time.
    """

    def __init__(self, settings: Settings, timeout: float, threads: int = 64) -> None:
        self._settings = settings
        self._brokers = Brokers(settings, timeout, timeout, _KEPT)
        self._coordinators = Brokers(settings, LIMIT, timeout, _KEPT)
        self._logs = PartitionLogs(self._brokers)
        self._members = GroupMembers(self._coordinators)
        self._changes = TopicChanges(self._brokers)
        self._threads = KafkaThreads("kafka-admin", threads)
        self._closed = threading.Event()

    def close(self) -> None:
        """Close the connections; requests in progress go on to their end, and none waits for a group of the sandbox."""
        self._closed.set()
        self._brokers.close()
        self._coordinators.close()

    async def topics(self) -> dict[str, tuple[PartitionInfo, ...]]:
        """Return all topics with their partitions."""
        found = await self._describe_topics(None)
        return {**dict.fromkeys(found.errors, ()), **found.partitions}

    async def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """Return a topic's partitions. Asking does not create the topic. Raises UnknownTopic."""
        return (await self.topic(topic))[0]

    async def topic(self, topic: str) -> tuple[tuple[PartitionInfo, ...], str]:
        """Return a topic's partitions and id, empty if the broker gives none. Asking does not create the topic. Raises UnknownTopic."""
        found = await self._describe_topics([topic])
        if topic not in found.partitions:
            raise found.errors.get(topic) or unknown_topic()
        topic_id = found.ids[topic]
        return found.partitions[topic], "" if topic_id == NULL_UUID else str(topic_id)

    async def brokers(self) -> list[int]:
        """Return the ids of the live brokers, sorted."""
        return sorted(each.node_id for each in (await self._describe_topics([])).brokers)

    async def _describe_topics(self, names: Sequence[str] | None) -> Topics:
        return await self._threads.run(lambda: self._brokers.topics(names))

    async def configs(self, topics: Sequence[str]) -> Configs:
        """Return the topics' own settings, without the broker's defaults."""
        return await self._threads.run(
            lambda: self._brokers.ask_any(lambda connection: topic_configs(connection, topics, own=True))
        )

    async def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Return the oldest offset of each partition and the offset of the next record to be written.

        Args:
            topic: of all partitions.
            partitions: their numbers.
        """
        wanted = [(topic, partition) for partition in partitions]
        found = await self._threads.run(lambda: self._logs.logs(wanted))
        return {partition: (log.oldest, log.end) for (_, partition), log in found.items()}

    async def find_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Find the offset at a time in each partition.

        Args:
            times: milliseconds since 1970, for the first offset whose record is not older, or the end if
                there is none; -1 for the end; -2 for the beginning.
        """

        def blocking() -> dict[TopicPartition, int]:
            found = self._logs.offsets(times)
            young = {partition: NEWEST for partition, offset in found.items() if offset < 0}
            return {**found, **self._logs.offsets(young)} if young else found

        return await self._threads.run(blocking)

    async def offsets(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        """Return a group's committed offset and metadata by partition.

        Args:
            group: its id.
            topic: of all partitions.
            partitions: their numbers; the offset is -1 where none is committed.
        """
        wanted = [(topic, partition) for partition in partitions]
        found = await self._with_offsets(group, lambda offsets: offsets.committed(wanted))
        return {
            partition: (-1 if each.offset is None else each.offset, each.metadata)
            for (_, partition), each in found.items()
        }

    async def set_offsets(self, group: str, commits: Sequence[Commit]) -> None:
        """Commit for a group without members; negative offsets are stored as they are.

        Args:
            group: its id.
            commits: what to commit.

        Raises:
            KafkaError: the first partition that was refused.
        """
        _check_committed(await self._with_offsets(group, lambda offsets: offsets.commit(commits)))

    async def set_sandbox_offsets(self, group: str, commits: Sequence[Commit], consumer: Settings) -> None:
        """Commit for a group of the sandbox that has had members; see :mod:`pixy.kafka.sandbox_offsets`.

        Args:
            group: its id.
            commits: what to commit, all of one topic.
            consumer: the settings of the group's consumers.

        Raises:
            KafkaError: the first partition that was refused.
        """
        errors = await self._threads.run(
            lambda: sandbox_offsets.set_offsets(consumer, group_id(group), commits, self._closed.is_set)
        )
        _check_committed(errors)

    async def _with_offsets(self, group: str, act: Callable[[GroupOffsets], T]) -> T:
        def blocking() -> T:
            offsets = GroupOffsets(self._settings, group_id(group))
            try:
                return act(offsets)
            finally:
                offsets.close()

        return await self._threads.run(blocking)

    async def groups(self) -> list[str]:
        """Return the names of all consumer groups."""
        return await self._threads.run(self._members.names)

    async def listed_groups(self) -> list[ListedGroup]:
        """Return all consumer groups, sorted by name."""
        return await self._threads.run(self._members.listed)

    async def describe_group(self, group: str) -> DescribedGroup:
        """Return a group's state and members."""
        return (await self._threads.run(lambda: self._members.described([group])))[group]

    async def committed(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """Return all committed offsets of a group with their metadata; none below 0."""
        found = await self._with_offsets(group, lambda offsets: offsets.all_committed())
        return {tp: (each.offset, each.metadata) for tp, each in found.items() if each.offset is not None}

    async def logs(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the oldest offset of each partition and the offset of the next record to be written."""
        found = await self._threads.run(lambda: self._logs.logs(partitions))
        return {each: (log.oldest, log.end) for each, log in found.items()}

    async def change(self, change: Callable[[TopicChanges], None]) -> None:
        """Make a change. No request of it is sent twice; after an error of the connection it may have been made."""
        await self._threads.run(lambda: change(self._changes))

    async def describe(self, groups: Sequence[str]) -> Groups:
        """Return the members of groups, and the partitions assigned to each."""
        return await self._threads.run(lambda: self._members.describe(groups))


def _check_committed(errors: Mapping[TopicPartition, KafkaError]) -> None:
    for (_, partition), error in errors.items():
        raise error.wrapped(f"failed to commit offset, partition={partition}")
