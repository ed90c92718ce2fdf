"""Records in bulk for batch programs: many to a topic in order, or a range of a partition back.

Blocking, for programs without an event loop; the daemon's producer is :mod:`pixy.kafka.producer`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    KafkaError as LibraryError,
    KafkaException,
    Producer,
    TopicPartition,
)

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.kafka.settings import Settings

Headers = Sequence[tuple[str, bytes | None]]

ANY = -1
"""A partition that librdkafka's partitioner chooses."""

MAX_IN_FLIGHT = 50_000
MAX_IN_FLIGHT_BYTES = 128 << 20
_LARGEST_MESSAGE = 1_000_000_000  # librdkafka's bound; the broker knows the real one
_POLL_EVERY = 1000
_BATCH = 500


class Outgoing(NamedTuple):
    """A record to write; ``token`` comes back with the offset it was given."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None
    timestamp: int
    token: Any


def bulk_settings(settings: Settings) -> Settings:
    """Settings of :func:`pixy.kafka.settings.producer` for throughput and order."""
    return {
        **settings,
        "acks": -1,
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.size": 1 << 20,
        "message.max.bytes": _LARGEST_MESSAGE,
        "message.timeout.ms": 300_000,
        "queue.buffering.max.messages": 2 * MAX_IN_FLIGHT,
        "queue.buffering.max.kbytes": 2 * MAX_IN_FLIGHT_BYTES // 1024,
        "sticky.partitioning.linger.ms": 10,
    }


class BulkProducer:
    """An idempotent producer: the records of a partition land once and in the order of ``send``.

    Args:
        settings: see :func:`bulk_settings`.
        landed: called with (token, partition, offset) in ``send``, ``poll`` and ``flush``, for each
            partition in the order of ``send``.
    """

    def __init__(self, settings: Settings, landed: Callable[[Any, int, int], None]) -> None:
        self._producer = Producer(settings)
        self._landed = landed
        self._waiting: dict[int, deque[tuple[Any, int]]] = {}
        self._in_flight = 0
        self._bytes = 0
        self._error: KafkaError | None = None

    def send(self, topic: str, records: Sequence[Outgoing]) -> None:
        """Hand records over, waiting while too many are under way. Raises KafkaError as soon as one
        was refused; nothing is sent after that."""
        for at in range(0, len(records), _BATCH):
            some = records[at : at + _BATCH]
            self._make_room()
            # produce_batch: 1.3 microseconds a record against 2.2; it takes no headers, and it is
            # in order only while the queue does not fill, which the room sees to.
            if any(record.headers or record.partition == ANY for record in some):
                self._one_by_one(topic, some)
            else:
                self._together(topic, some)
            self._producer.poll(0)
            self._check()

    def _make_room(self) -> None:
        while self._in_flight >= MAX_IN_FLIGHT or self._bytes >= MAX_IN_FLIGHT_BYTES:
            self._producer.poll(0.05)
            self._check()

    def _track(self, record: Outgoing) -> int:
        size = len(record.key or b"") + len(record.value or b"")
        self._in_flight += 1
        self._bytes += size
        return size

    def _together(self, topic: str, records: Sequence[Outgoing]) -> None:
        messages: list[dict[str, Any]] = []
        waiting = self._waiting
        for record in records:
            queue = waiting.get(record.partition)
            if queue is None:
                queue = waiting[record.partition] = deque()
            queue.append((record.token, self._track(record)))
            messages.append({
                "value": record.value, "key": record.key, "partition": record.partition,
                "timestamp": record.timestamp,
            })
        if self._producer.produce_batch(topic, messages, on_delivery=self._report) != len(messages):
            refused = next(message["_error"] for message in messages if "_error" in message)
            raise translate(refused)

    def _one_by_one(self, topic: str, records: Sequence[Outgoing]) -> None:
        for record in records:
            size = self._track(record)
            report: Callable[[Any, Any], None] = self._report
            if record.partition == ANY:
                report = partial(self._report_one, record.token, size)
            else:
                self._waiting.setdefault(record.partition, deque()).append((record.token, size))
            try:
                self._producer.produce(
                    topic, record.value, record.key, record.partition, on_delivery=report,
                    timestamp=record.timestamp, headers=list(record.headers or ()) or None,
                )
            except (KafkaException, BufferError, TypeError, ValueError) as error:
                raise translate(error) from error

    def poll(self) -> None:
        """Take delivery reports that are there."""
        self._producer.poll(0)
        self._check()

    def flush(self, timeout: float = 300.0) -> None:
        """Wait until all have landed; raises KafkaError if they have not within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while self._in_flight:
            self._producer.flush(0.5)
            self._check()
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"kafka: {self._in_flight} records were not acknowledged within {timeout:g} s", -192,
                    "_MSG_TIMED_OUT", retriable=True,
                )

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _report(self, error: Any, message: Any) -> None:
        partition = message.partition()
        token, size = self._waiting[partition].popleft()
        self._report_one(token, size, error, message)

    def _report_one(self, token: Any, size: int, error: Any, message: Any) -> None:
        self._in_flight -= 1
        self._bytes -= size
        if error is not None:
            self._error = self._error or translate(error)
        elif self._error is None:
            self._landed(token, message.partition(), message.offset())


@dataclass(frozen=True, slots=True)
class Incoming:
    """A record of a partition; ``timestamp`` is -1 if it has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


def read_range(
    settings: Settings, topic: str, partition: int, start: int, end: int, timeout: float = 60.0
) -> Iterator[Incoming]:
    """The records of ``[start, end)`` of a partition, as far as there are any.

    Args:
        settings: see :func:`pixy.kafka.settings.common`.
        timeout: seconds without progress after which it gives up with KafkaError.
    """
    if start >= end:
        return
    client = Consumer({
        **settings, "group.id": "kafka-pixy-reader", "enable.auto.commit": False,
        "enable.partition.eof": True, "auto.offset.reset": "error",
        "isolation.level": "read_committed", "fetch.queue.backoff.ms": 10,
    })
    try:
        client.assign([TopicPartition(topic, partition, start)])
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            messages: list[Any] = client.consume(_POLL_EVERY, 0.2)
            for message in messages:
                error = message.error()
                if error is not None:
                    if error.code() == LibraryError._PARTITION_EOF:
                        return
                    if not error.retriable() and error.code() != LibraryError._TRANSPORT:
                        raise translate(error)
                    continue
                if message.offset() >= end:
                    return
                deadline = time.monotonic() + timeout
                kind, timestamp = message.timestamp()
                yield Incoming(
                    message.offset(), timestamp if kind else -1, message.key(), message.value(),
                    message.headers(),
                )
        raise KafkaError(
            f"kafka: {topic}/{partition} could not be read up to offset {end}", -185, "_TIMED_OUT",
            retriable=True,
        )
    except KafkaException as error:
        raise translate(error) from error
    finally:
        client.close()
