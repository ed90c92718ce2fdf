"""The Kafka client of a REST consumer instance: a group's member, or partitions of its own choice, with seeks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError as LibraryError, KafkaException, TopicPartition as LibraryPartition

from pixy.kafka.brokers import LIMIT, Brokers
from pixy.kafka.consumer import ConsumerClient
from pixy.kafka.errors import translate
from pixy.kafka.settings import Settings
from pixy.kafka.topics import Topics
from pixy.wire.types import TopicPartition

_RETRY = 0.01
BEGINNING, END = -2, -1
"""In place of an offset: the oldest record, and the next one to be written."""

Layout = dict[str, dict[int, bool]]
"""Of each topic that exists, its partitions, and whether they have a leader."""

_NOT_FETCHING_YET = LibraryError._STATE

_TRANSIENT = frozenset(
    {
        LibraryError._TRANSPORT,
        LibraryError._ALL_BROKERS_DOWN,
        LibraryError._PARTITION_EOF,
        LibraryError._MAX_POLL_EXCEEDED,
        LibraryError._RESOLVE,
        LibraryError._TIMED_OUT,
    }
)


def is_transient(error: Any) -> bool:
    """Return whether the client recovers from this error event without help."""
    return error.code() in _TRANSIENT


def partition_of(message: Any) -> TopicPartition:
    """Return the partition of a message."""
    return message.topic(), message.partition()


def size_of(message: Any) -> int:
    """Return the bytes of key and value."""
    # len() of a message is the length of its value.
    key = message.key()
    return len(message) if key is None else len(message) + len(key)


class InstanceConsumer(ConsumerClient):
    """Every method blocks. Call all methods from one thread.

    The library serves one call at a time per client: a call from another thread waits for the end of
    the current poll.
    """

    def __init__(self, settings: Settings, **callbacks: Any) -> None:
        super().__init__(settings, **callbacks)
        self._brokers = Brokers(settings, patience=LIMIT)

    def subscribe_or_raise(self, topics: Iterable[str]) -> None:
        """Replace the subscription. Raises PixyError."""
        try:
            self.subscribe(topics)
        except KafkaException as error:
            raise translate(error) from error

    def assign_only(self, starts: Mapping[TopicPartition, int]) -> None:
        """Fetch exactly these partitions, outside the group's assignment. Raises PixyError."""
        try:
            self._consumer.assign([LibraryPartition(*partition, at) for partition, at in starts.items()])
        except KafkaException as error:
            raise translate(error) from error

    def seek_until(self, deadline: float, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset.

        librdkafka refuses to seek in a partition before it has begun to fetch it, so a seek right
        after an assignment is repeated until it succeeds.

        Args:
            deadline: when to give up, in seconds of ``time.monotonic``.
            partition: an assigned one.
            offset: the next one to fetch.

        Raises:
            PixyError: the seek failed.
        """
        while True:
            try:
                self.seek(partition, offset)
                return
            except KafkaException as error:
                if error.args[0].code() != _NOT_FETCHING_YET or time.monotonic() > deadline:
                    raise translate(error) from error
                time.sleep(_RETRY)

    def layout(self, topics: Collection[str]) -> Layout:
        """Look up topics.

        Not by the library's ``list_topics``: after one inside a rebalance callback, confluent-kafka (2.16) has forgotten that this
        thread is in a poll, and the next callback of the same poll, be it a line of log, ends the process
        (``CallState_get: Assertion cs != NULL``).

        Args:
            topics: names.

        Raises:
            PixyError: the cluster does not answer.
        """
        found = self._brokers.topics(topics)
        return {
            name: {each.partition: each.leader >= 0 for each in partitions}
            for name, partitions in found.partitions.items()
        }

    def topic_ids(self, topics: Iterable[str], timeout: float) -> Mapping[str, uuid.UUID]:
        """Return the ids of the topics that exist. See :meth:`topics`."""
        return self.topics(topics, timeout).ids

    def topics(self, topics: Iterable[str], timeout: float) -> Topics:
        """Describe topics as the group's coordinator knows them.

        Args:
            topics: names.
            timeout: seconds to keep trying while the coordinator moves.

        Raises:
            PixyError: the coordinator could not be reached.
        """
        self._settle()
        return self._offsets.topics(topics, patience=timeout)

    def ends(
        self, partitions: Iterable[TopicPartition], timeout: float, *, oldest: bool
    ) -> dict[TopicPartition, int]:
        """Look up one end of each partition.

        Args:
            partitions: need not be assigned.
            timeout: seconds.
            oldest: True: the oldest offset; False: the next offset to be written.

        Raises:
            PixyError: the lookup failed.
        """
        return self._list_offsets(list(partitions), BEGINNING if oldest else END, timeout)
