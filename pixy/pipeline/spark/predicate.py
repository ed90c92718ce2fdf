"""A SQL predicate over the lake's columns, evaluated by Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession

from pixy.pipeline.errors import LakeError, UsageError
from pixy.pipeline.spark import columns


def find(spark: SparkSession, files: Sequence[str], where: str) -> Any:
    """A pyarrow table with ``partition`` and ``offset`` of the records for which ``where`` is true.

    Raises:
        UsageError: it is no SQL, or names what is not there.
        LakeError: the files can not be read.
    """
    try:
        rows = spark.read.schema(columns.SCHEMA).parquet(*files).where(where)
        return rows.select("partition", "offset").toArrow()
    except (ParseException, AnalysisException) as error:
        raise UsageError(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from error
    except PySparkException as error:
        raise LakeError(f"--where {where!r}: {str(error).strip().splitlines()[0]}") from error
