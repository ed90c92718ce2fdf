"""One batch of an archive, from Kafka's rows to a published manifest. May be killed anywhere.

1. Spark writes the rows to a staging folder of this attempt alone: a killed attempt may have left one,
   and its JVM may even still be writing there.
2. The figures are read back from the small columns of what was written.
3. The files are moved to names that are a function of job and batch: a repeat has the same ones.
4. The manifest is published. Before that nobody looks at the files, after that nobody writes them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession, functions as F

from pixy.pipeline import columns
from pixy.pipeline.checkpoint import Checkpoint, Offsets
from pixy.pipeline.checksum import Stats
from pixy.pipeline.errors import CheckpointError, PipelineError, SourceError
from pixy.pipeline.lake import (
    BATCH,
    STAGING,
    DataFile,
    Lake,
    Manifest,
    Range,
    State,
    data_folder,
    now_ms,
    sum_by_partition,
)

logger = logging.getLogger(__name__)

SMALL_TASK = 250_000
"""Partitions with few records share tasks, and so files, of about as many records as this."""


@dataclass(frozen=True, slots=True)
class Written:
    """A file in staging and what is in it."""

    path: str
    file: DataFile


class BatchWriter:
    """Writes the batches of one run of a job.

    Args:
        state: the folded log; kept up to date.
        topic_ids: asks the broker for the ids of topics; called once a batch.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake, state: State, job: str, checkpoint: Checkpoint,
        isolation: str, topic_ids: Callable[[list[str]], dict[str, str]],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._state = state
        self._job = job
        self._checkpoint = checkpoint
        self._isolation = isolation
        self._topic_ids = topic_ids

    def write(self, records: DataFrame, batch: int) -> Manifest | None:
        """Archive a batch; None if it was published before, by a run that was killed right after."""
        start, end = self._checkpoint.ends(batch - 1), self._checkpoint.ends(batch)
        if self._is_published(batch, start, end):
            return None
        ids = self._topic_ids(sorted({topic for topic, _ in end}))
        ranges = self._ranges(start, end, ids)
        self._check(self._state, batch, ranges)
        staging = f"{STAGING}/{self._job}/{batch}-{uuid.uuid4().hex}"
        try:
            written = self._write(records, ranges, staging)
            ranges = self._with_stats(ranges, [each.file for each in written])
            files = self._move(written, batch)
            draft = Manifest(
                seq=0, previous="", kind=BATCH, published=now_ms(), job=self._job, batch=batch,
                checkpoint=self._checkpoint.id, isolation=self._isolation, ranges=tuple(ranges),
                files=tuple(files),
            )
            return self._lake.publish(
                self._state, draft, lambda state: self._check(state, batch, ranges)
            )
        finally:
            self._lake.store.remove(staging)

    # -- before -----------------------------------------------------------------------------------

    def _is_published(self, batch: int, start: Offsets, end: Offsets) -> bool:
        last = self._state.jobs.get(self._job)
        if last is None or last.checkpoint != self._checkpoint.id or last.batch != batch:
            return False
        for each in last.ranges:
            place = (each.topic, each.partition)
            if end.get(place) != each.end or start.get(place, each.start) != each.start:
                raise CheckpointError(
                    f"batch {batch} of job {self._job} is published with offsets {each.start} to "
                    f"{each.end} of {each.topic}/{each.partition}, its checkpoint plans "
                    f"{start.get(place)} to {end.get(place)}: one of the two was exchanged"
                )
        return True

    def _ranges(self, start: Offsets, end: Offsets, ids: dict[str, str]) -> list[Range]:
        ranges = []
        for (topic, partition), last in sorted(end.items()):
            first = start.get((topic, partition), 0)  # a new partition is read from its begin
            if first > last:
                raise SourceError(
                    f"{topic}/{partition} goes back from offset {first} to {last}: the topic was "
                    "deleted and created again"
                )
            if first < last:
                ranges.append(Range(topic, ids.get(topic, ""), partition, first, last, Stats()))
        return ranges

    def _check(self, state: State, batch: int, ranges: list[Range]) -> None:
        last = state.jobs.get(self._job)
        ours = last is not None and last.checkpoint == self._checkpoint.id
        wanted = last.batch + 1 if ours and last is not None else 0
        if batch != wanted:
            raise CheckpointError(
                f"the checkpoint of job {self._job} is at batch {batch}, the lake's log at {wanted}: "
                f"the entries between are missing from {self._lake.path('_manifests')}, or another "
                "process runs the same job"
            )
        for each in ranges:
            for old in state.ranges.get((each.topic, each.partition), ()):
                known = old.range
                if known.topic_id and each.topic_id and known.topic_id != each.topic_id:
                    raise SourceError(
                        f"topic {each.topic} was deleted and created again: the lake has the one with id "
                        f"{known.topic_id}, the cluster has {each.topic_id}"
                    )
                if known.start < each.end and each.start < known.end:
                    raise PipelineError(
                        f"offsets {max(known.start, each.start)} to {min(known.end, each.end) - 1} of "
                        f"{each.topic}/{each.partition} are in the lake already, from batch {old.batch} "
                        f"of job {old.job}: nothing is archived twice"
                    )

    # -- the work ---------------------------------------------------------------------------------

    def _write(self, records: DataFrame, ranges: list[Range], staging: str) -> list[Written]:
        rows = columns.with_hash(records)
        total = sum(each.end - each.start for each in ranges)
        tasks = max(self._spark.sparkContext.defaultParallelism, -(-total // SMALL_TASK))
        rows = rows.withColumn("_topic", F.col("topic")).withColumn("_date", F.to_date("timestamp"))
        if len(ranges) > 2 * tasks:
            # Many thin partitions: a file each would be small. A sort of few records costs little.
            rows = rows.coalesce(tasks).sortWithinPartitions("_topic", "_date", "partition", "offset")
        # Otherwise a task reads one partition in order, and so its files are sorted as they come.
        rows.write.partitionBy("_topic", "_date").option("compression", "zstd").parquet(
            self._lake.path(staging)
        )
        return self._read_back(staging)

    def _read_back(self, staging: str) -> list[Written]:
        root = self._lake.path(staging)
        if not any(path.endswith(".parquet") for path in self._lake.store.walk(staging)):
            return []
        rows = (
            self._spark.read.schema(columns.SCHEMA).option("recursiveFileLookup", "true").parquet(root)
            .groupBy(
                F.col("_metadata.file_path").alias("path"), F.col("_metadata.file_size").alias("file_size"),
                "topic", "partition",
            )
            .agg(*columns.stats_columns())
        )
        found: dict[str, Written] = {}
        for row in rows.collect():
            path = f"{staging}/" + unquote(row["path"]).split(f"/{staging}/", 1)[1]
            date = path.split("/_date=", 1)[1].partition("/")[0]
            if path not in found:
                file = DataFile("", row["topic"], date, 0, row["file_size"], {})
                found[path] = Written(path, file)
            file = found[path].file
            stats = columns.stats_of(row)
            found[path] = Written(path, replace(
                file, rows=file.rows + stats.count, partitions={**file.partitions, row["partition"]: stats}
            ))
        return sorted(found.values(), key=_order)

    def _with_stats(self, ranges: list[Range], files: list[DataFile]) -> list[Range]:
        sums = sum_by_partition(files)
        done = []
        for each in ranges:
            stats = sums.pop((each.topic, each.partition), Stats())
            if stats.count > each.end - each.start or (
                stats.count and not each.start <= stats.first <= stats.last < each.end
            ):
                raise PipelineError(
                    f"Spark read {stats.count} records, offsets {stats.first} to {stats.last}, of "
                    f"{each.topic}/{each.partition}, where offsets {each.start} to {each.end - 1} "
                    "were planned"
                )
            done.append(replace(each, stats=stats))
        if sums:
            raise PipelineError(f"Spark read what was not planned: {sorted(sums)}")
        return done

    def _move(self, written: list[Written], batch: int) -> list[DataFile]:
        files = []
        for number, each in enumerate(written):
            folder = data_folder(each.file.topic, each.file.date)
            name = f"{self._job}-{self._checkpoint.id[:8]}-{batch:08d}-{number:04d}.parquet"
            path = f"{folder}/{name}"
            if path in self._state.files or path in self._state.replaced:
                raise CheckpointError(f"{path} is published already: it is not written again")
            self._lake.store.move(each.path, path)
            files.append(replace(each.file, path=path))
        return files


def _order(written: Written) -> tuple[str, str, int, int]:
    first = min(written.file.partitions)
    return written.file.topic, written.file.date, first, written.file.partitions[first].first
