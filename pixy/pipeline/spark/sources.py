"""Read ranges of offsets with Spark's Kafka source, as a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from pixy.wire.types import TopicPartition


def read_ranges(
    spark: SparkSession, ranges: Mapping[TopicPartition, tuple[int, int]], options: Mapping[str, str]
) -> DataFrame:
    """Return the records of ranges of offsets.

    Args:
        spark: the session.
        ranges: offsets ``[start, end)`` by partition.
        options: of the source.
    """
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for (topic, partition), (start, end) in sorted(ranges.items()):
        assigned.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = start
        ends.setdefault(topic, {})[str(partition)] = max(start, end)
    return (
        spark.read.format("kafka")
        .options(**options)
        .options(
            assign=json.dumps(assigned), startingOffsets=json.dumps(starts), endingOffsets=json.dumps(ends)
        )
        .load()
    )
