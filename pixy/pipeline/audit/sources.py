"""The audit's sources as Spark frames: the journal's records, and facts of the lake and of the log."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from pixy.config.model import Proxy
from pixy.pipeline.audit.facts import ARCHIVED, BLOCK_BITS, LOGGED
from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake import Lake, State
from pixy.pipeline.spark.columns import SCHEMA
from pixy.pipeline.spark.kafka_options import kafka_options
from pixy.wire.types import TopicPartition

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""By (topic, partition): from which offset, up to which (exclusive)."""


def read_kafka(spark: SparkSession, proxy: Proxy, ranges: Bounds, *, committed: bool = True) -> DataFrame:
    """Spark's Kafka source over ranges of offsets; all partitions of a topic must be named."""
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (start, end) in ranges.items():
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = max(start, end)
    reader = (
        spark.read.format("kafka")
        .options(**kafka_options(proxy))
        .options(
            assign=json.dumps({topic: [int(number) for number in found] for topic, found in starts.items()}),
            startingOffsets=json.dumps(starts),
            endingOffsets=json.dumps(ends),
            # A journal of one partition is decoded by all cores.
            minPartitions=str(max(2 * (os.cpu_count() or 1), len(ranges))),
        )
    )
    if committed:
        reader = reader.option("kafka.isolation.level", "read_committed")
    return reader.load()


def live_files(lake: Lake, state: State, topic: str) -> list[str]:
    """Paths of a topic's files; raises LakeError if one is missing or was cut."""
    found = []
    for file in state.select(topic):
        size = lake.store.size(file.path)
        if size != file.size:
            is_ = "missing" if size is None else f"{size} bytes long, and {file.size} in its manifest"
            raise LakeError(f"{lake.path(file.path)} is {is_}")
        found.append(lake.path(file.path))
    return found


def journal_of_lake(spark: SparkSession, lake: Lake, state: State, topic: str) -> DataFrame:
    """The records of a journal that was archived."""
    return (
        spark.read.schema(SCHEMA)
        .parquet(*live_files(lake, state, topic))
        .select("partition", "offset", "value")
    )


def place_frame(spark: SparkSession, places: Mapping[TopicPartition, int]) -> DataFrame:
    """(topic, partition, tp): the numbers of the partitions."""
    return spark.createDataFrame(
        pa.table(
            {
                "topic": pa.array([topic for topic, _ in places], pa.string()),
                "partition": pa.array([partition for _, partition in places], pa.int32()),
                "tp": pa.array(list(places.values()), pa.int32()),
            }
        )
    )


def lake_facts(
    spark: SparkSession, lake: Lake, state: State, topics: list[str], places: DataFrame
) -> DataFrame | None:
    """Facts of the lake's rows; None if it has none of these topics."""
    paths = [path for topic in topics for path in live_files(lake, state, topic)]
    if not paths:
        return None
    rows = (
        spark.read.schema(SCHEMA)
        .parquet(*paths)
        .select(
            "topic",
            "partition",
            "offset",
            "timestamp",
            sf.col("_metadata.file_name").alias("file"),
            sf.col("_metadata.row_index").alias("row"),
        )
    )
    # A file's number is there to tell files apart: a CRC does.
    file = (sf.crc32("file") - sf.lit(1 << 31)).cast("int")
    return _facts(rows.join(sf.broadcast(places), ["topic", "partition"]), ARCHIVED, file, sf.col("row"))


def log_facts(spark: SparkSession, proxy: Proxy, ranges: Bounds, places: DataFrame) -> DataFrame | None:
    """Facts of the broker's log where the lake does not reach; None if that is nowhere."""
    wanted = {place: bounds for place, bounds in ranges.items() if bounds[0] < bounds[1]}
    if not wanted:
        return None
    rows = read_kafka(spark, proxy, wanted).select("topic", "partition", "offset", "timestamp")
    return _facts(rows.join(sf.broadcast(places), ["topic", "partition"]), LOGGED, sf.lit(0), sf.lit(0))


def _facts(rows: DataFrame, kind: int, source: Column, time: Column) -> DataFrame:
    return rows.select(
        "tp",
        sf.shiftright("offset", BLOCK_BITS).alias("block"),
        "offset",
        sf.lit(kind).cast("smallint").alias("kind"),
        source.cast("int").alias("source"),
        time.cast("bigint").alias("time"),
        sf.coalesce(sf.unix_millis("timestamp"), sf.lit(-1)).alias("timestamp"),
        sf.lit(0).alias("attempt"),
        sf.lit(-1).cast("bigint").alias("took"),
        sf.lit(0).cast("smallint").alias("code"),
    )


__all__ = [
    "Bounds",
    "journal_of_lake",
    "lake_facts",
    "live_files",
    "log_facts",
    "place_frame",
    "read_kafka",
]
