"""Read data files with pyarrow: records, and stats computed again without Spark and its hash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.errors import LakeError, UnknownVersion
from pixy.pipeline.lake.checksum import MASK, Stats, content_hash, payload_size, record_hash

BATCH_ROWS = 16_384
_MAX_FAULTS = 5

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestampType", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("size", pa.int32()),
        ("hash", pa.int64()),
    ]
)
"""Columns of every data file, whether Spark or pyarrow has written it."""


def open_file(path: str, filesystem: Any = None) -> pq.ParquetFile:
    """Open a data file.

    Args:
        path: the file.
        filesystem: pyarrow's file system; None for this machine's files.

    Raises:
        LakeError: the file is missing or not Parquet.
        UnknownVersion: its columns are not those of this format.
    """
    try:
        file = pq.ParquetFile(path, filesystem=filesystem, memory_map=filesystem is None)
    except FileNotFoundError:
        raise LakeError(f"{path} is missing") from None
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"{path} cannot be read: {error}") from error
    found = {column.name: column.type for column in file.schema_arrow}
    for column in SCHEMA:
        # Names of list items and whether null is allowed differ between writers.
        same = found.get(column.name) == column.type or (
            column.name == "headers" and pa.types.is_list(found.get("headers", pa.null()))
        )
        if not same:
            file.close()
            raise UnknownVersion(
                f"{path} lacks the columns of this format: {column.name} is "
                f"{found.get(column.name, 'missing')}, not {column.type}"
            )
    return file


def read_batches(
    file: pq.ParquetFile,
    path: str,
    columns: list[str] | None = None,
    row_groups: list[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read the rows in order, in batches.

    Args:
        file: from :func:`open_file`.
        path: the file's name, for errors.
        columns: columns to read; None for all.
        row_groups: row groups to read; None for all.

    Raises:
        LakeError: the file is damaged.
    """
    try:
        yield from file.iter_batches(BATCH_ROWS, row_groups=row_groups, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise LakeError(f"{path} is damaged: {error}") from error


def header_lists(column: pa.Array) -> list[list[tuple[str, bytes | None]] | None]:
    """Convert headers to (key, value) tuples; None for a record without headers."""
    if column.null_count == len(column):
        return [None] * len(column)
    return [
        None if each is None else [(header["key"], header["value"]) for header in each]
        for each in column.to_pylist()
    ]


def millis(column: pa.Array) -> list[int]:
    """Convert a timestamp column to milliseconds of the epoch."""
    found: list[int] = column.cast(pa.int64()).to_numpy(zero_copy_only=False).tolist()
    return found


@dataclass(slots=True)
class FileContents:
    """Actual contents of a data file."""

    rows: int = 0
    partitions: dict[int, Stats] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """Faults of single records; the first few."""
    cut: dict[int, Stats] = field(default_factory=dict)
    """Stats of the pieces that were asked for."""


Cut = Callable[[int, int], int]
"""Number of the piece that a record, given by partition and offset, belongs to; -1 for none."""


def examine(path: str, topic: str, filesystem: Any = None, cut: Cut | None = None) -> FileContents:
    """Read a whole file and compute its stats again.

    Args:
        path: the file.
        topic: the topic that every record must be of.
        filesystem: pyarrow's file system; None for this machine's files.
        cut: chooses pieces of the file whose stats to compute as well.

    Raises:
        LakeError: the file cannot be read.
        UnknownVersion: its columns are not those of this format.
    """
    file = open_file(path, filesystem)
    found = FileContents()
    previous = (-1, -1)
    with file:
        for batch in read_batches(file, path):
            previous = _add_batch(found, batch, topic, path, previous, cut)
    return found


def _add_batch(
    found: FileContents,
    batch: pa.RecordBatch,
    topic: str,
    path: str,
    previous: tuple[int, int],
    cut: Cut | None,
) -> tuple[int, int]:
    sums: dict[int, list[int]] = {}
    pieces: dict[int, list[int]] = {}
    for name, partition, offset, timestamp, kind, key, value, headers, stored in _rows(batch):
        content = content_hash(timestamp, key, value, headers)
        size = payload_size(key, value, headers)
        if content != stored & MASK:
            _fault(
                found, f"{path}: the content of {name}/{partition} offset {offset} is not what was archived"
            )
        if name != topic:
            _fault(found, f"{path}: offset {offset} is of topic {name}")
        if (partition, offset) <= previous:
            _fault(found, f"{path}: offset {offset} of partition {partition} is out of order or twice there")
        previous = (partition, offset)
        full = record_hash(name, partition, offset, kind, content)
        record = [1, size, offset, offset, timestamp, timestamp, full, content]
        _add(sums, partition, record)
        if cut is not None and (piece := cut(partition, offset)) >= 0:
            _add(pieces, piece, record)
    _fold(sums, found.partitions)
    _fold(pieces, found.cut)
    found.rows += len(batch)
    return previous


def _add(sums: dict[int, list[int]], key: int, record: list[int]) -> None:
    one = sums.get(key)
    if one is None:
        sums[key] = record[:]
        return
    one[0] += 1
    one[1] += record[1]
    one[2] = min(one[2], record[2])
    one[3] = max(one[3], record[3])
    one[4] = min(one[4], record[4])
    one[5] = max(one[5], record[5])
    one[6] += record[6]
    one[7] += record[7]


def _fold(sums: dict[int, list[int]], stats: dict[int, Stats]) -> None:
    for key, one in sums.items():
        one[6] &= MASK
        one[7] &= MASK
        stats[key] = stats.get(key, Stats()) + Stats(*one)


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    column = batch.column
    return zip(
        column("topic").to_pylist(),
        column("partition").to_pylist(),
        column("offset").to_pylist(),
        millis(column("timestamp")),
        column("timestampType").to_pylist(),
        column("key").to_pylist(),
        column("value").to_pylist(),
        header_lists(column("headers")),
        column("hash").to_pylist(),
        strict=True,
    )


def _fault(found: FileContents, text: str) -> None:
    if len(found.faults) < _MAX_FAULTS:
        found.faults.append(text)
