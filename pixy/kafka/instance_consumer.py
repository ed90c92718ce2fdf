"""A consumer instance's client: group membership or partitions of its own choice, with seeks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError as LibraryError, KafkaException, TopicPartition as LibraryPartition

from pixy.kafka.consumer import ConsumerClient
from pixy.kafka.errors import translate
from pixy.wire.types import TopicPartition

_RETRY = 0.01
_NEWEST, _OLDEST = -1, -2
_NOT_FETCHING_YET = LibraryError._STATE

_PASSING = frozenset(
    {
        LibraryError._TRANSPORT,
        LibraryError._ALL_BROKERS_DOWN,
        LibraryError._PARTITION_EOF,
        LibraryError._MAX_POLL_EXCEEDED,
        LibraryError._RESOLVE,
        LibraryError._TIMED_OUT,
    }
)


def passes_by_itself(error: Any) -> bool:
    """Whether an error event is only news: the client goes on trying."""
    return error.code() in _PASSING


def place_of(message: Any) -> TopicPartition:
    """The partition of a message."""
    return message.topic(), message.partition()


def size_of(message: Any) -> int:
    """Bytes of key and value."""
    # len() of a message is its value's.
    key = message.key()
    return len(message) if key is None else len(message) + len(key)


class InstanceClient(ConsumerClient):
    """Every method blocks; call all from one thread.

    The library serves one call at a time per client: another thread's waits until a poll has ended.
    """

    def subscribe_or_raise(self, topics: Iterable[str]) -> None:
        """Replace the subscription; a name that begins with ``^`` is a pattern. Raises PixyError."""
        try:
            self.subscribe(topics)
        except KafkaException as error:
            raise translate(error) from error

    def assign_only(self, starts: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions and no others, outside the group's assignment. Raises PixyError."""
        try:
            self._consumer.assign([LibraryPartition(*partition, at) for partition, at in starts.items()])
        except KafkaException as error:
            raise translate(error) from error

    def seek_all(self, offsets: Mapping[TopicPartition, int], timeout: float) -> None:
        """Go on at other offsets. A partition that was assigned a moment ago can not be sought
        until its fetching has begun, so this tries again meanwhile. Raises PixyError.
        """
        deadline = time.monotonic() + timeout
        for partition, offset in offsets.items():
            while True:
                try:
                    self.seek(partition, offset)
                    break
                except KafkaException as error:
                    if error.args[0].code() != _NOT_FETCHING_YET or time.monotonic() > deadline:
                        raise translate(error) from error
                    time.sleep(_RETRY)

    def ends(
        self, partitions: Iterable[TopicPartition], timeout: float, *, oldest: bool
    ) -> dict[TopicPartition, int]:
        """The oldest offset of each partition, or the next to be written. Raises PixyError."""
        return self._list_offsets(list(partitions), _OLDEST if oldest else _NEWEST, timeout)
