"""A new data file's figures, from its small columns, by vectors.

The driver reads what Spark has just written: of a record some 20 bytes. A job of Spark's for it cost a
tenth of a batch's time, and in a new JVM seconds. The hash of the content is the one that was computed
from what Kafka returned; the record's is chained from it here, see :mod:`pixy.pipeline.lake.checksum`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pixy.pipeline.lake.checksum import SEED, Stats, text_hash
from pixy.pipeline.lake.data_files import batches, open_file

COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "size", "hash"]

_Words = NDArray[np.uint64]

# XXH64's constants, see the xxHash specification, "XXH64 algorithm description".
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)


def _rotate(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _avalanche(words: _Words) -> _Words:
    words = (words ^ (words >> np.uint64(33))) * _P2
    words = (words ^ (words >> np.uint64(29))) * _P3
    return words ^ (words >> np.uint64(32))


def _hash_int(values: _Words, seeds: _Words) -> _Words:
    """XXH64 of little-endian 32-bit integers, each with its own seed."""
    words = (seeds + _P5 + np.uint64(4)) ^ ((values & np.uint64(0xFFFFFFFF)) * _P1)
    return _avalanche(_rotate(words, 23) * _P2 + _P3)


def _hash_long(values: _Words, seeds: _Words) -> _Words:
    """XXH64 of little-endian 64-bit integers, each with its own seed."""
    words = (seeds + _P5 + np.uint64(8)) ^ (_rotate(values * _P2, 31) * _P1)
    return _avalanche(_rotate(words, 27) * _P1 + _P4)


def figures(path: str, filesystem: Any = None) -> dict[tuple[str, int], Stats]:
    """What a data file holds, by topic and partition.

    Raises:
        LakeError: it is missing or damaged.
    """
    found: dict[tuple[str, int], Stats] = {}
    with open_file(path, filesystem) as file:
        for batch in batches(file, path, COLUMNS):
            for place, stats in _of_batch(batch):
                found[place] = found.get(place, Stats()) + stats
    return found


def _words(batch: pa.RecordBatch, name: str) -> _Words:
    """An integer column as 64 bits each, negative ones in two's complement."""
    values: NDArray[Any] = batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False).view(np.uint64)


def _of_batch(batch: pa.RecordBatch) -> list[tuple[tuple[str, int], Stats]]:
    """The figures of each run of rows of one partition: a file is sorted, so there are few runs."""
    if not len(batch):
        return []
    topics = batch.column("topic").dictionary_encode()
    names: list[str] = topics.dictionary.to_pylist()
    which = topics.indices.to_numpy(zero_copy_only=False)
    partition, offset, time, kind, size, content = (_words(batch, name) for name in COLUMNS[1:])
    seeds = np.array([text_hash(name, SEED) for name in names], np.uint64)[which]
    record = _hash_long(content, _hash_int(kind, _hash_long(offset, _hash_int(partition, seeds))))
    changes = np.flatnonzero((partition[1:] != partition[:-1]) | (which[1:] != which[:-1])) + 1
    starts = np.concatenate(([0], changes))
    offsets, times = offset.view(np.int64), time.view(np.int64)
    sums = zip(
        starts.tolist(),
        np.diff(np.append(starts, len(batch))).tolist(),
        np.add.reduceat(size, starts).tolist(),
        np.minimum.reduceat(offsets, starts).tolist(),
        np.maximum.reduceat(offsets, starts).tolist(),
        np.minimum.reduceat(times, starts).tolist(),
        np.maximum.reduceat(times, starts).tolist(),
        np.add.reduceat(record, starts).tolist(),
        np.add.reduceat(content, starts).tolist(),
        strict=True,
    )
    return [((names[which[start]], int(partition[start])), Stats(*rest)) for start, *rest in sums]
