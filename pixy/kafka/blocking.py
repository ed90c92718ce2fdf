"""Metadata and offsets of a cluster, for batch programs without an event loop. Every call blocks."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from typing import Final, TypeVar

from confluent_kafka import KafkaError as LibraryError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pixy.errors import KafkaError, UnknownTopic
from pixy.kafka.brokers import Brokers
from pixy.kafka.errors import OUT_OF_BROKERS, TRANSIENT_CODES, translate
from pixy.kafka.group_offsets import Commit, GroupOffsets
from pixy.kafka.partition_logs import PartitionLogs
from pixy.kafka.settings import Settings, group_id
from pixy.kafka.topic_configs import Configs, topic_configs
from pixy.kafka.topics import Topics
from pixy.wire.schema import NULL_UUID
from pixy.wire.types import TopicPartition

T = TypeVar("T")

_ASK_AGAIN: Final = 0.05
_NOT_YET: Final = TRANSIENT_CODES | {LibraryError.UNKNOWN_TOPIC_OR_PART}
"""Errors of brokers that do not know a new topic yet."""


class ClusterView:
    """A cluster's metadata and offsets. Every method raises KafkaError.

    Args:
        settings: see :func:`pixy.kafka.settings.admin`.
        timeout: seconds that a request may take; after an error that passes it is repeated for as long.
    """

    def __init__(self, settings: Settings, timeout: float = 30.0) -> None:
        self._settings = settings
        self._timeout = timeout
        self._brokers = Brokers(settings, timeout, timeout)
        self._logs = PartitionLogs(self._brokers)

    def _describe(self, names: Collection[str] | None) -> Topics:
        try:
            return self._insist(lambda: self._brokers.topics(names))
        except KafkaError as error:
            if error.code != LibraryError._TRANSPORT:
                raise
            text = f"{OUT_OF_BROKERS}; tried {self._settings['bootstrap.servers']}"
            raise KafkaError(text, error.code, error.name, retriable=True) from error

    def _insist(self, call: Callable[[], T], passing: Collection[int] = TRANSIENT_CODES) -> T:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return call()
            except KafkaError as error:
                if error.code not in passing or time.monotonic() >= deadline:
                    raise
            time.sleep(_ASK_AGAIN)

    def cluster_id(self) -> str:
        """Return Kafka's id of the cluster; empty if it has none."""
        return self._describe([]).cluster_id

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        return self._describe(None).counts

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the topics' UUIDs; empty where the broker has none. Topics that do not exist are left out."""
        found = self._describe(list(topics))
        for error in found.errors.values():
            if not isinstance(error, UnknownTopic):
                raise error
        return {
            name: "" if id_ == NULL_UUID else base64.urlsafe_b64encode(id_.bytes).decode().rstrip("=")
            for name, id_ in found.ids.items()
        }

    def topic_settings(self, topic: str) -> dict[str, str]:
        """Return all settings of a topic, including defaults."""
        return self.configs([topic])[topic]

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with the broker's default replication, and wait until all partitions have a leader.

        Args:
            topic: its name.
            partitions: how many.
            config: its settings.
        """
        new = NewTopic(topic, partitions, config=dict(config))
        client = AdminClient(self._settings)
        try:
            client.create_topics([new], request_timeout=self._timeout)[topic].result(self._timeout + 5.0)
        except KafkaException as error:
            raise translate(error) from error
        wanted = [(topic, number) for number in range(partitions)]
        self._insist(lambda: self._logs.logs(wanted), _NOT_YET)

    def bounds(
        self, partitions: Sequence[TopicPartition], *, committed: bool = True
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return the oldest offset of each partition and the offset of the next record to be written.

        Args:
            partitions: which.
            committed: end before the first open transaction.
        """
        found = self._insist(lambda: self._logs.logs(partitions))
        return {tp: (log.oldest, log.stable if committed else log.end) for tp, log in found.items()}

    def offsets_at(self, partitions: Sequence[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time in each partition; -1 if there is none.

        Args:
            partitions: which.
            timestamp: milliseconds since 1970.
        """
        return self._insist(lambda: self._logs.offsets(dict.fromkeys(partitions, timestamp)))

    def configs(self, topics: Iterable[str]) -> Configs:
        """Return all settings in force for topics, including the broker's."""
        wanted = list(topics)
        return self._insist(
            lambda: self._brokers.ask_any(lambda connection: topic_configs(connection, wanted, own=False))
        )

    def largest_batch(self, topic: str) -> int | None:
        """Return the bytes of the largest batch that a topic takes; None if Kafka does not tell, because a right is missing, for example."""
        try:
            found = self.configs([topic]).get(topic, {}).get("max.message.bytes")
        except KafkaError:
            return None
        return int(found) if found else None

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, str]]:
        """Return a group's committed offsets and metadata; partitions without a commit are left out.

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
