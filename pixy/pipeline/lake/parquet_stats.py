"""Compute a new data file's stats from its small columns, with numpy.

The driver reads some 20 bytes a record of the file that Spark has just written. A Spark job for it took a
tenth of a batch's time, and seconds in a new JVM. The file has the content hash, computed from Kafka's
rows; the record hash is chained from it here, see :mod:`pixy.pipeline.lake.checksum`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pixy.pipeline.lake.checksum import SEED, Stats, text_hash
from pixy.pipeline.lake.data_files import open_file, read_batches
from pixy.wire.types import TopicPartition

_COLUMNS = ["topic", "partition", "offset", "timestamp", "timestampType", "size", "hash"]

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
    """Return XXH64 of little-endian 32-bit integers, each with its own seed."""
    words = (seeds + _P5 + np.uint64(4)) ^ ((values & np.uint64(0xFFFFFFFF)) * _P1)
    return _avalanche(_rotate(words, 23) * _P2 + _P3)


def _hash_long(values: _Words, seeds: _Words) -> _Words:
    """Return XXH64 of little-endian 64-bit integers, each with its own seed."""
    words = (seeds + _P5 + np.uint64(8)) ^ (_rotate(values * _P2, 31) * _P1)
    return _avalanche(_rotate(words, 27) * _P1 + _P4)


def read_stats(path: str, filesystem: Any = None) -> dict[TopicPartition, Stats]:
    """Compute the stats of each partition in a data file.

    Args:
        path: the file.
        filesystem: pyarrow's file system; None for this machine's files.

    Raises:
        LakeError: it is missing or damaged.
    """
    found: dict[TopicPartition, Stats] = {}
    with open_file(path, filesystem) as file:
        for batch in read_batches(file, path, _COLUMNS):
            for partition, stats in _of_batch(batch):
                found[partition] = found.get(partition, Stats()) + stats
    return found


def _words(batch: pa.RecordBatch, name: str) -> _Words:
    """Convert an integer column to 64-bit words, negative values in two's complement."""
    values: NDArray[Any] = batch.column(name).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False).view(np.uint64)


def _of_batch(batch: pa.RecordBatch) -> list[tuple[TopicPartition, Stats]]:
    """Compute the stats of each run of rows of one partition; a file is sorted, so there are few runs."""
    if not len(batch):
        return []
    topics = batch.column("topic").dictionary_encode()
    names: list[str] = topics.dictionary.to_pylist()
    which = topics.indices.to_numpy(zero_copy_only=False)
    partition, offset, time, kind, size, content = (_words(batch, name) for name in _COLUMNS[1:])
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
