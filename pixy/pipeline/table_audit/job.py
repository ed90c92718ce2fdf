"""Run the audit of a table on Spark: bitmaps where the rows are, comparison on executors, findings one by one to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit.frames import live_files, partition_frame
from pixy.pipeline.audit.gaps import BatchSpan
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.log_scan import scan_log
from pixy.pipeline.audit.spark_jobs import run
from pixy.pipeline.datasource.access import Access, from_proxy
from pixy.pipeline.lake import Lake
from pixy.pipeline.lake.state import Archived
from pixy.pipeline.spark.columns import SCHEMA
from pixy.pipeline.table_audit.bounds import Expected, LakeBounds, expected
from pixy.pipeline.table_audit.buckets import SIZE, Bucket, Found, Problem, compare, offsets_of
from pixy.pipeline.table_audit.request import TableRequest
from pixy.pipeline.table_audit.table import Survey, read_table, survey
from pixy.wire.types import TopicPartition

Erased = Mapping[TopicPartition, tuple[tuple[int, int, str], ...]]
"""By partition, ranges of offsets of which records were erased, each with the request."""

BUCKETS_TOGETHER: Final = 16
"""Buckets that are compared together: half a million offsets, so a task holds as many timestamps at most."""

_FOUND_DDL: Final = (
    "tp_id int, start bigint, end bigint, problem string, reason string, source string, "
    "first_timestamp bigint, last_timestamp bigint"
)
_FOUND: Final = pa.schema(
    [
        ("tp_id", pa.int32()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("problem", pa.string()),
        ("reason", pa.string()),
        ("source", pa.string()),
        ("first_timestamp", pa.int64()),
        ("last_timestamp", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Context:
    """What each task needs: the expected offsets by number of the partition, and the way to the log."""

    partitions: Mapping[int, Expected]
    access: Access


@dataclass(frozen=True, slots=True)
class TableAudit:
    """The result: the partitions, the table's survey, and the findings, which stream from executors.

    Attributes:
        findings: call it once; yields (partition, finding), neighbours of one kind joined.
    """

    partitions: list[Expected]
    survey: Survey
    findings: Callable[[], Iterator[tuple[Expected, Found]]]


def audit_table(spark: SparkSession, request: TableRequest, on_progress: Callable[[str], None]) -> TableAudit:
    """Compare the table with the broker's log, and with the lake if there is one.

    Args:
        spark: the session to run on; the audit changes one of its settings.
        request: table, mapping and sources.
        on_progress: gets a line of text for each step.

    Raises:
        PixyError: a source cannot be read; the text names it.
    """
    rows = read_table(spark, request)
    on_progress(f"counting the rows of {request.table}")
    found = survey(rows, request.late_after)
    archived, lake, erased = _lake(
        spark, request, {topic for topic, _ in found.partitions} | set(request.topics)
    )
    view = ClusterView(settings.admin(request.proxy), request.proxy.net.dial_timeout)
    partitions = [
        replace(each, erased=erased.get((each.topic, each.partition), ()))
        for each in expected(request, view, found, lake)
    ]
    numbers = {(each.topic, each.partition): number for number, each in enumerate(partitions)}
    offsets = sum(each.end - each.start for each in partitions)
    on_progress(f"comparing {len(partitions):,} partitions, {offsets:,} offsets")
    numbered = sf.broadcast(partition_frame(spark, numbers))
    buckets = _buckets(
        spark, partitions, _keyed(rows, numbered), None if archived is None else _keyed(archived, numbered)
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BUCKETS_TOGETHER))
    context = Context(dict(enumerate(partitions)), from_proxy(request.proxy))
    # Kept on the executors' disks: the driver then takes one part after the other.
    compared = buckets.mapInArrow(_comparing(context), _FOUND_DDL).persist(StorageLevel.DISK_ONLY)
    run(compared.count, "the table cannot be compared")
    return TableAudit(partitions, found, lambda: _joined(compared, partitions))


def _lake(
    spark: SparkSession, request: TableRequest, topics: set[str]
) -> tuple[DataFrame | None, LakeBounds, Erased]:
    """Read (topic, partition, offset) of the lake's records of the topics, None without a lake or without records; its bounds,
    and the ranges of erased records.
    """
    if not request.lake:
        return None, {}, {}
    lake = Lake.open(request.lake)
    state = lake.state()
    bounds = {
        tp: (min(each.range.start for each in ranges), max(each.range.end for each in ranges))
        for tp, ranges in state.ranges.items()
        if tp[0] in topics and ranges
    }
    erased = {tp: tuple(_requests(ranges)) for tp, ranges in state.removed.items() if tp[0] in topics}
    paths = [
        path for topic in sorted(topics & set(state.topics())) for path in live_files(lake, state, topic)
    ]
    if not paths:
        return None, bounds, erased
    return spark.read.schema(SCHEMA).parquet(*paths).select("topic", "partition", "offset"), bounds, erased


def _requests(ranges: Iterable[Archived]) -> Iterator[tuple[int, int, str]]:
    for each in ranges:
        if each.range.reason == "erased":
            yield (
                each.range.start,
                each.range.end,
                f"erased from the lake: {each.range.skipped.partition(': ')[2]}",
            )


def _keyed(rows: DataFrame, numbered: DataFrame) -> DataFrame:
    """Return (tp_id, bucket, bit) of the mapped rows of audited partitions."""
    # Spark's buckets begin at 1.
    place = sf.col("offset") + 1
    return (
        rows.where("offset IS NOT NULL")
        .join(numbered, ["topic", "partition"])
        .select(
            "tp_id",
            sf.bitmap_bucket_number(place).alias("bucket"),
            sf.bitmap_bit_position(place).alias("bit"),
        )
    )


def _bitmap(name: str) -> Column:
    return sf.bitmap_construct_agg("bit").alias(name)


def _buckets(
    spark: SparkSession, partitions: list[Expected], table: DataFrame, lake: DataFrame | None
) -> DataFrame:
    """Return a row for each bucket in which a record is expected or is: (tp_id, bucket, table, lake, doubled)."""
    key = ["tp_id", "bucket"]
    held = table.groupBy(*key).agg(_bitmap("table"), sf.count(sf.lit(1)).alias("rows"))
    # Only buckets with more rows than offsets are looked at row by row.
    crowded = held.where(sf.col("rows") > sf.bitmap_count("table")).select(*key)
    doubled = (
        table.join(crowded, key, "left_semi")
        .groupBy(*key, "bit")
        .count()
        .where("count > 1")
        .groupBy(*key)
        .agg(_bitmap("doubled"))
    )
    archived = lake.groupBy(*key).agg(_bitmap("lake")) if lake is not None else None
    wanted = _seeds(spark, partitions).join(held.drop("rows"), key, "full_outer")
    if archived is not None:
        wanted = wanted.join(archived, key, "full_outer")
    else:
        wanted = wanted.withColumn("lake", sf.lit(None).cast("binary"))
    return (
        wanted.join(doubled, key, "left")
        .select(*key, "table", "lake", "doubled")
        .repartitionByRange(*key)
        .sortWithinPartitions(*key)
    )


def _seeds(spark: SparkSession, partitions: list[Expected]) -> DataFrame:
    """Return the buckets of all expected offsets, so that one without any row is compared, too."""
    spans = [
        (number, each.start // SIZE + 1, max(each.start, each.end - 1) // SIZE + 1)
        for number, each in enumerate(partitions)
        if each.start < each.end
    ]
    columns: list[list[int]] = [list(column) for column in zip(*spans, strict=True)] or [[], [], []]
    schema = pa.schema([("tp_id", pa.int32()), ("first", pa.int64()), ("last", pa.int64())])
    frame = spark.createDataFrame(
        pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    )
    return frame.select("tp_id", sf.explode(sf.sequence("first", "last")).alias("bucket"))


def _comparing(context: Context) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(partition: Expected, missing: Intervals) -> tuple[BatchSpan, ...]:
        return scan_log(context.access, partition.topic, partition.partition, missing, partition.log_start)

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            made: list[dict[str, Any]] = []
            for tp_id, rows in groupby(batch.to_pylist(), key=lambda row: row["tp_id"]):
                made += (
                    {"tp_id": tp_id, **_plain(each)}
                    for each in compare(context.partitions[tp_id], [_bucket(row) for row in rows], scan)
                )
            yield pa.RecordBatch.from_pylist(
                sorted(made, key=lambda row: (row["tp_id"], row["start"])), _FOUND
            )

    return work


def _bucket(row: Mapping[str, Any]) -> Bucket:
    number = row["bucket"] - 1
    return Bucket(number, *(offsets_of(row[name], number) for name in ("table", "lake", "doubled")))


def _plain(each: Found) -> dict[str, Any]:
    return {
        "start": each.start,
        "end": each.end,
        "problem": str(each.problem),
        "reason": each.reason,
        "source": each.source,
        "first_timestamp": each.first_timestamp,
        "last_timestamp": each.last_timestamp,
    }


def _joined(compared: DataFrame, partitions: list[Expected]) -> Iterator[tuple[Expected, Found]]:
    """Yield the findings, one part after the other; joins neighbours that a bucket's edge cut in two."""
    waiting: dict[Problem, tuple[int, Found]] = {}
    try:
        for row in compared.toLocalIterator():
            values = row.asDict()
            tp_id = values.pop("tp_id")
            each = Found(**{**values, "problem": Problem(values["problem"])})
            before = waiting.get(each.problem)
            if before is not None and before[0] == tp_id and _touch(before[1], each):
                waiting[each.problem] = (tp_id, _join(before[1], each))
                continue
            if before is not None:
                yield partitions[before[0]], before[1]
            waiting[each.problem] = (tp_id, each)
        for tp_id, each in sorted(waiting.values(), key=lambda one: (one[0], one[1].start)):
            yield partitions[tp_id], each
    finally:
        compared.unpersist()


def _touch(one: Found, other: Found) -> bool:
    return one.end == other.start and (one.reason, one.source) == (other.reason, other.source)


def _join(one: Found, other: Found) -> Found:
    times = [each for each in (one.first_timestamp, other.first_timestamp) if each >= 0]
    return Found(
        one.start,
        other.end,
        one.problem,
        one.reason,
        one.source,
        min(times, default=-1),
        max(one.last_timestamp, other.last_timestamp),
    )


__all__ = ["BUCKETS_TOGETHER", "TableAudit", "audit_table"]
