"""One batch of an archive, from Kafka's rows to a published manifest. May be killed anywhere.

1. Spark writes the rows to a staging folder of this attempt alone: a killed attempt may have left one,
   and its JVM may even still be writing there. A task reads one partition and writes one file of it.
2. The figures are read back from the small columns of what was written. A file that holds several days is
   split. (To open a file per day while writing costs a third of the batch's time, and nearly always
   there is one day.)
3. The files are moved to names that are a function of job and batch: a repeat has the same ones.
4. The manifest is published. Before that nobody looks at the files, after that nobody writes them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta
from urllib.parse import unquote

from pyspark.sql import DataFrame, DataFrameWriter, SparkSession, functions as F

from pixy.pipeline.archive.checkpoint import Checkpoint, Offsets
from pixy.pipeline.errors import CheckpointError, PipelineError, SourceError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.lake import (
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
from pixy.pipeline.lake.parquet_stats import figures
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark import columns

logger = logging.getLogger(__name__)

SMALL_TASK = 250_000
"""Partitions with few records share tasks, and so files, of about as many records as this."""
SEVERAL = 0.2
"""If more of a batch's records than this are in partitions with several days, the next one is written by day."""

_READERS = 4
_DAY = 86_400_000
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days


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
        self._days = 0.0
        """Of the last batch: how many of its records were in partitions with several days."""

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
        if len(ranges) > 2 * tasks:
            # Many thin partitions: a file each would be small. A sort of few records costs little.
            written = self._save_by_day(rows.coalesce(tasks), f"{staging}/days")
        elif self._days > SEVERAL:
            written = self._save_by_day(rows, f"{staging}/days")
        else:
            self._writer(rows).parquet(self._lake.path(f"{staging}/flat"))
            written = self._split(self._read_back(f"{staging}/flat"), staging)
        self._days = _share_of_several_days(written)
        return sorted(written, key=_order)

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        return rows.write.options(**columns.PARQUET)

    def _save_by_day(self, rows: DataFrame, folder: str) -> list[Written]:
        """Write a file per task, topic and day."""
        rows = rows.withColumn("_topic", F.col("topic")).withColumn("_date", F.to_date("timestamp"))
        rows = rows.sortWithinPartitions("_topic", "_date", "partition", "offset")
        self._writer(rows).partitionBy("_topic", "_date").parquet(self._lake.path(folder))
        return self._read_back(folder)

    def _split(self, written: list[Written], staging: str) -> list[Written]:
        """Files of one topic and day each from files that may hold more; the hashes stay those of Kafka's rows."""
        whole = [each for each in written if each.file.date]
        mixed = [each for each in written if not each.file.date]
        if not mixed:
            return whole
        paths = [self._lake.path(each.path) for each in mixed]
        split = self._save_by_day(self._spark.read.schema(columns.SCHEMA).parquet(*paths), f"{staging}/days")
        before, after = (sum_by_partition([each.file for each in some]) for some in (mixed, split))
        if before != after:
            raise PipelineError(f"what was split by days holds {after}, not {before}: nothing is published")
        return whole + split

    def _read_back(self, folder: str) -> list[Written]:
        """The files of a folder and what is in them, by their small columns."""
        paths = [path for path in self._lake.store.walk(folder) if path.endswith(".parquet")]
        if not paths:
            return []
        if not isinstance(self._lake.store, LocalStore):
            return self._read_back_by_spark(folder)
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(figures, [self._lake.path(path) for path in paths])
        return [
            _written(path, self._lake.store.size(path) or 0, stats)
            for path, stats in zip(paths, found, strict=True)
            if stats
        ]

    def _read_back_by_spark(self, folder: str) -> list[Written]:
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
        found: dict[tuple[str, int], dict[tuple[str, int], Stats]] = {}
        for row in rows.collect():
            path = f"{folder}/" + unquote(row["path"]).split(f"/{folder}/", 1)[1]
            places = found.setdefault((path, row["file_size"]), {})
            places[row["topic"], row["partition"]] = columns.stats_of(row)
        return [_written(path, size, stats) for (path, size), stats in found.items()]

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


def _written(path: str, size: int, found: dict[tuple[str, int], Stats]) -> Written:
    """A file in staging; one that was not written by day has no date if it is to be split."""
    topics = {topic for topic, _ in found}
    if len(topics) > 1:
        raise PipelineError(f"Spark put records of {', '.join(sorted(topics))} into one file")
    days = {_day(stats) for stats in found.values()}
    day = path.partition("/_date=")[2].partition("/")[0] or (days.pop() if len(days) == 1 else "")
    return Written(
        path,
        DataFile(
            "",
            topics.pop(),
            day,
            sum(stats.count for stats in found.values()),
            size,
            {number: stats for (_, number), stats in sorted(found.items())},
        ),
    )


def _day(stats: Stats) -> str:
    """The day (UTC) that all records are of; empty if they are of several, or of none with four digits."""
    days = {milliseconds // _DAY for milliseconds in (stats.min_timestamp, stats.max_timestamp)}
    day = days.pop()
    if days or not _FIRST_DAY <= day <= _LAST_DAY:
        return ""
    return (_EPOCH + timedelta(days=day)).isoformat()


def _share_of_several_days(written: list[Written]) -> float:
    """How many of the records, 0 to 1, are in partitions that have records of several days."""
    rows: dict[tuple[str, int], dict[str, int]] = {}
    for each in written:
        for number, stats in each.file.partitions.items():
            days = rows.setdefault((each.file.topic, number), {})
            days[each.file.date] = days.get(each.file.date, 0) + stats.count
    sums = [(sum(days.values()), len(days) > 1) for days in rows.values()]
    return sum(count for count, several in sums if several) / max(1, sum(count for count, _ in sums))


def _order(written: Written) -> tuple[str, str, int, int]:
    first = min(written.file.partitions)
    return written.file.topic, written.file.date, first, written.file.partitions[first].first
