"""Write one batch of an archive, from Kafka's rows to a published manifest. A kill may come at any point.

1. Spark writes the rows to a staging folder of this attempt alone: a killed attempt may have left a folder,
   and its JVM may still be writing there. A task reads one partition and writes one file of it.
2. The stats are read back from the small columns of the staged files. A file that holds several days is
   split. (Opening a file for each day while writing costs a third of the batch's time, and nearly always
   there is one day.)
3. The files are moved to names derived from job and batch, so a repeated batch has the same names.
4. The manifest is published. Until then no reader opens the files; from then on no job writes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from urllib.parse import unquote

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession, functions as F

from pixy.pipeline.archive.checkpoint import Checkpoint, Offsets
from pixy.pipeline.archive.staged_files import StagedFile, share_of_mixed_days, staged_file
from pixy.pipeline.errors import CheckpointError, PipelineError, SourceError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.lake import Lake, now_ms
from pixy.pipeline.lake.layout import MANIFESTS, STAGING, data_folder
from pixy.pipeline.lake.manifest import BATCH, DataFile, Manifest, Range
from pixy.pipeline.lake.parquet_stats import read_stats
from pixy.pipeline.lake.state import State, sum_by_partition
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark import columns
from pixy.wire.types import TopicPartition

SMALL_TASK = 250_000
"""Partitions with few records share tasks, and so files, of about this many records."""
MIXED_DAYS = 0.2
"""If a larger share of a batch's records is in partitions with several days, the next batch is written by day."""

_READERS = 4


class BatchWriter:
    """Write the batches of one run of a job.

    Args:
        spark: the session.
        lake: the lake.
        state: its folded log; kept up to date.
        job: the job's name.
        checkpoint: the job's checkpoint, with the offsets that Spark planned.
        isolation: ``read_committed`` or ``read_uncommitted``.
        topic_ids: asks the broker for the ids of topics; called once a batch.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        state: State,
        job: str,
        checkpoint: Checkpoint,
        isolation: str,
        topic_ids: Callable[[list[str]], dict[str, str]],
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._state = state
        self._job = job
        self._checkpoint = checkpoint
        self._isolation = isolation
        self._topic_ids = topic_ids
        self._mixed_days = 0.0
        """Share of the last batch's records in partitions with several days."""

    def write(self, records: DataFrame, batch: int) -> Manifest | None:
        """Archive a batch.

        Args:
            records: rows of Spark's Kafka source.
            batch: Spark's number of the batch.

        Returns:
            The published entry; None if a run that was killed right afterwards has published the batch.

        Raises:
            PipelineError: the batch contradicts the log or the checkpoint; nothing was published.
        """
        start, end = self._checkpoint.ends(batch - 1), self._checkpoint.ends(batch)
        if self._is_published(batch, start, end):
            return None
        ids = self._topic_ids(sorted({topic for topic, _ in end}))
        ranges = self._ranges(start, end, ids)
        self._check(self._state, batch, ranges)
        staging = f"{STAGING}/{self._job}/{batch}-{uuid.uuid4().hex}"
        try:
            staged = self._stage(records, ranges, staging)
            ranges = self._with_stats(ranges, [each.file for each in staged])
            files = self._move(staged, batch)
            draft = Manifest(
                seq=0,
                previous="",
                kind=BATCH,
                published=now_ms(),
                job=self._job,
                batch=batch,
                checkpoint=self._checkpoint.id,
                isolation=self._isolation,
                ranges=tuple(ranges),
                files=tuple(files),
            )
            return self._lake.publish(self._state, draft, lambda state: self._check(state, batch, ranges))
        finally:
            self._lake.store.remove(staging)

    # -- checks before the work -------------------------------------------------------------------

    def _is_published(self, batch: int, start: Offsets, end: Offsets) -> bool:
        last = self._state.jobs.get(self._job)
        if last is None or last.checkpoint != self._checkpoint.id or last.batch != batch:
            return False
        for each in last.ranges:
            partition = (each.topic, each.partition)
            if end.get(partition) != each.end or start.get(partition, each.start) != each.start:
                raise CheckpointError(
                    f"batch {batch} of job {self._job} is published with offsets {each.start} to "
                    f"{each.end} of {each.topic}/{each.partition}, its checkpoint plans "
                    f"{start.get(partition)} to {end.get(partition)}: one of the two was exchanged"
                )
        return True

    def _ranges(self, start: Offsets, end: Offsets, ids: dict[str, str]) -> list[Range]:
        ranges = []
        for (topic, partition), last in sorted(end.items()):
            first = start.get((topic, partition), 0)  # a new partition is read from its beginning
            if first > last:
                raise SourceError(
                    f"{topic}/{partition} goes back from offset {first} to {last}: the topic was "
                    "deleted and created again"
                )
            if first < last:
                ranges.append(Range(topic, ids.get(topic, ""), partition, first, last, Stats()))
        return ranges

    def _check(self, state: State, batch: int, ranges: list[Range]) -> None:
        """Raise unless the batch is the next one and no range of it is in the lake."""
        last = state.jobs.get(self._job)
        ours = last is not None and last.checkpoint == self._checkpoint.id
        wanted = last.batch + 1 if ours and last is not None else 0
        if batch != wanted:
            raise CheckpointError(
                f"the checkpoint of job {self._job} is at batch {batch}, the lake's log at {wanted}: "
                f"the entries between are missing from {self._lake.path(MANIFESTS)}, or another "
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

    # -- staging ----------------------------------------------------------------------------------

    def _stage(self, records: DataFrame, ranges: list[Range], staging: str) -> list[StagedFile]:
        """Write the rows to files of one topic and day each."""
        rows = columns.with_hash(records)
        total = sum(each.end - each.start for each in ranges)
        tasks = max(self._spark.sparkContext.defaultParallelism, -(-total // SMALL_TASK))
        if len(ranges) > 2 * tasks:
            # Many thin partitions: a file each would be small. Sorting few records costs little.
            staged = self._save_by_day(rows.coalesce(tasks), f"{staging}/days")
        elif self._mixed_days > MIXED_DAYS:
            staged = self._save_by_day(rows, f"{staging}/days")
        else:
            self._writer(rows).parquet(self._lake.path(f"{staging}/flat"))
            staged = self._split(self._read_back(f"{staging}/flat"), staging)
        self._mixed_days = share_of_mixed_days(staged)
        return sorted(staged, key=lambda each: each.order)

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        return rows.write.options(**columns.PARQUET)

    def _save_by_day(self, rows: DataFrame, folder: str) -> list[StagedFile]:
        """Write a file for each task, topic and day."""
        rows = rows.withColumn("_topic", F.col("topic")).withColumn("_date", F.to_date("timestamp"))
        rows = rows.sortWithinPartitions("_topic", "_date", "partition", "offset")
        self._writer(rows).partitionBy("_topic", "_date").parquet(self._lake.path(folder))
        return self._read_back(folder)

    def _split(self, staged: list[StagedFile], staging: str) -> list[StagedFile]:
        """Rewrite files of several days as one file for each day; keep the hashes of Kafka's rows."""
        whole = [each for each in staged if each.file.date]
        mixed = [each for each in staged if not each.file.date]
        if not mixed:
            return whole
        paths = [self._lake.path(each.path) for each in mixed]
        split = self._save_by_day(self._spark.read.schema(columns.SCHEMA).parquet(*paths), f"{staging}/days")
        before, after = (sum_by_partition([each.file for each in some]) for some in (mixed, split))
        if before != after:
            raise PipelineError(
                f"the files split by day hold {after}, the files before the split {before}: "
                "nothing is published"
            )
        return whole + split

    def _read_back(self, folder: str) -> list[StagedFile]:
        """Read the stats of a folder's files from their small columns."""
        paths = [path for path in self._lake.store.walk(folder) if path.endswith(".parquet")]
        if not paths:
            return []
        if not isinstance(self._lake.store, LocalStore):
            return self._read_back_by_spark(folder)
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(read_stats, [self._lake.path(path) for path in paths])
        return [
            staged_file(path, self._lake.store.size(path) or 0, stats)
            for path, stats in zip(paths, found, strict=True)
            if stats
        ]

    def _read_back_by_spark(self, folder: str) -> list[StagedFile]:
        rows = (
            self._spark.read.schema(columns.SCHEMA)
            .option("recursiveFileLookup", "true")
            .parquet(self._lake.path(folder))
            .groupBy(
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_size").alias("file_size"),
                "topic",
                "partition",
            )
            .agg(*columns.stats_columns())
        )
        found: dict[tuple[str, int], dict[TopicPartition, Stats]] = {}
        for row in rows.collect():
            path = f"{folder}/" + unquote(row["path"]).split(f"/{folder}/", 1)[1]
            partitions = found.setdefault((path, row["file_size"]), {})
            partitions[row["topic"], row["partition"]] = columns.stats_of(row)
        return [staged_file(path, size, stats) for (path, size), stats in found.items()]

    # -- publishing -------------------------------------------------------------------------------

    def _with_stats(self, ranges: list[Range], files: list[DataFile]) -> list[Range]:
        """Add the files' stats to the planned ranges; raise if Spark read other offsets."""
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
            raise PipelineError(f"Spark read partitions that were not planned: {sorted(sums)}")
        return done

    def _move(self, staged: list[StagedFile], batch: int) -> list[DataFile]:
        """Move the files to their final names."""
        files = []
        for number, each in enumerate(staged):
            folder = data_folder(each.file.topic, each.file.date)
            name = f"{self._job}-{self._checkpoint.id[:8]}-{batch:08d}-{number:04d}.parquet"
            path = f"{folder}/{name}"
            if path in self._state.files or path in self._state.replaced:
                raise CheckpointError(f"{path} is published already: it is not written again")
            self._lake.store.move(each.path, path)
            files.append(replace(each.file, path=path))
        return files
