"""Run checks of a lake's files on Spark's executors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import SparkSession

from pixy.pipeline.lake.data_files import FileContents
from pixy.pipeline.lake.verify import FileCheck, Runner

_TASKS_PER_CORE: Final = 4
"""So that a large file delays no other core for long."""


def on_executors(spark: SparkSession) -> Runner:
    """Return a runner for :func:`pixy.pipeline.lake.verify.verify`; executors need this package and its extra ``lake``.

    Args:
        spark: the session.
    """
    context = spark.sparkContext

    def run(checks: Sequence[FileCheck]) -> Iterable[FileContents | str]:
        if not checks:
            return ()
        tasks = min(len(checks), context.defaultParallelism * _TASKS_PER_CORE)
        return context.parallelize(checks, tasks).map(FileCheck.run).toLocalIterator(prefetchPartitions=True)

    return run
