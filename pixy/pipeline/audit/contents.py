"""The same content at two offsets of a topic: timestamp, key, value and headers, as the lake's ``hash`` has them.

A producer that retries writes its message again, with the time it was made at; an application that sends a
message twice makes two of them, which differ in their time as a rule, and in their sequence numbers always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession, Window, functions as sf

from pixy.config.model import Proxy
from pixy.pipeline.audit import engine
from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.sources import live_files
from pixy.pipeline.lake import Lake, State
from pixy.pipeline.spark.columns import SCHEMA, content_hash
from pixy.wire.types import TopicPartition

MOST_RANGES = 100_000
"""Ranges that are told; what is beyond is one finding that says so."""

_NEEDED = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key:string,value:binary>>"
)


@dataclass(frozen=True, slots=True)
class Twice:
    """Offsets ``[start, end)`` have, one by one, the content of those from ``of_start`` on of another place."""

    topic: str
    partition: int
    start: int
    end: int
    of_partition: int
    of_start: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of who wrote, by partition.

    Attributes:
        answered: a daemon confirmed them to a producer (the journal).
        numbered: written by idempotent producers; ``plain`` by others (the log).
        repeated: with a sequence number that was there before (the log).
    """

    answered: Mapping[TopicPartition, Intervals] = field(default_factory=dict)
    numbered: Mapping[TopicPartition, Intervals] = field(default_factory=dict)
    plain: Mapping[TopicPartition, Intervals] = field(default_factory=dict)
    repeated: Mapping[TopicPartition, Intervals] = field(default_factory=dict)


def lake_rows(spark: SparkSession, lake: Lake, state: State, topics: Iterable[str]) -> DataFrame | None:
    """(topic, partition, offset, hash) of the lake; None if it has none of these topics."""
    paths = [path for topic in topics for path in live_files(lake, state, topic)]
    if not paths:
        return None
    return spark.read.schema(SCHEMA).parquet(*paths).select("topic", "partition", "offset", "hash")


def log_rows(
    spark: SparkSession, proxy: Proxy, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> DataFrame | None:
    """The same of the broker's log; None if the ranges are empty."""
    rows = engine.read_log(spark, proxy, bounds, _NEEDED, isolationLevel="read_committed")
    return None if rows is None else rows.select("topic", "partition", "offset", content_hash().alias("hash"))


def find_twice(rows: DataFrame) -> list[Twice]:
    """Where content is there again, by topic, partition and offset; MOST_RANGES and one more at most.

    Of offsets with the same content the first is the one in the lowest partition, with the lowest offset.
    Raises SourceError if a source can not be read.
    """
    again = rows.groupBy("topic", "hash").count().where("count > 1").drop("count")
    # An offset that is there twice is another matter: archived twice.
    some = rows.join(again, ["topic", "hash"]).dropDuplicates(["topic", "partition", "offset"])
    alike = Window.partitionBy("topic", "hash").orderBy("partition", "offset")
    copies = (
        some.select(
            "topic",
            "partition",
            "offset",
            sf.row_number().over(alike).alias("nth"),
            sf.first("partition").over(alike).alias("of_partition"),
            sf.first("offset").over(alike).alias("of_offset"),
        )
        .where("nth > 1")
        .withColumn("shift", sf.expr("offset - of_offset"))
    )
    row = Window.partitionBy("topic", "partition", "of_partition", "shift").orderBy("offset")
    ranges = (
        copies.withColumn("island", sf.col("offset") - sf.row_number().over(row))
        .groupBy("topic", "partition", "of_partition", "shift", "island")
        .agg(
            sf.min("offset").alias("start"),
            (sf.max("offset") + 1).alias("end"),
            sf.min("of_offset").alias("of_start"),
        )
        .orderBy("topic", "partition", "start")
        .limit(MOST_RANGES + 1)
    )
    found = engine.run(ranges.collect, "the contents can not be compared")
    return [
        Twice(each.topic, each.partition, each.start, each.end, each.of_partition, each.of_start)
        for each in found
    ]


def of_contents(twice: Iterable[Twice], evidence: Evidence) -> Iterator[Finding]:
    """Findings: each duplicate explained, or not."""
    for number, each in enumerate(twice):
        if number == MOST_RANGES:
            yield Finding(
                Severity.UNKNOWN, "written twice", why=f"more than {MOST_RANGES} ranges; the rest is not told"
            )
            return
        for start, end, severity, why in _explained(each, evidence):
            first = each.of_start + start - each.start
            yield Finding(
                severity,
                "written twice",
                each.topic,
                each.partition,
                None,
                start,
                end,
                f"as {each.topic}/{each.of_partition} from {first} on: {why}",
            )


def _explained(each: Twice, evidence: Evidence) -> Iterator[tuple[int, int, Severity, str]]:
    place, of = (each.topic, each.partition), (each.topic, each.of_partition)
    shift = each.start - each.of_start

    def here(known: Mapping[TopicPartition, Intervals]) -> Intervals:
        return known.get(place, Intervals())

    def both(known: Mapping[TopicPartition, Intervals]) -> Intervals:
        moved = Intervals.of((start + shift, end + shift) for start, end in known.get(of, Intervals()))
        return here(known) & moved

    left = Intervals.span(each.start, each.end)
    for part, severity, why in (
        (
            here(evidence.repeated),
            Severity.FAULT,
            "its sequence number is there twice, a retry was written again",
        ),
        (both(evidence.answered), Severity.EXPLAINED, "sent twice, a daemon confirmed both to producers"),
        (both(evidence.numbered), Severity.EXPLAINED, "sent twice, each has a sequence number of its own"),
        (
            here(evidence.plain),
            Severity.FAULT,
            "its producer is not idempotent, so a retry may have been written again",
        ),
        (left, Severity.UNKNOWN, "neither the journal nor the log tells who wrote it"),
    ):
        for start, end in left & part:
            yield start, end, severity, why
        left = left - part


__all__ = [
    "MOST_RANGES",
    "Evidence",
    "Twice",
    "find_twice",
    "lake_rows",
    "log_rows",
    "of_contents",
]
