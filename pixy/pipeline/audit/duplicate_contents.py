"""Find content that a topic holds twice, by the lake's ``hash`` of timestamp, key, value and headers.

A producer that retries writes its message again with the original timestamp. An application that sends a
message twice writes two messages: their timestamps usually differ, their sequence numbers always do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession, Window, functions as sf

from pixy.config.model import Proxy
from pixy.pipeline.audit import spark_jobs
from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.frames import live_files
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.lake import DataFile, Lake, State
from pixy.pipeline.spark.columns import SCHEMA, content_hash
from pixy.wire.types import TopicPartition

MAX_RANGES = 100_000
"""Ranges that are reported; one more finding says that there are others."""

_COLUMNS = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)

Offsets = Mapping[TopicPartition, Intervals]


@dataclass(frozen=True, slots=True)
class DuplicateRange:
    """Offsets ``[start, end)`` whose contents equal, one by one, those from ``original_start`` on."""

    topic: str
    partition: int
    start: int
    end: int
    original_partition: int
    original_start: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Offsets by partition, for each fact that is known of their producers.

    Attributes:
        confirmed: a daemon confirmed them to a producer (from the journal).
        numbered: written by idempotent producers (from the log).
        unnumbered: written by other producers (from the log).
        repeated: written with a sequence number that an earlier record has (from the log).
    """

    confirmed: Offsets = field(default_factory=dict)
    numbered: Offsets = field(default_factory=dict)
    unnumbered: Offsets = field(default_factory=dict)
    repeated: Offsets = field(default_factory=dict)


def lake_rows(
    spark: SparkSession,
    lake: Lake,
    state: State,
    topics: Iterable[str],
    wanted: Callable[[DataFile], bool] = lambda _: True,
) -> DataFrame | None:
    """Read (topic, partition, offset, hash) from the lake; None if it has none of the topics.

    Args:
        spark: the session to run on.
        lake: the lake.
        state: its live files.
        topics: the topics to read.
        wanted: leaves out files.
    """
    paths = [path for topic in topics for path in live_files(lake, state, topic, wanted)]
    if not paths:
        return None
    return spark.read.schema(SCHEMA).parquet(*paths).select("topic", "partition", "offset", "hash")


def log_rows(
    spark: SparkSession, proxy: Proxy, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> DataFrame | None:
    """Read (topic, partition, offset, hash) from the broker's log; None if all ranges are empty.

    Args:
        spark: the session to run on.
        proxy: the cluster.
        bounds: by partition, the offsets ``[start, end)`` to read.
    """
    rows = spark_jobs.read_log(spark, proxy, bounds, _COLUMNS, isolationLevel="read_committed")
    return None if rows is None else rows.select("topic", "partition", "offset", content_hash().alias("hash"))


def find_duplicates(rows: DataFrame) -> list[DuplicateRange]:
    """Return ranges of duplicate content, sorted by topic, partition and offset; MAX_RANGES + 1 at most.

    Among offsets with equal content, the one in the lowest partition with the lowest offset is the original.

    Raises:
        SourceError: a source cannot be read.
    """
    hashes = rows.groupBy("topic", "hash").count().where("count > 1").drop("count")
    # An offset that the lake holds twice is another fault: archived twice.
    candidates = rows.join(hashes, ["topic", "hash"]).dropDuplicates(["topic", "partition", "offset"])
    equal = Window.partitionBy("topic", "hash").orderBy("partition", "offset")
    copies = (
        candidates.select(
            "topic",
            "partition",
            "offset",
            sf.row_number().over(equal).alias("nth"),
            sf.first("partition").over(equal).alias("original_partition"),
            sf.first("offset").over(equal).alias("original_offset"),
        )
        .where("nth > 1")
        .withColumn("shift", sf.expr("offset - original_offset"))
    )
    neighbours = Window.partitionBy("topic", "partition", "original_partition", "shift").orderBy("offset")
    ranges = (
        copies.withColumn("island", sf.col("offset") - sf.row_number().over(neighbours))
        .groupBy("topic", "partition", "original_partition", "shift", "island")
        .agg(
            sf.min("offset").alias("start"),
            (sf.max("offset") + 1).alias("end"),
            sf.min("original_offset").alias("original_start"),
        )
        .orderBy("topic", "partition", "start")
        .limit(MAX_RANGES + 1)
    )
    found = spark_jobs.run(ranges.collect, "the contents cannot be compared")
    return [
        DuplicateRange(
            row.topic, row.partition, row.start, row.end, row.original_partition, row.original_start
        )
        for row in found
    ]


def contents_findings(duplicates: Iterable[DuplicateRange], evidence: Evidence) -> Iterator[Finding]:
    """Return a finding for each duplicate range, divided where the explanations differ.

    Args:
        duplicates: of which the first :data:`MAX_RANGES` are listed.
        evidence: explains them.
    """
    kind = "written twice"
    for number, each in enumerate(duplicates):
        if number == MAX_RANGES:
            why = f"there are more than {MAX_RANGES:,} ranges; the others are not listed"
            yield Finding(Severity.UNKNOWN, kind, why=why)
            return
        for start, end, severity, why in _explain(each, evidence):
            original = each.original_start + start - each.start
            where = f"same content as {each.topic}/{each.original_partition} from offset {original}"
            yield Finding(severity, kind, each.topic, each.partition, None, start, end, f"{where}: {why}")


def _explain(each: DuplicateRange, evidence: Evidence) -> Iterator[tuple[int, int, Severity, str]]:
    tp, original = (each.topic, each.partition), (each.topic, each.original_partition)
    shift = each.start - each.original_start

    def here(offsets: Offsets) -> Intervals:
        return offsets.get(tp, Intervals())

    def both(offsets: Offsets) -> Intervals:
        moved = Intervals.of(
            (start + shift, end + shift) for start, end in offsets.get(original, Intervals())
        )
        return here(offsets) & moved

    left = Intervals.span(each.start, each.end)
    for part, severity, why in (
        (here(evidence.repeated), Severity.FAULT, "the sequence number repeats; a retry was written again"),
        (both(evidence.confirmed), Severity.EXPLAINED, "sent twice; a daemon confirmed both to producers"),
        (both(evidence.numbered), Severity.EXPLAINED, "sent twice; each has its own sequence number"),
        (
            here(evidence.unnumbered),
            Severity.FAULT,
            "the producer is not idempotent, so a retry may have been written again",
        ),
        (left, Severity.UNKNOWN, "neither the journal nor the log tells who wrote it"),
    ):
        for start, end in left & part:
            yield start, end, severity, why
        left = left - part


__all__ = [
    "MAX_RANGES",
    "DuplicateRange",
    "Evidence",
    "contents_findings",
    "find_duplicates",
    "lake_rows",
    "log_rows",
]
