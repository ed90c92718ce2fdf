"""Metadata and offsets of a cluster, for batch programs without an event loop. Every call blocks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any, TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition as LibraryPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from pixy.errors import KafkaError, UnknownTopic
from pixy.kafka.consumer import Commit
from pixy.kafka.errors import OUT_OF_BROKERS, translate
from pixy.kafka.group_offsets import GroupOffsets
from pixy.kafka.settings import Settings, group_id
from pixy.wire.types import TopicPartition

T = TypeVar("T")

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""Kafka's zero UUID, in base64."""
_ASK_AGAIN = 0.05
_NOT_YET = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PART",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
        "LEADER_NOT_AVAILABLE",
        "_NOENT",
        "NOT_LEADER_FOR_PARTITION",
    }
)
"""Errors of brokers that do not know a new topic yet."""


class ClusterView:
    """A cluster's metadata and offsets. Every method raises KafkaError.

    Args:
        settings: see :func:`pixy.kafka.settings.admin`.
        timeout: seconds that a request may take.
    """

    def __init__(self, settings: Settings, timeout: float = 30.0) -> None:
        self._settings = settings
        self._client = AdminClient(settings)
        self._timeout = timeout

    def _metadata(self) -> Any:
        try:
            return self._client.list_topics(timeout=self._timeout)
        except KafkaException as error:
            found = translate(error)
            if found.name in ("_TIMED_OUT", "_TRANSPORT"):
                brokers = self._settings["bootstrap.servers"]
                found = type(found)(
                    f"{OUT_OF_BROKERS}; tried {brokers}", found.code, found.name, retriable=True
                )
            raise found from error

    def cluster_id(self) -> str:
        """Kafka's id of the cluster; empty if it has none."""
        return str(self._metadata().cluster_id or "")

    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {
            name: len(topic.partitions)
            for name, topic in self._metadata().topics.items()
            if topic.error is None
        }

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The topics' UUIDs; empty where the broker has none. Topics that do not exist are left out."""
        futures = self._client.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
        found: dict[str, str] = {}
        for name, future in futures.items():
            try:
                id_ = str(self._wait(future).topic_id)
            except UnknownTopic:
                continue
            # confluent-kafka uses standard base64, Kafka the URL-safe alphabet.
            found[name] = "" if id_ == NO_TOPIC_ID else id_.replace("+", "-").replace("/", "_")
        return found

    def topic_settings(self, topic: str) -> dict[str, str]:
        """All settings of a topic, including defaults."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        [future] = self._client.describe_configs([resource], request_timeout=self._timeout).values()
        return {name: entry.value or "" for name, entry in self._wait(future).items()}

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with the broker's default replication, and wait until all partitions have a leader.

        Args:
            topic: its name.
            partitions: how many.
            config: its settings.
        """
        new = NewTopic(topic, partitions, config=dict(config))
        [future] = self._client.create_topics([new], request_timeout=self._timeout).values()
        self._wait(future)
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                self.bounds([(topic, number) for number in range(partitions)])
                return
            except KafkaError as error:
                if time.monotonic() > deadline or not (error.retriable or error.name in _NOT_YET):
                    raise
            time.sleep(_ASK_AGAIN)

    def bounds(
        self, partitions: Sequence[TopicPartition], *, committed: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The oldest offset of each partition and the offset of the next record to be written.

        Args:
            partitions: which.
            committed: end before the first open transaction.
        """
        begin = self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()), committed=committed)
        end = self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), committed=committed)
        return {tp: (begin[tp], end[tp]) for tp in partitions}

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The first offset at or after a time in each partition; -1 if there is none.

        Args:
            partitions: which.
            timestamp: milliseconds since 1970.
        """
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(timestamp)))

    def _offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._client.list_offsets(
            {LibraryPartition(*tp): spec for tp, spec in wanted.items()},
            isolation_level=level,
            request_timeout=self._timeout,
        )
        return {
            (part.topic, part.partition): int(self._wait(future).offset) for part, future in futures.items()
        }

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """All settings in force for topics, including the broker's."""
        futures = self._client.describe_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics],
            request_timeout=self._timeout,
        )
        return {
            resource.name: {
                entry.name: "" if entry.value is None else entry.value
                for entry in self._wait(future).values()
            }
            for resource, future in futures.items()
        }

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """A group's committed offsets and metadata; partitions without a commit are left out.

        Args:
            group: its id.
            partitions: which.
        """
        with closing(GroupOffsets(self._settings, group_id(group))) as offsets:
            found = offsets.committed(partitions, patience=self._timeout)
        return {tp: (each.offset, each.metadata) for tp, each in found.items() if each.offset is not None}

    def commit(self, group: str, commits: Sequence[Commit]) -> None:
        """Commit for a group that has no members.

        Args:
            group: its id.
            commits: what to commit.
        """
        with closing(GroupOffsets(self._settings, group_id(group))) as offsets:
            errors = offsets.commit(commits, patience=self._timeout)
        for error in errors.values():
            raise error

    def _wait(self, future: Future[T]) -> T:
        try:
            return future.result(self._timeout + 5.0)
        except KafkaException as error:
            raise translate(error) from error
