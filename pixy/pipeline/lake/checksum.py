"""The order-independent checksum of records, in pure Python; Spark SQL's ``xxhash64`` computes the same.

Spark chains: the hash of one column is the seed of the next, the first seed is 42, and a null column
leaves the hash as it is. What is hashed is little-endian. Lengths and counts go in as well, so that null
and empty, and one header's value and the next one's key, can not be taken for each other:

    content = timestamp:i64 (ms)
              key length:i32 (-1 for null), key bytes
              value length:i32 (-1 for null), value bytes
              header count:i32, every key (UTF-8), every value's length:i32 (-1 for null), every value
    record  = topic (UTF-8), partition:i32, offset:i64, timestampType:i32, content:i64

A checksum is the sum of hashes modulo 2^64: order does not matter, a lost or doubled record does.
``content`` is what a replay keeps; the place of a record, and whose clock its timestamp is, belong to the
topic it lies in. See docs/pipeline.md, "Checksums", and :mod:`pixy.pipeline.spark.columns` for Spark's side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
    """Unsigned 64-bit hash of what a replay keeps; ``timestamp`` in milliseconds."""
    found = xxh64_intdigest(_i64(timestamp), SEED)
    for part in (key, value):
        if part is None:
            found = xxh64_intdigest(_NULL, found)
        else:
            found = xxh64_intdigest(part, xxh64_intdigest(_i32(len(part)), found))
    if not headers:
        return xxh64_intdigest(_i32(0), found)
    found = xxh64_intdigest(_i32(len(headers)), found)
    for name, _ in headers:
        found = xxh64_intdigest(name.encode(), found)
    for _, each in headers:
        found = xxh64_intdigest(_NULL if each is None else _i32(len(each)), found)
    for _, each in headers:
        if each is not None:
            found = xxh64_intdigest(each, found)
    return found


def text_hash(text: str, seed: int) -> int:
    """Unsigned 64-bit hash of a text's UTF-8: a link of the chain."""
    return xxh64_intdigest(text.encode(), seed)


def record_hash(topic: str, partition: int, offset: int, timestamp_type: int, content: int) -> int:
    """Unsigned 64-bit hash of a record in its place; ``content`` from :func:`content_hash`."""
    found = text_hash(topic, SEED)
    found = xxh64_intdigest(_i32(partition), found)
    found = xxh64_intdigest(_i64(offset), found)
    found = xxh64_intdigest(_i32(timestamp_type), found)
    return xxh64_intdigest(_u64(content), found)


def payload_size(key: bytes | None, value: bytes | None, headers: RecordHeaders | None) -> int:
    """Bytes of key, value, header keys and header values."""
    size = len(key or b"") + len(value or b"")
    for name, each in headers or ():
        size += len(name.encode()) + len(each or b"")
    return size


@dataclass(frozen=True, slots=True)
class Stats:
    """What is said of a set of records.

    Attributes:
        count: records.
        bytes: of payload, see :func:`payload_size`.
        first, last: lowest and highest offset; -1 without records.
        min_timestamp, max_timestamp: milliseconds; -1 without records.
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


def total(stats: Iterable[Stats]) -> Stats:
    """The sum of all; ``first`` and ``last`` mean something within one partition only."""
    found = Stats()
    for each in stats:
        found += each
    return found
