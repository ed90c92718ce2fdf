"""Build lakes without Spark: pyarrow writes the same files, and the table is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pixy.pipeline.lake.checksum import Stats, content_hash, payload_size, record_hash
from pixy.pipeline.lake.data_files import SCHEMA
from pixy.pipeline.lake.data_table import DataFile, describe_file
from pixy.pipeline.lake.entry import BATCH, Entry, Range
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.state import Ledger
from pixy.wire.types import RecordHeaders

Row = tuple[int, int, int, bytes | None, bytes | None, RecordHeaders | None]
"""Partition, offset, timestamp, key, value, headers."""


def stats_of(topic: str, rows: Sequence[Row]) -> dict[int, Stats]:
    found: dict[int, Stats] = {}
    for partition, offset, timestamp, key, value, headers in rows:
        content = content_hash(timestamp, key, value, headers)
        found[partition] = found.get(partition, Stats()) + Stats(
            1,
            payload_size(key, value, headers),
            offset,
            offset,
            timestamp,
            timestamp,
            record_hash(topic, partition, offset, 0, content),
            content,
        )
    return found


@dataclass(frozen=True)
class Written:
    """A file that is not published yet."""

    file: DataFile
    partitions: dict[int, Stats]

    @property
    def path(self) -> str:
        return self.file.path


def write_file(
    lake: Lake, topic: str, date: str, name: str, rows: Sequence[Row], topic_id: str = "id", **options: object
) -> Written:
    """Write a data file as Spark does."""
    path = f"data/job/{topic}-{date}/{name}.parquet"
    at = Path(lake.path(path))
    at.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table_of(topic, rows), at, **{"compression": "zstd", **options})
    stats = stats_of(topic, rows)
    return Written(describe_file(path, topic, date, at.stat().st_size, stats, topic_id), stats)


def table_of(topic: str, rows: Sequence[Row]) -> pa.Table:
    """Make the columns of a data file."""
    contents = [content_hash(t, k, v, h) for _, _, t, k, v, h in rows]
    columns = [
        [topic] * len(rows),
        [row[0] for row in rows],
        [row[1] for row in rows],
        [row[2] for row in rows],
        [0] * len(rows),
        [row[3] for row in rows],
        [row[4] for row in rows],
        [None if not row[5] else [{"key": k, "value": v} for k, v in row[5]] for row in rows],
        [payload_size(*row[3:]) for row in rows],
        [c - (1 << 64) if c >> 63 else c for c in contents],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def make_lake(folder: Path) -> Lake:
    return Lake.open_or_create(str(folder), "main", "kafka-1")


def publish(
    lake: Lake,
    ledger: Ledger,
    batch: int,
    files: Sequence[Written],
    ends: dict[int, tuple[int, int]],
    topic_id: str = "id",
    job: str = "job",
) -> Entry:
    """Publish one batch; ``ends`` has (start, end) by partition."""
    topic = files[0].file.topic
    stats: dict[int, Stats] = {}
    for file in files:
        for number, each in file.partitions.items():
            stats[number] = stats.get(number, Stats()) + each
    ranges = [
        Range(topic, topic_id, n, start, end, stats.get(n, Stats())) for n, (start, end) in ends.items()
    ]
    draft = Entry(BATCH, job, batch, "read_committed", 1000 + batch, tuple(ranges))
    return lake.publish(ledger, draft, [each.file for each in files])


def rows(partition: int, offsets: Sequence[int]) -> list[Row]:
    return [
        (partition, offset, 1_700_000_000_000 + offset, b"k%d" % offset, b"v%d" % offset, None)
        for offset in offsets
    ]
