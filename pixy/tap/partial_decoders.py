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


class ProduceSummary(NamedTuple):
    """A ProduceRequest without its records: ``batches`` has batches of magic 2 only.

    ``complete`` is False if the request has more partitions than the tap reads.
    """

    acks: int
    topics: tuple[Topic, ...]
    batches: tuple[FirstBatch, ...]
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


class FetchResponseSummary(NamedTuple):
    """A FetchResponse without its records; ``ends`` leaves out partitions with an error."""

    session_id: int
    error: int
    ends: tuple[tuple[Topic, int, int], ...]
    """Topic, partition, high watermark."""
    complete: bool


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
    complete = True
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            topics.append(topic)
            for _ in range((yield from length(compact))):
                if len(batches) >= limit or len(topics) > limit:
                    raise LimitReached
                batch = yield from _produce_partition(topic, compact)
                if batch is not None:
                    batches.append(batch)
                yield from tags(compact)
            yield from tags(compact)
    except LimitReached:
        complete = False
    return ProduceSummary(acks, tuple(topics), tuple(batches), complete)


def _produce_partition(topic: Topic, compact: bool) -> Decoder[FirstBatch | None]:
    partition = int.from_bytes((yield 4), "big", signed=True)
    size = yield from length(compact)
    if size < batch_header.SIZE:
        yield from skip(size)
        return None
    data = yield batch_header.SIZE
    yield from skip(size - batch_header.SIZE)
    if data[_MAGIC_AT] != 2:
        return None
    fields = batch_header.LAYOUT.unpack(data)
    return FirstBatch(topic, partition, fields[9], fields[10], fields[11], fields[6], size)


def fetch_request(version: int, limit: int) -> Decoder[FetchRequestSummary]:
    """Read the body of a FetchRequest.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete.
    """
    compact = version >= _FLEXIBLE_FETCH
    replica = version < 15 and int.from_bytes((yield 4), "big", signed=True) >= 0
    yield -(8 + (4 if version >= 3 else 0) + (1 if version >= 4 else 0))
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
    return FetchRequestSummary(session, epoch, tuple(wanted), tuple(forgotten), replica, complete)


def fetch_response(version: int, limit: int) -> Decoder[FetchResponseSummary]:
    """Read the body of a FetchResponse up to its last tagged fields.

    Args:
        version: the request's version.
        limit: partitions to read at most; of more, the summary is incomplete and the stream is not at the end.
    """
    compact = version >= _FLEXIBLE_FETCH
    if version >= 1:
        yield -4
    error, session = struct.unpack(">hi", (yield 6)) if version >= 7 else (0, 0)
    ends: list[tuple[Topic, int, int]] = []
    complete, seen = True, 0
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            for _ in range((yield from length(compact))):
                seen += 1
                if seen > limit:
                    raise LimitReached
                partition, failed, end = yield from _fetch_partition(version, compact)
                if not failed and end >= 0:
                    ends.append((topic, partition, end))
            yield from tags(compact)
    except LimitReached:
        complete = False
    return FetchResponseSummary(session, error, tuple(ends), complete)


def _fetch_partition(version: int, compact: bool) -> Decoder[tuple[int, int, int]]:
    partition, error, end = struct.unpack(">ihq", (yield 14))
    if version >= 4:
        yield -(16 if version >= 5 else 8)
        for _ in range((yield from length(compact))):
            yield -16
            yield from tags(compact)
    if version >= 11:
        yield -4
    yield from skip((yield from length(compact)))
    yield from tags(compact)
    return partition, error, end


def produce_response(version: int, limit: int) -> Decoder[bool]:
    """Skip the body of a ProduceResponse up to its last tagged fields.

    Args:
        version: the request's version.
        limit: partitions to skip at most.

    Returns:
        False if there are more partitions; the stream is then not at the end of the body.
    """
    compact = version >= _FLEXIBLE_PRODUCE
    seen = 0
    for _ in range((yield from length(compact))):
        yield from _topic(version, compact)
        for _ in range((yield from length(compact))):
            seen += 1
            if seen > limit:
                return False
            yield -(14 + (8 if version >= 2 else 0) + (8 if version >= 5 else 0))
            if version >= 8:
                for _ in range((yield from length(compact))):
                    yield -4
                    yield from skip((yield from length(compact, 2)))
                    yield from tags(compact)
                yield from skip((yield from length(compact, 2)))
            yield from tags(compact)
        yield from tags(compact)
    if version >= 1:
        yield -4
    return True


def _topic(version: int, compact: bool) -> Decoder[Topic]:
    if version >= _TOPIC_IDS:
        return uuid.UUID(bytes=(yield 16))
    return (yield from string(compact))


__all__ = [
    "ENDPOINTS_HIDDEN",
    "FetchRequestSummary",
    "FetchResponseSummary",
    "FirstBatch",
    "ProduceSummary",
    "Topic",
    "fetch_request",
    "fetch_response",
    "produce_request",
    "produce_response",
    "varint",
]
