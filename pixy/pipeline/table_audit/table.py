"""Read the mapped columns of a foreign table as (topic, partition, offset, timestamp, written), and survey them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, functions as sf
from pyspark.sql.types import DateType, NumericType, TimestampNTZType, TimestampType

from pixy.pipeline.audit.spark_jobs import run
from pixy.pipeline.errors import SourceError
from pixy.pipeline.table_audit.request import TableRequest
from pixy.wire.types import TopicPartition

MAX_PARTITIONS = 100_000
"""Partitions that a table may name: each takes a row in the driver's memory."""


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """The table's rows of one partition.

    Attributes:
        rows: how many; an offset may have several.
        first: the lowest offset.
        last: the highest.
        late: rows that were written later than the bound after their record's timestamp.
        first_late: the lowest offset among them; -1 if there are none.
    """

    rows: int
    first: int
    last: int
    late: int = 0
    first_late: int = -1


@dataclass(frozen=True, slots=True)
class Survey:
    """What the table holds.

    Attributes:
        unmapped: rows whose partition or offset is null, negative or no number, or whose topic is null.
    """

    partitions: dict[TopicPartition, PartitionRows]
    unmapped: int


def read_table(spark: SparkSession, request: TableRequest) -> DataFrame:
    """Return the mapped columns; partition and offset are null where they are no numbers.

    Raises:
        SourceError: the table or a column does not exist, or the format's jars are missing.
    """
    try:
        table = spark.read.format(request.format).options(**request.options).load(request.table)
        columns = [
            _role(request, "topic"),
            _number(request, "partition", "int"),
            _number(request, "offset", "bigint"),
        ]
        columns += [_millis(table, request, role) for role in ("timestamp", "written")]
        rows = table.select(*columns)
    except AnalysisException as error:
        raise SourceError(
            f"{request.table} cannot be read as {request.format}: {_first_line(error)}"
        ) from error
    except Exception as error:
        if "ClassNotFound" not in str(error) and "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise SourceError(
            f"Spark lacks the jars of the format {request.format}: give them with --table-jars"
        ) from error
    if request.topics:
        rows = rows.where(sf.col("topic").isin(list(request.topics)) | sf.col("topic").isNull())
    return rows


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _role(request: TableRequest, role: str) -> Column:
    column = request.columns.get(role)
    return (sf.lit(request.topics[0]) if column is None else sf.col(column).cast("string")).alias(role)


def _number(request: TableRequest, role: str, type_: str) -> Column:
    # By way of text, so that a fraction or a name becomes null and does not end the job.
    number = sf.col(request.columns[role]).cast("string").try_cast(type_)
    return sf.when(number >= 0, number).alias(role)


def _millis(table: DataFrame, request: TableRequest, role: str) -> Column:
    name = request.columns.get(role)
    if name is None:
        return sf.lit(None).cast("bigint").alias(role)
    type_ = table.select(sf.col(name)).schema[0].dataType
    if isinstance(type_, TimestampType | TimestampNTZType | DateType):
        return sf.unix_millis(sf.col(name).cast("timestamp")).alias(role)
    if isinstance(type_, NumericType):  # as Kafka's: milliseconds of the epoch
        return sf.col(name).cast("bigint").alias(role)
    raise SourceError(
        f"column {name} ({type_.simpleString()}) is no time: a timestamp or milliseconds since 1970 is needed"
    )


def survey(rows: DataFrame, late_after: int) -> Survey:
    """Count the rows of each partition; the driver gets a row for each.

    Args:
        rows: of :func:`read_table`.
        late_after: the bound of late rows, milliseconds.

    Raises:
        SourceError: the table cannot be read, or names more than MAX_PARTITIONS partitions.
    """
    late = sf.col("written") - sf.col("timestamp") > late_after
    mapped = sf.col("topic").isNotNull() & sf.col("partition").isNotNull() & sf.col("offset").isNotNull()
    grouped = (
        rows.groupBy(
            sf.when(mapped, sf.col("topic")).alias("topic"),
            sf.when(mapped, sf.col("partition")).alias("partition"),
        )
        .agg(
            sf.count(sf.lit(1)).alias("rows"),
            sf.min("offset").alias("first"),
            sf.max("offset").alias("last"),
            sf.count_if(late).alias("late"),
            sf.min(sf.when(late, sf.col("offset"))).alias("first_late"),
        )
        .limit(MAX_PARTITIONS + 1)
    )
    found: list[Any] = run(grouped.collect, "the table cannot be read")
    if len(found) > MAX_PARTITIONS:
        raise SourceError(f"the table names more than {MAX_PARTITIONS:,} partitions: is the mapping right?")
    partitions = {
        (row["topic"], row["partition"]): PartitionRows(
            row["rows"],
            row["first"],
            row["last"],
            row["late"],
            -1 if row["first_late"] is None else row["first_late"],
        )
        for row in found
        if row["topic"] is not None
    }
    return Survey(partitions, sum(row["rows"] for row in found if row["topic"] is None))


__all__ = ["MAX_PARTITIONS", "PartitionRows", "Survey", "read_table", "survey"]
