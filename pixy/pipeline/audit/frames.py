"""Read the audit's sources as Spark frames: the journal's records, and facts of the lake and of the log."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as sf

from pixy.config.model import Proxy
from pixy.pipeline.audit.facts import ARCHIVED, BLOCK_BITS, LOGGED
from pixy.pipeline.errors import LakeError
from pixy.pipeline.lake import DataFile, Lake, State
from pixy.pipeline.spark.columns import SCHEMA
from pixy.pipeline.spark.kafka_options import kafka_options
from pixy.wire.types import TopicPartition

Bounds = Mapping[TopicPartition, tuple[int, int]]
"""By partition, the offsets ``[start, end)``."""


def read_kafka(spark: SparkSession, proxy: Proxy, ranges: Bounds, *, committed: bool = True) -> DataFrame:
    """Read ranges of offsets with Spark's Kafka source.

    Args:
        spark: the session to run on.
        proxy: the cluster.
        ranges: must name every partition of a topic.
        committed: whether to leave out records of aborted transactions.
    """
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (start, end) in ranges.items():
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = max(start, end)
    reader = (
        spark.read.format("kafka")
        .options(**kafka_options(proxy))
        .options(
            assign=json.dumps(
                {topic: [int(number) for number in numbers] for topic, numbers in starts.items()}
            ),
            startingOffsets=json.dumps(starts),
            endingOffsets=json.dumps(ends),
            # All cores decode a journal of one partition.
            minPartitions=str(max(2 * (os.cpu_count() or 1), len(ranges))),
        )
    )
    if committed:
        reader = reader.option("kafka.isolation.level", "read_committed")
    return reader.load()


def live_files(
    lake: Lake, state: State, topic: str, wanted: Callable[[DataFile], bool] = lambda _: True
) -> list[str]:
    """Return the paths of a topic's files.

    Args:
        lake: the lake.
        state: its live files.
        topic: the topic's name.
        wanted: leaves out files.

    Raises:
        LakeError: a file is missing, or its size is not that of the table.
    """
    paths = []
    for file in filter(wanted, state.select(topic)):
        size = lake.size(file.path)
        if size != file.size:
            actual = "is missing" if size is None else f"has {size} bytes; the table says {file.size}"
            raise LakeError(f"{lake.path(file.path)} {actual}")
        paths.append(lake.location.for_spark(file.path))
    return paths


def journal_of_lake(spark: SparkSession, lake: Lake, state: State, topic: str) -> DataFrame:
    """Read the records of an archived journal.

    Args:
        spark: the session to run on.
        lake: the lake.
        state: its live files.
        topic: the journal's topic.
    """
    return (
        spark.read.schema(SCHEMA)
        .parquet(*live_files(lake, state, topic))
        .select("partition", "offset", "value")
    )


def partition_frame(
    spark: SparkSession, partitions: Mapping[TopicPartition, int], slices: Bounds | None = None
) -> DataFrame:
    """Return the partitions' numbers as a frame of (topic, partition, tp_id, low, high).

    Args:
        spark: the session to run on.
        partitions: the number (``tp_id``) of each.
        slices: the offsets ``[low, high)`` to look at; all of a partition that has none.
    """
    parts = [(slices or {}).get(tp, (0, 1 << 62)) for tp in partitions]
    return spark.createDataFrame(
        pa.table(
            {
                "topic": pa.array([topic for topic, _ in partitions], pa.string()),
                "partition": pa.array([partition for _, partition in partitions], pa.int32()),
                "tp_id": pa.array(list(partitions.values()), pa.int32()),
                "low": pa.array([low for low, _ in parts], pa.int64()),
                "high": pa.array([high for _, high in parts], pa.int64()),
            }
        )
    )


def lake_facts(
    spark: SparkSession,
    lake: Lake,
    state: State,
    topics: list[str],
    partitions: DataFrame,
    wanted: Callable[[DataFile], bool] = lambda _: True,
) -> DataFrame | None:
    """Return the facts of the lake's rows; None if it has none of the topics.

    Args:
        spark: the session to run on.
        lake: the lake.
        state: its live files.
        topics: the topics to read.
        partitions: frame of :func:`partition_frame`.
        wanted: leaves out files.
    """
    paths = [path for topic in topics for path in live_files(lake, state, topic, wanted)]
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
    # The number only has to tell files apart; a CRC does.
    file = (sf.crc32("file") - sf.lit(1 << 31)).cast("int")
    return _facts(rows, partitions, ARCHIVED, file, sf.col("row"))


def log_facts(spark: SparkSession, proxy: Proxy, ranges: Bounds, partitions: DataFrame) -> DataFrame | None:
    """Return the facts of ranges of the broker's log; None if all are empty.

    Args:
        spark: the session to run on.
        proxy: the cluster.
        ranges: by partition, the offsets ``[start, end)``.
        partitions: frame of :func:`partition_frame`.
    """
    wanted = {tp: bounds for tp, bounds in ranges.items() if bounds[0] < bounds[1]}
    if not wanted:
        return None
    rows = read_kafka(spark, proxy, wanted).select("topic", "partition", "offset", "timestamp")
    return _facts(rows, partitions, LOGGED, sf.lit(0), sf.lit(0))


def _facts(rows: DataFrame, partitions: DataFrame, kind: int, source: Column, time: Column) -> DataFrame:
    numbered = rows.join(sf.broadcast(partitions), ["topic", "partition"])
    return numbered.where("offset >= low and offset < high").select(
        "tp_id",
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
    "partition_frame",
    "read_kafka",
]
