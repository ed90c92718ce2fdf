"""Evaluate a SQL predicate over a lake's columns with Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession, functions as F

from pixy.pipeline.errors import LakeError, UsageError
from pixy.pipeline.lake.selection import Piece
from pixy.pipeline.spark import columns

BLOCK: Final = 65_536
"""Offsets of a partition that come to the driver at a time."""


def find(
    spark: SparkSession, files: Sequence[str], where: str, typed: Mapping[str, pa.DataType]
) -> Iterator[Piece]:
    """Find the records for which a predicate is true; the driver holds those of one task at a time.

    Args:
        spark: the session.
        files: paths of data files.
        where: Spark SQL over the lake's columns.
        typed: columns of decoded values.

    Yields:
        A partition and sorted offsets of it; pieces are sorted.

    Raises:
        UsageError: the predicate is not SQL, or names a column that does not exist.
        LakeError: the files cannot be read.
    """
    with readable(where):
        rows = spark.read.schema(columns.file_schema(typed)).parquet(*files).where(where)
        pieces = (
            rows.groupBy("partition", F.floor(F.col("offset") / BLOCK).alias("block"))
            .agg(F.sort_array(F.collect_list("offset")).alias("offsets"))
            .sort("partition", "block")
        )
        for row in pieces.toLocalIterator():
            yield row["partition"], row["offsets"]


@contextmanager
def readable(where: str) -> Iterator[None]:
    """Raise Spark's errors about a condition as ours, in one line.

    Args:
        where: the condition.
    """
    try:
        yield
    except (ParseException, AnalysisException) as error:
        raise UsageError(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from error
    except PySparkException as error:
        raise LakeError(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from error
