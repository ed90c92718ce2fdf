"""Metadata, offsets and groups of a cluster, for programs with an event loop. No call blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import (
    KafkaException,
    TopicPartition as LibraryPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    OffsetSpec,
)

from pixy.errors import KafkaError
from pixy.kafka.consumer import Commit
from pixy.kafka.errors import translate, unknown_topic, unsupported
from pixy.kafka.group_members import GroupMembers, Groups
from pixy.kafka.group_offsets import GroupOffsets
from pixy.kafka.settings import Settings, group_id
from pixy.kafka.threads import KafkaThreads
from pixy.wire.types import TopicPartition

T = TypeVar("T")

_END, _BEGINNING = -1, -2
_SOME_TOPIC = "__consumer_offsets"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """A partition's metadata; ``leader`` is -1 while there is none."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class KafkaAdmin:
    """A thin admin client. Every method raises PixyError.

    Args:
        settings: see :func:`pixy.kafka.settings.admin`.
        timeout: seconds that a request may take.
        threads: how many requests may block a thread at the same time.
    """

    def __init__(self, settings: Settings, timeout: float, threads: int = 64) -> None:
        self._client = AdminClient(settings)
        self._members = GroupMembers(settings, timeout)
        self._settings = settings
        self._timeout = timeout
        self._threads = KafkaThreads("kafka-admin", threads)
        self._sandbox = False

    async def topics(self) -> dict[str, tuple[PartitionInfo, ...]]:
        """All topics with their partitions."""
        return {name: _partitions(topic) for name, topic in (await self._metadata()).items()}

    async def partitions(self, topic: str) -> tuple[PartitionInfo, ...]:
        """A topic's partitions. Asking does not create the topic. Raises UnknownTopic."""
        found = (await self._metadata(topic)).get(topic)
        if found is None:
            raise unknown_topic()
        if found.error is not None:
            raise translate(found.error)
        return _partitions(found)

    async def brokers(self) -> list[int]:
        """The ids of the live brokers, sorted."""
        # The answer has all brokers, whichever topic it is about; asking without a topic returns all topics.
        return sorted((await self._list(_SOME_TOPIC)).brokers)

    async def _metadata(self, *topic: str) -> dict[str, Any]:
        return dict((await self._list(*topic)).topics)

    async def _list(self, *topic: str) -> Any:
        try:
            found = await self._threads.run(lambda: self._client.list_topics(*topic, timeout=self._timeout))
        except KafkaException as error:
            raise translate(error) from error
        # librdkafka's mock cluster has no controller: a request to the controller would time out.
        self._sandbox = (found.cluster_id or "").startswith("mockCluster")
        return found

    async def configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The topics' own settings, without the broker's defaults."""
        if self._sandbox:
            raise unsupported("DescribeConfigs")
        resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        futures = self._client.describe_configs(resources, request_timeout=self._timeout)
        configs: dict[str, dict[str, str]] = {}
        for resource, future in futures.items():
            entries = await self._wait(future)
            configs[resource.name] = {
                entry.name: "" if entry.value is None else entry.value
                for entry in entries.values()
                if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            }
        return configs

    async def bounds(self, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """The oldest offset of each partition and the offset of the next record to be written.

        Args:
            topic: of all partitions.
            partitions: their numbers.
        """
        parts = [LibraryPartition(topic, partition) for partition in partitions]
        begin = self._client.list_offsets(
            {part: OffsetSpec.earliest() for part in parts}, request_timeout=self._timeout
        )
        end = self._client.list_offsets(
            {part: OffsetSpec.latest() for part in parts}, request_timeout=self._timeout
        )
        return {
            part.partition: ((await self._wait(begin[part])).offset, (await self._wait(end[part])).offset)
            for part in parts
        }

    async def find_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Find the offset at a time in each partition.

        Args:
            times: milliseconds since 1970, for the first offset whose record is not older, or the end if
                there is none; -1 for the end; -2 for the beginning.
        """
        found = await self._list_offsets(times)
        young = {partition: _END for partition, offset in found.items() if offset < 0}
        return {**found, **await self._list_offsets(young)} if young else found

    async def _list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        special = {_END: OffsetSpec.latest(), _BEGINNING: OffsetSpec.earliest()}
        wanted = {
            LibraryPartition(*partition): special.get(at) or OffsetSpec.for_timestamp(at)
            for partition, at in times.items()
        }
        futures = self._client.list_offsets(wanted, request_timeout=self._timeout)
        return {
            (part.topic, part.partition): (await self._wait(future)).offset
            for part, future in futures.items()
        }

    async def offsets(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, tuple[int, str]]:
        """A group's committed offset and metadata by partition.

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
        errors = await self._with_offsets(group, lambda offsets: offsets.commit(commits))
        for (_, partition), error in errors.items():
            raise error.wrapped(f"failed to commit offset, partition={partition}")

    async def _with_offsets(self, group: str, act: Callable[[GroupOffsets], T]) -> T:
        def blocking() -> T:
            offsets = GroupOffsets(self._settings, group_id(group))
            try:
                return act(offsets)
            finally:
                offsets.close()

        return await self._threads.run(blocking)

    async def groups(self) -> list[str]:
        """The names of all consumer groups."""
        found = await self._wait(self._client.list_consumer_groups(request_timeout=self._timeout))
        if not found.valid and found.errors:
            raise translate(found.errors[0])
        return sorted(group.group_id for group in found.valid)

    async def describe(self, groups: Sequence[str]) -> Groups:
        """The members of groups, and the partitions assigned to each."""
        return await self._threads.run(lambda: self._members.describe(groups))

    async def _wait(self, future: ThreadFuture[T]) -> T:
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout + 5.0)
        except KafkaException as error:
            raise translate(error) from error
        except TimeoutError as error:
            raise KafkaError("kafka: no answer in time", -185, "_TIMED_OUT", retriable=True) from error


def _partitions(topic: Any) -> tuple[PartitionInfo, ...]:
    return tuple(
        PartitionInfo(number, info.leader, tuple(info.replicas), tuple(info.isrs))
        for number, info in sorted(topic.partitions.items())
    )
