"""Reads a partition from an offset, outside any group. Synchronous, for one thread at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError as LibraryError,
    KafkaException,
    TopicPartition as LibraryPartition,
)

from pixy.errors import KafkaError, OffsetOutOfRange, UnknownPartition
from pixy.kafka.errors import translate, unknown_topic
from pixy.kafka.settings import Settings

_SLICE = 0.1
_METADATA_TIMEOUT = 10.0
_FIRST_ANSWER = 10.0
"""Seconds to wait beyond a read's timeout for the broker's first answer."""
_KNOWN_FOR = 10.0
"""Seconds for which a topic's number of partitions need not be looked up again."""
_MAX_KNOWN = 10_000
_CHUNK = 500
_IGNORED = frozenset(
    {
        LibraryError._PARTITION_EOF,
        LibraryError._TRANSPORT,
        LibraryError._ALL_BROKERS_DOWN,
        LibraryError._MAX_POLL_EXCEEDED,
    }
)
"""Errors after which a read continues while there is time."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a partition.

    Attributes:
        offset: the first offset; None for the one that ``timestamp`` finds.
        timestamp: milliseconds since 1970; begin at the first record that is not older.
        most: the largest number of records to return.
        max_bytes: the largest sum of keys and values to return; the first record is returned whatever its
            size.
        timeout: seconds to wait for the first record, once the broker has answered that there is none.
    """

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None
    most: int
    max_bytes: int
    timeout: float


class FetchClient:
    """Reads records by offset. A read that begins where the last one ended continues with the records that
    librdkafka has fetched ahead.

    Args:
        settings: see :func:`pixy.kafka.settings.fetcher`.
        known: by topic, the number of partitions and until when (``time.monotonic``) to believe it. All
            clients of a cluster share it.
    """

    def __init__(self, settings: Settings, known: dict[str, tuple[int, float]]) -> None:
        self._consumer = Consumer(settings)
        self._known = known
        self._held: list[Any] = []
        self._at_end = False
        self.position: tuple[str, int, int] | None = None
        """Topic, partition and offset at which the next read finds records fetched ahead."""

    def read(self, what: Read, given_up: Callable[[], bool]) -> list[Any]:
        """Read messages.

        Args:
            what: the read.
            given_up: called some ten times a second; True ends the read.

        Returns:
            The messages; none if none came in time.

        Raises:
            UnknownTopic: there is no such topic.
            UnknownPartition: the topic has no such partition.
            OffsetOutOfRange: the partition does not hold the offset.
            KafkaError: any other error of Kafka.
        """
        deadline = time.monotonic() + what.timeout
        self._at_end = False
        offset = what.offset
        if offset is None or (what.topic, what.partition, offset) != self.position:
            self._check(what.topic, what.partition)
            if offset is None:
                offset = self._at_time(what)
            self.release()
            self._consumer.assign([LibraryPartition(what.topic, what.partition, offset)])
            self.position = (what.topic, what.partition, offset)
        try:
            return self._collect(what, offset, deadline, given_up)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Stop fetching ahead."""
        self._held = []
        if self.position is not None:
            self.position = None
            self._consumer.unassign()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def _collect(self, what: Read, offset: int, deadline: float, given_up: Callable[[], bool]) -> list[Any]:
        found: list[Any] = []
        size = 0
        ready, self._held = self._held, []
        while True:
            for at, message in enumerate(ready):
                if message.error() is not None:
                    self._failed(what, offset, message)
                    continue
                size += len(message) + len(message.key() or b"")
                if found and (size > what.max_bytes or len(found) >= what.most):
                    self._held = ready[at:]
                    break
                found.append(message)
            if self._held or len(found) >= what.most:
                break
            if found:
                # Take the messages that are ready, without waiting: consume(n, timeout) waits for n messages.
                ready = self._consumer.consume(min(_CHUNK, what.most - len(found)), 0)
                if not ready:
                    break
            else:
                ready = self._wait(deadline, given_up)
                if not ready:
                    break
        if self._held or len(found) >= what.most:
            self.position = (what.topic, what.partition, found[-1].offset() + 1)
        else:
            # At the end of the partition, fetching ahead would only keep the connection busy.
            self.release()
        return found

    def _wait(self, deadline: float, given_up: Callable[[], bool]) -> list[Any]:
        """Wait for the next message or event.

        Until the broker has answered once, connecting may take longer than the read's timeout, up to
        ``_FIRST_ANSWER`` seconds: only the broker's answer proves that there is no record.

        Raises:
            KafkaError: the broker did not answer at all.
        """
        while not given_up():
            left = deadline - time.monotonic() + (0.0 if self._at_end else _FIRST_ANSWER)
            message = self._consumer.poll(max(0.0, min(_SLICE, left)))
            if message is not None:
                return [message]
            if left <= 0:
                if not self._at_end:
                    raise KafkaError("kafka: no answer in time", -185, "_TIMED_OUT", retriable=True)
                break
        return []

    def _failed(self, what: Read, offset: int, event: Any) -> None:
        error = event.error()
        code = error.code()
        of = event.topic(), event.partition()
        if code == LibraryError._PARTITION_EOF:
            self._at_end = True
        if code in _IGNORED or (of[0] is not None and of != (what.topic, what.partition)):
            return  # an event of another partition belongs to an earlier read
        if code in (LibraryError._AUTO_OFFSET_RESET, LibraryError.OFFSET_OUT_OF_RANGE):
            raise OffsetOutOfRange(offset, *self._bounds(what))
        raise translate(error)

    # -- metadata and offsets ---------------------------------------------------------------------

    def _check(self, topic: str, partition: int) -> None:
        now = time.monotonic()
        count, until = self._known.get(topic, (0, 0.0))
        if partition < count and now < until:
            return
        self._known.pop(topic, None)
        try:
            found = self._consumer.list_topics(topic, timeout=_METADATA_TIMEOUT).topics.get(topic)
        except KafkaException as error:
            raise translate(error) from error
        missing = unknown_topic()
        if found is None:
            raise missing
        if found.error is not None:
            raise translate(found.error)
        if partition not in found.partitions:
            raise UnknownPartition(str(missing), missing.code, missing.name)
        if len(self._known) >= _MAX_KNOWN:
            self._known.clear()
        self._known[topic] = (len(found.partitions), now + _KNOWN_FOR)

    def _at_time(self, what: Read) -> int:
        assert what.timestamp is not None
        try:
            [found] = self._consumer.offsets_for_times(
                [LibraryPartition(what.topic, what.partition, what.timestamp)],
                timeout=_METADATA_TIMEOUT,
            )
        except KafkaException as error:
            raise translate(error) from error
        if found.error is not None:
            raise translate(found.error)
        # Negative: all records are older; the next one to be written will not be.
        return found.offset if found.offset >= 0 else self._bounds(what)[1]

    def _bounds(self, what: Read) -> tuple[int, int]:
        try:
            begin, end = self._consumer.get_watermark_offsets(
                LibraryPartition(what.topic, what.partition), timeout=_METADATA_TIMEOUT
            )
        except KafkaException as error:
            raise translate(error) from error
        return begin, end
