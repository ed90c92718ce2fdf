"""What Produce and Fetch say beside their records, pulled off a tape without copying a record.

The readers know all versions up to the last that :mod:`pixy.wire.messages` knows; fields stand in the order of Kafka's
schemas, and a test holds them against the full decoders. Topics are names, or UUIDs from version 13 on.
"""

from __future__ import annotations

import struct
import uuid
from typing import NamedTuple

from pixy.tap.primitives import Limited, Pull, length, skip, string, tags, varint
from pixy.wire import batch_header

Topic = str | uuid.UUID

_FLEXIBLE_PRODUCE = 9
_FLEXIBLE_FETCH = 12
_TOPIC_IDS = 13
_MAGIC_AT = 16
ENDPOINTS_HIDDEN = 0x7F
"""A tag that nobody knows: brokers' addresses put under it are not read by clients."""


class BatchHead(NamedTuple):
    """The first batch of a partition in a Produce."""

    topic: Topic
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    last_offset_delta: int
    size: int


class ProduceHead(NamedTuple):
    """A ProduceRequest without its records: ``batches`` has those of magic 2."""

    acks: int
    topics: tuple[Topic, ...]
    batches: tuple[BatchHead, ...]
    whole: bool


class FetchAsk(NamedTuple):
    """A FetchRequest: what is added to the session, or replaces it, and what is taken from it."""

    session_id: int
    epoch: int
    wanted: tuple[tuple[Topic, int, int], ...]
    """Topic, partition, offset."""
    forgotten: tuple[tuple[Topic, int], ...]
    replica: bool
    whole: bool


class FetchedHead(NamedTuple):
    """A FetchResponse without its records: (topic, partition, high watermark) of those without error."""

    session_id: int
    error: int
    ends: tuple[tuple[Topic, int, int], ...]
    whole: bool


def produce_request(version: int, limit: int, acks_seen: list[int]) -> Pull[ProduceHead]:
    """Read the body of a ProduceRequest; ``acks_seen`` gets the acks as soon as they are known."""
    compact = version >= _FLEXIBLE_PRODUCE
    if version >= 3:
        yield from skip((yield from length(compact, 2)))
    acks = int.from_bytes((yield 2), "big", signed=True)
    acks_seen.append(acks)
    yield -4
    topics: list[Topic] = []
    batches: list[BatchHead] = []
    whole = True
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            topics.append(topic)
            for _ in range((yield from length(compact))):
                if len(batches) >= limit or len(topics) > limit:
                    raise Limited
                head = yield from _produced(topic, compact)
                if head is not None:
                    batches.append(head)
                yield from tags(compact)
            yield from tags(compact)
    except Limited:
        whole = False
    return ProduceHead(acks, tuple(topics), tuple(batches), whole)


def _produced(topic: Topic, compact: bool) -> Pull[BatchHead | None]:
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
    return BatchHead(topic, partition, fields[9], fields[10], fields[11], fields[6], size)


def fetch_request(version: int, limit: int) -> Pull[FetchAsk]:
    """Read the body of a FetchRequest."""
    compact = version >= _FLEXIBLE_FETCH
    replica = version < 15 and int.from_bytes((yield 4), "big", signed=True) >= 0
    yield -(8 + (4 if version >= 3 else 0) + (1 if version >= 4 else 0))
    session, epoch = struct.unpack(">ii", (yield 8)) if version >= 7 else (0, -1)
    wanted: list[tuple[Topic, int, int]] = []
    forgotten: list[tuple[Topic, int]] = []
    whole = True
    before = 4 + (4 if version >= 9 else 0)
    after = (4 if version >= 12 else 0) + (8 if version >= 5 else 0) + 4
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            for _ in range((yield from length(compact))):
                if len(wanted) >= limit:
                    raise Limited
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
                    raise Limited
                forgotten.append((topic, int.from_bytes((yield 4), "big", signed=True)))
            yield from tags(compact)
    except Limited:
        whole = False
    return FetchAsk(session, epoch, tuple(wanted), tuple(forgotten), replica, whole)


def fetch_response(version: int, limit: int) -> Pull[FetchedHead]:
    """Read the body of a FetchResponse up to its last tagged fields."""
    compact = version >= _FLEXIBLE_FETCH
    if version >= 1:
        yield -4
    error, session = struct.unpack(">hi", (yield 6)) if version >= 7 else (0, 0)
    ends: list[tuple[Topic, int, int]] = []
    whole, seen = True, 0
    try:
        for _ in range((yield from length(compact))):
            topic = yield from _topic(version, compact)
            for _ in range((yield from length(compact))):
                seen += 1
                if seen > limit:
                    raise Limited
                partition, failed, end = yield from _fetched(version, compact)
                if not failed and end >= 0:
                    ends.append((topic, partition, end))
            yield from tags(compact)
    except Limited:
        whole = False
    return FetchedHead(session, error, tuple(ends), whole)


def _fetched(version: int, compact: bool) -> Pull[tuple[int, int, int]]:
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


def produce_response(version: int, limit: int) -> Pull[bool]:
    """Pass over the body of a ProduceResponse up to its last tagged fields; whether that was possible."""
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


def _topic(version: int, compact: bool) -> Pull[Topic]:
    if version >= _TOPIC_IDS:
        return uuid.UUID(bytes=(yield 16))
    return (yield from string(compact))


__all__ = [
    "ENDPOINTS_HIDDEN",
    "BatchHead",
    "FetchAsk",
    "FetchedHead",
    "ProduceHead",
    "Topic",
    "fetch_request",
    "fetch_response",
    "produce_request",
    "produce_response",
    "varint",
]
