"""Bulk transfer for batch programs: write many records to a topic in order, or read a range of a partition.

It blocks, for programs without an event loop; the daemon's producer is :mod:`pixy.kafka.producer`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError as LibraryError,
    KafkaException,
    Producer,
    TopicPartition as LibraryPartition,
)

from pixy.errors import KafkaError
from pixy.kafka.errors import translate
from pixy.kafka.record_headers import UNREADABLE, HeaderReader, headers_of
from pixy.kafka.settings import Settings
from pixy.wire.types import RecordHeaders

ANY = -1
"""In place of a partition: librdkafka's partitioner chooses one."""

MAX_IN_FLIGHT = 50_000
MAX_IN_FLIGHT_BYTES = 128 << 20
"""The bounds of librdkafka's queue: records that may be in the log without being confirmed."""
_BATCH_BYTES = 1 << 20
_LARGEST_MESSAGE = 1_000_000_000  # librdkafka's own limit; the broker enforces the real one
_POLL_EVERY = 1000
_NOT_WRITTEN = KafkaError(
    "kafka: a record was acknowledged without an offset, so it may not be in the log",
    -1,
    "UNKNOWN",
    retriable=True,
)
_BATCH = 500
_WAIT = 0.05


Outgoing = tuple[int, int, bytes | None, bytes | None, RecordHeaders | None]
"""Token, timestamp in milliseconds since 1970, key, value, headers. A plain tuple, because creating an object
for each of a million records costs more than sending it."""

Landed = Callable[[int, list[int], list[int]], None]
"""Called with a partition, the tokens of the records that landed there, and their offsets."""


def bulk_settings(settings: Settings, largest: int | None = None) -> Settings:
    """Change settings of :func:`pixy.kafka.settings.producer` for throughput and order.

    Args:
        settings: of the cluster's producer.
        largest: bytes of the largest batch that the topic takes, its ``max.message.bytes``; None: not known.
    """
    return {
        **settings,
        "acks": -1,
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.size": _BATCH_BYTES if largest is None else max(1, min(_BATCH_BYTES, largest)),
        "message.max.bytes": _LARGEST_MESSAGE,
        "message.timeout.ms": 300_000,
        "queue.buffering.max.messages": MAX_IN_FLIGHT,
        "queue.buffering.max.kbytes": MAX_IN_FLIGHT_BYTES // 1024,
        "sticky.partitioning.linger.ms": 10,
    }


class BulkProducer:
    """An idempotent producer: the records of a partition land once and in the order of ``send``.

    The first record of a partition goes alone, and again until it has an offset. Before that the broker does not know
    the producer, and a request that overtakes another one makes librdkafka report records as written that are not
    (see :mod:`pixy.kafka.partition_gates`). Where the partitioner chooses, such a report is an error.

    Args:
        settings: see :func:`bulk_settings`.
        landed: called in ``send``, ``poll`` and ``flush`` with the acknowledged records, for each partition
            in the order of ``send``.
    """

    def __init__(self, settings: Settings, landed: Landed) -> None:
        self._producer = Producer(settings)
        self._known: set[str] = set()
        self._landed = landed
        # Reports of a partition come in the order of its records, so a token need not travel along.
        self._tokens: dict[int, deque[int]] = {}
        self._reports: dict[int, list[int]] = {}
        self._callbacks: dict[int, Callable[[Any, Any], None]] = {}
        self._anywhere: list[tuple[int, int, int]] = []
        self._error: KafkaError | None = None
        self._proved: set[tuple[str, int]] = set()

    def send(self, topic: str, partition: int, records: Sequence[Outgoing]) -> None:
        """Hand records to librdkafka, waiting while its queue is full.

        Args:
            topic: of all records.
            partition: of all records; :data:`ANY` lets the partitioner choose.
            records: what to send.

        Raises:
            KafkaError: one of these or of earlier records was refused; nothing is sent after it.
        """
        self._know(topic)
        if partition != ANY and (topic, partition) not in self._proved and records:
            self._prove(topic, partition, records[0])
            records = records[1:]
        for at in range(0, len(records), _BATCH):
            self._produce(topic, partition, records[at : at + _BATCH])
            self.poll()

    def _know(self, topic: str) -> None:
        """Fetch metadata: without it a record with a partition waits, or is refused if the topic is new."""
        if topic in self._known:
            return
        try:
            found = self._producer.list_topics(topic, timeout=60.0).topics[topic]
        except KafkaException as error:
            raise translate(error) from error
        if found.error is not None:
            raise translate(found.error)
        self._known.add(topic)

    def _prove(self, topic: str, partition: int, record: Outgoing) -> None:
        """Send a partition's first record, and wait for its offset."""
        token, timestamp, key, value, headers = record
        reported = False
        offset: int | None = None
        reported = False

        def report(error: Any, message: Any) -> None:
            nonlocal reported, offset
            reported, offset = True, message.offset()
            if error is not None:
                self._error = self._error or translate(error)

        while offset is None:
            reported = False
            try:
                self._producer.produce(
                    topic, value, key, partition, report, None, timestamp, list(headers or ())
                )
            except BufferError:
                reported = True  # to be tried again, once there is room
                self._producer.poll(_WAIT)
            except (KafkaException, TypeError, ValueError) as error:
                self._error = translate(error)
            while not (reported or self._error):
                self._producer.poll(_WAIT)
            self._check()
        self._proved.add((topic, partition))
        self._landed(partition, [token], [offset])

    def _produce(self, topic: str, partition: int, records: Sequence[Outgoing]) -> None:
        # One call for each record: produce_batch is faster, but takes neither timestamps nor headers.
        produce = self._producer.produce
        report = None if partition == ANY else self._callback(partition)
        for token, timestamp, key, value, headers in records:
            done = report or partial(self._report_anywhere, token)
            while True:
                try:
                    if headers:
                        produce(topic, value, key, partition, done, None, timestamp, list(headers))
                    else:
                        produce(topic, value, key, partition, done, None, timestamp)
                    break
                except BufferError:
                    self._producer.poll(_WAIT)
                    self._check()
                except (KafkaException, TypeError, ValueError) as error:
                    self._error = translate(error)
                    raise self._error from error
        if report is not None:
            self._tokens[partition].extend([record[0] for record in records])

    def _callback(self, partition: int) -> Callable[[Any, Any], None]:
        found = self._callbacks.get(partition)
        if found is None:
            self._tokens[partition] = deque()
            add = self._reports.setdefault(partition, []).append

            def found(error: Any, message: Any) -> None:
                if error is None and (offset := message.offset()) is not None:
                    add(offset)
                else:
                    self._refused(error)

            self._callbacks[partition] = found
        return found

    def _report_anywhere(self, token: int, error: Any, message: Any) -> None:
        if error is None and (offset := message.offset()) is not None:
            self._anywhere.append((message.partition(), token, offset))
        else:
            self._refused(error)

    def _refused(self, error: Any) -> None:
        if self._error is None:
            self._error = _NOT_WRITTEN if error is None else translate(error)

    def poll(self) -> None:
        """Process the delivery reports that are ready. Raises KafkaError if a record was refused."""
        self._producer.poll(0)
        self._hand_over()
        self._check()

    def flush(self, timeout: float = 300.0) -> None:
        """Wait until all records have landed.

        Raises:
            KafkaError: they have not landed within ``timeout`` seconds, or one was refused.
        """
        deadline = time.monotonic() + timeout
        while True:
            left = self._producer.flush(0.5)
            self._hand_over()
            self._check()
            if not left:
                return
            if time.monotonic() > deadline:
                raise KafkaError(
                    f"kafka: {left} records were not acknowledged within {timeout:g} s",
                    -192,
                    "_MSG_TIMED_OUT",
                    retriable=True,
                )

    def _hand_over(self) -> None:
        for partition, offsets in self._reports.items():
            if offsets:
                take = self._tokens[partition].popleft
                self._landed(partition, [take() for _ in offsets], offsets[:])
                offsets.clear()  # cleared in place, because the callback appends to this list
        anywhere, self._anywhere = self._anywhere, []
        for partition, token, offset in anywhere:
            self._landed(partition, [token], [offset])

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


@dataclass(frozen=True, slots=True)
class Incoming:
    """A record read from a partition; ``timestamp``, in milliseconds since 1970, is -1 if it has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: RecordHeaders | None


def read_range(
    settings: Settings, topic: str, partition: int, start: int, end: int, timeout: float = 60.0
) -> Iterator[Incoming]:
    """Read the records of a partition in ``[start, end)``, as far as they exist.

    Args:
        settings: see :func:`pixy.kafka.settings.common`.
        topic: of the partition.
        partition: its number.
        start: the first offset.
        end: the offset after the last.
        timeout: seconds without progress after which it gives up.

    Raises:
        KafkaError: Kafka refused, or there was no progress in time.
    """
    if start >= end:
        return
    client = Consumer(
        {
            **settings,
            "group.id": "kafka-pixy-reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.queue.backoff.ms": 10,
        }
    )
    try:
        client.assign([LibraryPartition(topic, partition, start)])
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
                yield _incoming(message, settings)
        raise KafkaError(
            f"kafka: {topic}/{partition} could not be read up to offset {end}",
            -185,
            "_TIMED_OUT",
            retriable=True,
        )
    except KafkaException as error:
        raise translate(error) from error
    finally:
        client.close()


def _incoming(message: Any, settings: Settings) -> Incoming:
    offset, headers = message.offset(), headers_of(message)
    if headers is UNREADABLE:
        found = HeaderReader(settings).read(message.topic(), message.partition(), (offset,))
        headers = found.get(offset, ())
    kind, timestamp = message.timestamp()
    return Incoming(offset, timestamp if kind else -1, message.key(), message.value(), headers or None)
