"""Checksum of records that does not depend on their order, in pure Python.

Spark SQL's ``xxhash64`` computes the same. It chains: the hash of one column is the seed of the next, the
first seed is 42, and a null column leaves the hash as it is. Integers are little-endian. Lengths and counts
are hashed too, so that null differs from empty, and a header's value from the key of the next:

    content = timestamp:i64 (ms)
              key length:i32 (-1 for null), key bytes
              value length:i32 (-1 for null), value bytes
              header count:i32, every key (UTF-8), every value's length:i32 (-1 for null), every value
    record  = topic (UTF-8), partition:i32, offset:i64, timestampType:i32, content:i64

A checksum is the sum of hashes modulo 2^64: order does not matter, a lost or doubled record does.
A replay keeps ``content``; partition, offset and the clock of the timestamp belong to the topic that holds
the record. See docs/pipeline.md, "Checksums", and :mod:`pixy.pipeline.spark.columns` for Spark's side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from struct import Struct

from xxhash import xxh64_intdigest

from pixy.wire.types import RecordHeaders

SEED = 42
MASK = (1 << 64) - 1

_i32 = Struct("<i").pack
_i64 = Struct("<q").pack
_u64 = Struct("<Q").pack
_NULL = _i32(-1)


def content_hash(
    timestamp: int, key: bytes | None, value: bytes | None, headers: RecordHeaders | None
) -> int:
    """Hash the content of a record, the part that a replay keeps.

    Args:
        timestamp: milliseconds of the epoch.
        key, value: null (None) differs from empty.
        headers: in their order; None equals none.

    Returns:
        The unsigned 64-bit hash.
    """
    hash_ = xxh64_intdigest(_i64(timestamp), SEED)
    for part in (key, value):
        if part is None:
            hash_ = xxh64_intdigest(_NULL, hash_)
        else:
            hash_ = xxh64_intdigest(part, xxh64_intdigest(_i32(len(part)), hash_))
    if not headers:
        return xxh64_intdigest(_i32(0), hash_)
    hash_ = xxh64_intdigest(_i32(len(headers)), hash_)
    for name, _ in headers:
        hash_ = xxh64_intdigest(name.encode(), hash_)
    for _, each in headers:
        hash_ = xxh64_intdigest(_NULL if each is None else _i32(len(each)), hash_)
    for _, each in headers:
        if each is not None:
            hash_ = xxh64_intdigest(each, hash_)
    return hash_


def text_hash(text: str, seed: int) -> int:
    """Hash a text's UTF-8 as one link of the chain.

    Args:
        text: the text.
        seed: the hash so far, or ``SEED``.
    """
    return xxh64_intdigest(text.encode(), seed)


def record_hash(topic: str, partition: int, offset: int, timestamp_type: int, content: int) -> int:
    """Hash a record together with its partition and offset.

    Args:
        topic, partition, offset: position of the record.
        timestamp_type: 0 CreateTime, 1 LogAppendTime, -1 none.
        content: from :func:`content_hash`.

    Returns:
        The unsigned 64-bit hash.
    """
    hash_ = text_hash(topic, SEED)
    hash_ = xxh64_intdigest(_i32(partition), hash_)
    hash_ = xxh64_intdigest(_i64(offset), hash_)
    hash_ = xxh64_intdigest(_i32(timestamp_type), hash_)
    return xxh64_intdigest(_u64(content), hash_)


def payload_size(key: bytes | None, value: bytes | None, headers: RecordHeaders | None) -> int:
    """Count the bytes of key, value, header keys and header values."""
    size = len(key or b"") + len(value or b"")
    for name, each in headers or ():
        size += len(name.encode()) + len(each or b"")
    return size


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts and checksums of a set of records; add two to get those of the union, subtract those of a part.

    Attributes:
        count: number of records.
        bytes: payload, see :func:`payload_size`.
        first, last: lowest and highest offset; -1 without records.
        min_timestamp, max_timestamp: milliseconds of the epoch; -1 without records.
        checksum: sum of :func:`record_hash` modulo 2^64.
        content_checksum: sum of :func:`content_hash` modulo 2^64: equal before and after a replay.
    """

    count: int = 0
    bytes: int = 0
    first: int = -1
    last: int = -1
    min_timestamp: int = -1
    max_timestamp: int = -1
    checksum: int = 0
    content_checksum: int = 0

    def __add__(self, other: Stats) -> Stats:
        if not self.count:
            return other
        if not other.count:
            return self
        return Stats(
            self.count + other.count,
            self.bytes + other.bytes,
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.min_timestamp, other.min_timestamp),
            max(self.max_timestamp, other.max_timestamp),
            (self.checksum + other.checksum) & MASK,
            (self.content_checksum + other.content_checksum) & MASK,
        )

    def __sub__(self, other: Stats) -> Stats:
        """Take records away that are part of these; offsets and timestamps become bounds of the rest."""
        rest = replace(
            self,
            count=self.count - other.count,
            bytes=self.bytes - other.bytes,
            checksum=(self.checksum - other.checksum) & MASK,
            content_checksum=(self.content_checksum - other.content_checksum) & MASK,
        )
        return rest if rest.count else replace(rest, first=-1, last=-1, min_timestamp=-1, max_timestamp=-1)


def total(stats: Iterable[Stats]) -> Stats:
    """Add all up; ``first`` and ``last`` are meaningful within one partition only."""
    return sum(stats, Stats())
