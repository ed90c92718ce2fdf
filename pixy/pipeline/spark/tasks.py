"""Run checks of a lake's files on Spark's executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import SparkSession

from pixy.pipeline.lake.data_files import FileContents
from pixy.pipeline.lake.verify import FileCheck, Runner

_TASKS_PER_CORE: Final = 4
"""So that a large file delays no other core for long."""
_FILES_A_TASK: Final = 16
"""Files whose sums come to the driver at a time, for each task."""


def on_executors(spark: SparkSession) -> Runner:
    """Return a runner for :func:`pixy.pipeline.lake.verify.verify`; executors need this package and its extra ``lake``.

    Args:
        spark: the session.
    """
    context = spark.sparkContext

    def run(checks: Sequence[FileCheck]) -> Iterator[FileContents | str]:
        if not checks:
            return
        tasks = context.defaultParallelism * _TASKS_PER_CORE
        for at in range(0, len(checks), tasks * _FILES_A_TASK):
            some = checks[at : at + tasks * _FILES_A_TASK]
            # Not toLocalIterator: it has at most two tasks running at a time, whatever the number of cores.
            yield from context.parallelize(some, min(len(some), tasks)).map(FileCheck.run).collect()

    return run
