"""Decode Produce and Fetch without their records, which are skipped on the stream and never copied.

The decoders know the same versions as :mod:`pixy.wire.messages`; they read fields in the order of Kafka's schemas, and
a test compares them with the full decoders. Topics are names, and UUIDs from version 13 on.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from pixy.tap.primitives import Decoder, LimitReached, length, skip, string, tags, varint
from pixy.wire import batch_header

Topic = str | uuid.UUID

_FLEXIBLE_PRODUCE = 9
_FLEXIBLE_FETCH = 12
_TOPIC_IDS = 13
_MAGIC_AT = 16
_PARTITION = struct.Struct(">ihq")
"""Partition, error code, high watermark."""
_BEFORE_LENGTH_ENDS = 12  # bytes of a batch that its length does not count
ENDPOINTS_HIDDEN = 0x7F
"""An unknown tag: clients skip the broker addresses that the tap moves under it."""


class FirstBatch(NamedTuple):
    """Header fields of the first batch of a partition in a ProduceRequest; ``size`` is in bytes."""

    topic: Topic
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    last_offset_delta: int
    size: int
    alone: bool = True
    """Whether the partition's record set is this batch alone."""


class ProduceSummary(NamedTuple):
    """A ProduceRequest without its records: ``batches`` has batches of magic 2 only.

    ``complete`` is False if the request has more partitions than the tap reads.
    """

    acks: int
    topics: tuple[Topic, ...]
    batches: tuple[FirstBatch, ...]
    complete: bool
    sizes: tuple[tuple[Topic, int, int], ...] = ()
    """Topic, partition, bytes of its record set, of any magic."""


class ProduceResponseSummary(NamedTuple):
    """A ProduceResponse: the offset of each partition's first record, or its error."""

    partitions: tuple[tuple[Topic, int, int, int], ...]
    """Topic, partition, error code, base offset."""
    throttle: int
    """Milliseconds for which the broker held the response back or wants the client to wait."""
    complete: bool


class FetchRequestSummary(NamedTuple):
    """A FetchRequest: the partitions that it adds to its session (or that replace the session) and removes from it."""

    session_id: int
    epoch: int
    wanted: tuple[tuple[Topic, int, int], ...]
    """Topic, partition, offset."""
    forgotten: tuple[tuple[Topic, int], ...]
    replica: bool
    complete: bool
    max_wait: int = 0
    """Milliseconds that the broker may wait for records."""


class FetchResponseSummary(NamedTuple):
    """A FetchResponse without its records; ``ends`` leaves out partitions with an error."""

    session_id: int
    error: int
    ends: tuple[tuple[Topic, int, int], ...]
    """Topic, partition, high watermark."""
    complete: bool
    throttle: int = 0
    """Milliseconds for which the broker held the response back or wants the client to wait."""
    errors: tuple[tuple[Topic, int, int], ...] = ()
    """Topic, partition, error code."""
    sizes: tuple[tuple[Topic, int], ...] = ()
    """Topic, bytes of records; topics without any are left out."""


def produce_request(version: int, limit: int, acks_seen: list[int]) -> Decoder[ProduceSummary]:
    """Read the body of a ProduceRequest.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete.
        acks_seen: receives the acks as soon as they are read, so that the caller knows them of a bad request too.
    """
    compact = version >= _FLEXIBLE_PRODUCE
    if version >= 3:
        yield from skip((yield from length(compact, 2)))
    acks = int.from_bytes((yield 2), "big", signed=True)
    acks_seen.append(acks)
    yield -4
    topics: list[Topic] = []
    batches: list[FirstBatch] = []
    sizes: list[tuple[Topic, int, int]] = []
    complete = True
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            topics.append(topic)
            for _ in range((yield from length(compact))):
                if len(sizes) >= limit or len(topics) > limit:
                    raise LimitReached
                partition, batch, size = yield from _produce_partition(topic, compact)
                sizes.append((topic, partition, max(size, 0)))
                if batch is not None:
                    batches.append(batch)
                yield from tags(compact)
            yield from tags(compact)
    except LimitReached:
        complete = False
    return ProduceSummary(acks, tuple(topics), tuple(batches), complete, tuple(sizes))


def _produce_partition(topic: Topic, compact: bool) -> Decoder[tuple[int, FirstBatch | None, int]]:
    partition = int.from_bytes((yield 4), "big", signed=True)
    size = yield from length(compact)
    if size < batch_header.SIZE:
        yield from skip(size)
        return partition, None, size
    data = yield batch_header.SIZE
    yield from skip(size - batch_header.SIZE)
    if data[_MAGIC_AT] != 2:
        return partition, None, size
    fields = batch_header.LAYOUT.unpack(data)
    alone = fields[1] + _BEFORE_LENGTH_ENDS == size
    return (
        partition,
        FirstBatch(topic, partition, fields[9], fields[10], fields[11], fields[6], size, alone),
        size,
    )


def fetch_request(version: int, limit: int) -> Decoder[FetchRequestSummary]:
    """Read the body of a FetchRequest.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete.
    """
    compact = version >= _FLEXIBLE_FETCH
    replica = version < 15 and int.from_bytes((yield 4), "big", signed=True) >= 0
    max_wait = int.from_bytes((yield 4), "big", signed=True)
    yield -(4 + (4 if version >= 3 else 0) + (1 if version >= 4 else 0))
    session, epoch = struct.unpack(">ii", (yield 8)) if version >= 7 else (0, -1)
    wanted: list[tuple[Topic, int, int]] = []
    forgotten: list[tuple[Topic, int]] = []
    complete = True
    before = 4 + (4 if version >= 9 else 0)
    after = (4 if version >= 12 else 0) + (8 if version >= 5 else 0) + 4
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            for _ in range((yield from length(compact))):
                if len(wanted) >= limit:
                    raise LimitReached
                data = yield before + 8 + after
                wanted.append(
                    (topic, *struct.unpack_from(">i", data), *struct.unpack_from(">q", data, before))
                )
                yield from tags(compact)
            yield from tags(compact)
        for _ in range((yield from length(compact)) if version >= 7 else 0):
            topic = yield from _topic(version, compact)
            for _ in range((yield from length(compact))):
                if len(forgotten) >= limit:
                    raise LimitReached
                forgotten.append((topic, int.from_bytes((yield 4), "big", signed=True)))
            yield from tags(compact)
    except LimitReached:
        complete = False
    return FetchRequestSummary(session, epoch, tuple(wanted), tuple(forgotten), replica, complete, max_wait)


def fetch_response(version: int, limit: int) -> Decoder[FetchResponseSummary]:
    """Read the body of a FetchResponse up to its last tagged fields.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete and the stream is not at the end.
    """
    compact = version >= _FLEXIBLE_FETCH
    if version >= 7:
        throttle, error, session = struct.unpack(">ihi", (yield 10))
    else:
        throttle, error, session = _int32((yield 4)) if version >= 1 else 0, 0, 0
    ends: list[tuple[Topic, int, int]] = []
    errors: list[tuple[Topic, int, int]] = []
    sizes: list[tuple[Topic, int]] = []
    complete, seen = True, 0
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            taken = 0
            for _ in range((yield from length(compact))):
                seen += 1
                if seen > limit:
                    raise LimitReached
                partition, failed, end, size = yield from _fetch_partition(version, compact)
                taken += size
                if failed:
                    errors.append((topic, partition, failed))
                elif end >= 0:
                    ends.append((topic, partition, end))
            if taken:
                sizes.append((topic, taken))
            yield from tags(compact)
    except LimitReached:
        complete = False
    return FetchResponseSummary(session, error, tuple(ends), complete, throttle, tuple(errors), tuple(sizes))


def _fetch_partition(version: int, compact: bool) -> Decoder[tuple[int, int, int, int]]:
    """Read a partition; skip its records. Each read costs more than the bytes in it, so the fixed ones are read at once."""
    aborted = 0
    if version < 4:
        partition, error, end = _PARTITION.unpack((yield 14))
    else:
        offsets = 16 if version >= 5 else 8
        data = yield 14 + offsets + (1 if compact else 4)
        partition, error, end = _PARTITION.unpack_from(data)
        if not compact:
            aborted = _int32(data[14 + offsets :])
        elif data[-1] < 0x80:
            aborted = data[-1] - 1
        else:
            aborted = (data[-1] & 0x7F) + ((yield from varint()) << 7) - 1
    for _ in range(aborted):
        yield -16
        yield from tags(compact)
    if compact:  # versions 12 and later: the preferred replica, and the first byte of the length
        first = (yield 5)[4]
        size = (first if first < 0x80 else (first & 0x7F) + ((yield from varint()) << 7)) - 1
    else:
        size = _int32((yield 8 if version >= 11 else 4)[-4:])
    yield from skip(size)
    yield from tags(compact)
    return partition, error, end, max(size, 0)


def _int32(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


def produce_response(version: int, limit: int) -> Decoder[ProduceResponseSummary]:
    """Read the body of a ProduceResponse up to its last tagged fields.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete and the stream is not at the end.
    """
    compact = version >= _FLEXIBLE_PRODUCE
    after = (8 if version >= 2 else 0) + (8 if version >= 5 else 0)
    found: list[tuple[Topic, int, int, int]] = []
    for _ in range((yield from length(compact))):
        topic = yield from _topic(version, compact)
        for _ in range((yield from length(compact))):
            if len(found) >= limit:
                return ProduceResponseSummary(tuple(found), 0, False)
            partition, error, offset = struct.unpack_from(">ihq", (yield 14 + after))
            found.append((topic, partition, error, offset))
            if version >= 8:
                for _ in range((yield from length(compact))):
                    yield -4
                    yield from skip((yield from length(compact, 2)))
                    yield from tags(compact)
                yield from skip((yield from length(compact, 2)))
            yield from tags(compact)
        yield from tags(compact)
    throttle = int.from_bytes((yield 4), "big", signed=True) if version >= 1 else 0
    return ProduceResponseSummary(tuple(found), throttle, True)


def _topic(version: int, compact: bool) -> Decoder[Topic]:
    if version >= _TOPIC_IDS:
        return uuid.UUID(bytes=(yield 16))
    return (yield from string(compact))


__all__ = [
    "ENDPOINTS_HIDDEN",
    "FetchRequestSummary",
    "FetchResponseSummary",
    "FirstBatch",
    "ProduceResponseSummary",
    "ProduceSummary",
    "Topic",
    "fetch_request",
    "fetch_response",
    "produce_request",
    "produce_response",
    "varint",
]
