"""The lake's columns and checksums as Spark expressions; ``lake.checksum`` has the same in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pixy.pipeline.lake.checksum import MASK, Stats

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField(
            "headers",
            ArrayType(
                StructType(
                    [
                        StructField("key", StringType()),
                        StructField("value", BinaryType()),
                    ]
                )
            ),
        ),
        StructField("size", IntegerType()),
        StructField("hash", LongType()),
    ]
)

FILE_SCHEMA = StructType([*SCHEMA.fields, StructField("topic_id", StringType())])
"""Columns of new data files; those of format 1 lack the topic's id."""


def file_schema(typed: Mapping[str, pa.DataType]) -> StructType:
    """Return the columns of data files with decoded values.

    Args:
        typed: the columns of decoded values.
    """
    return StructType([*FILE_SCHEMA.fields, *from_arrow_schema(pa.schema(list(typed.items()))).fields])


PARQUET = {
    "compression": "zstd",
    # Delta encodings of offsets, times and keys: 3 % less on disk, and no more work for writer or reader.
    "parquet.writer.version": "v2",
}
"""Options for writing data files."""

_LOW = 0xFFFFFFFF


def _length(column: Column) -> Column:
    return F.coalesce(F.octet_length(column), F.lit(-1))


def content_hash() -> Column:
    """Build :func:`pixy.pipeline.lake.checksum.content_hash` as a signed long.

    The lambdas are interpreted, so they stand behind a condition: a record without headers, the common case,
    does not pay for them. A null column leaves the chain as it is.
    """
    headers = F.col("headers")
    count = F.coalesce(F.size(headers), F.lit(0))
    some = F.size(headers) > 0
    return F.xxhash64(
        F.unix_millis("timestamp"),
        _length(F.col("key")),
        F.col("key"),
        _length(F.col("value")),
        F.col("value"),
        F.when(count > 0, count).otherwise(0),
        F.when(some, headers["key"]),
        F.when(some, F.transform(headers, lambda each: _length(each["value"]))),
        F.when(some, headers["value"]),
    )


def payload_size() -> Column:
    """Build :func:`pixy.pipeline.lake.checksum.payload_size`."""
    headers = F.col("headers")
    return (
        F.coalesce(F.octet_length("key"), F.lit(0))
        + F.coalesce(F.octet_length("value"), F.lit(0))
        + F.when(
            F.size(headers) > 0,
            F.aggregate(
                headers,
                F.lit(0),
                lambda sum_, each: (
                    sum_ + F.octet_length(each["key"]) + F.coalesce(F.octet_length(each["value"]), F.lit(0))
                ),
            ),
        ).otherwise(0)
    )


_FIRST_DAY, _LAST_DAY = "0001-01-01", "9999-12-31"


def day() -> Column:
    """Build the UTC day of the timestamp; null for years that other readers of dates do not know."""
    found = F.to_date("timestamp")
    return F.when(found.between(F.lit(_FIRST_DAY).cast("date"), F.lit(_LAST_DAY).cast("date")), found)


def _topic_id(ids: Mapping[str, str]) -> Column:
    if len(set(ids.values())) <= 1:
        return F.lit(next(iter(ids.values()), ""))
    pairs = [F.lit(text) for pair in ids.items() for text in pair]
    return F.create_map(*pairs)[F.col("topic")]


def with_hash(records: DataFrame, ids: Mapping[str, str]) -> DataFrame:
    """Select the lake's columns from rows of Spark's Kafka source.

    Args:
        records: the rows.
        ids: Kafka's id of each topic.
    """
    return records.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "key",
        "value",
        "headers",
        payload_size().cast("int").alias("size"),
        content_hash().alias("hash"),
        _topic_id(ids).alias("topic_id"),
    )


def _sum(hashes: Column, name: str) -> list[Column]:
    # A sum of longs overflows, which ANSI mode refuses, so sum the halves separately.
    return [
        F.sum(hashes.bitwiseAND(F.lit(_LOW))).alias(f"{name}_low"),
        F.sum(F.shiftrightunsigned(hashes, 32)).alias(f"{name}_high"),
    ]


def _record_hash() -> Column:
    return F.xxhash64("topic", "partition", "offset", "timestampType", "hash")


def observed_columns() -> list[Column]:
    """Build the aggregates over lake columns that :func:`observed_of` converts."""
    return [F.count(F.lit(1)).alias("count"), *_sum(_record_hash(), "record")]


def observed_of(row: Mapping[str, Any]) -> tuple[int, int]:
    """Convert what Spark observed of :func:`observed_columns` to a count and a checksum."""
    return row["count"], (((row["record_high"] or 0) << 32) + (row["record_low"] or 0)) & MASK


def stats_columns() -> list[Column]:
    """Build the aggregates over lake columns that :func:`stats_of` converts to Stats."""
    millis = F.unix_millis("timestamp")
    return [
        F.count(F.lit(1)).alias("count"),
        F.sum(F.col("size").cast("long")).alias("bytes"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.min(millis).alias("min_timestamp"),
        F.max(millis).alias("max_timestamp"),
        *_sum(_record_hash(), "record"),
        *_sum(F.col("hash"), "content"),
    ]


def stats_of(row: Row) -> Stats:
    """Convert a row of :func:`stats_columns` to Stats."""
    return Stats(
        row["count"],
        row["bytes"],
        row["first"],
        row["last"],
        row["min_timestamp"],
        row["max_timestamp"],
        ((row["record_high"] << 32) + row["record_low"]) & MASK,
        ((row["content_high"] << 32) + row["content_low"]) & MASK,
    )
