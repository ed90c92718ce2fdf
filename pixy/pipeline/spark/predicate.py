"""Evaluate a SQL predicate over a lake's columns with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from pixy.pipeline.errors import LakeError, UsageError
from pixy.pipeline.spark import columns


def find(spark: SparkSession, files: Sequence[str], where: str) -> Any:
    """Find the records for which a predicate is true.

    Args:
        spark: the session.
        files: paths of data files.
        where: Spark SQL over the lake's columns.

    Returns:
        A pyarrow table with ``partition`` and ``offset``.

    Raises:
        UsageError: the predicate is not SQL, or names a column that does not exist.
        LakeError: the files cannot be read.
    """
    try:
        rows = spark.read.schema(columns.SCHEMA).parquet(*files).where(where)
        return rows.select("partition", "offset").toArrow()
    except (ParseException, AnalysisException) as error:
        raise UsageError(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from error
    except PySparkException as error:
        raise LakeError(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from error
