"""Translate the texts of Spark's and Kafka's errors into the pipeline's errors."""

from __future__ import annotations

import re
from collections.abc import Callable

from pixy.pipeline.archive.job import Job
from pixy.pipeline.errors import PipelineError, SourceError
from pixy.pipeline.spark.java_errors import FULL, cause

_CAUSES: tuple[tuple[str, Callable[[Job, str], PipelineError]], ...] = (
    (
        FULL,
        lambda job, text: PipelineError(
            f"the disk of {job.lake} (or Spark's temporary folder) is full, or files may not grow (quota, ulimit); "
            f"published batches are whole, the current batch was not published: {text}"
        ),
    ),
    (
        r"OffsetOutOfRange|data may have been lost|KAFKA_DATA_LOSS|out of range",
        lambda _, text: SourceError(
            f"Kafka has deleted offsets before they were archived (retention, DeleteRecords, or a topic "
            f"deleted and created again); --on-data-loss skip continues without them: {text}"
        ),
    ),
    (
        r"UnknownTopicOrPartition|partitions? (are|is) gone",
        lambda job, text: SourceError(f"a topic of {job.subscription} was deleted: {text}"),
    ),
    (
        r"Timeout|TimeoutException|DisconnectException|Failed to (construct|create)",
        lambda job, text: SourceError(
            f"cluster {job.cluster} ({','.join(job.proxy.kafka.seed_peers)}) does not answer: {text}"
        ),
    ),
    (
        r"OutOfMemoryError",
        lambda _, text: PipelineError(
            f"Spark ran out of memory: give --conf spark.driver.memory or a smaller --batch-records: {text}"
        ),
    ),
)


def explain(text: str, job: Job, short: str = "") -> PipelineError:
    """Make the pipeline's error from the text of one of Spark's.

    Args:
        text: Spark's text, stack traces included.
        job: the job that failed.
        short: the part of the text to show; default: its last cause.
    """
    short = short or cause(text)
    for pattern, make in _CAUSES:
        if re.search(pattern, text):
            return make(job, short)
    return PipelineError(f"the archive of {job.subscription} failed: {short}")
