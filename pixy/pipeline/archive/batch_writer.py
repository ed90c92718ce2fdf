"""Write one batch of an archive, from Kafka's rows to a commit of the table. A kill may come at any point.

1. Spark writes the rows to a folder of this attempt alone: a killed attempt may have left a folder, and its JVM may
   still be writing there. A task reads one partition and writes one file of it. Spark observes the count and the
   checksum of the rows as they pass.
2. The driver reads the stats back from the small columns of the files, and compares them with what was observed. A file
   that holds several days is split. (Opening a file for each day while writing costs a third of the batch's time, and
   nearly always there is one day.)
3. The files and their entry are committed. Until then no reader opens them; from then on nobody changes them. Files are
   never renamed: a rename is a copy on an object store.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

from pyspark.sql import DataFrame, DataFrameWriter, Observation, SparkSession, functions as F
from pyspark.sql.types import StructType

from pixy.kafka.schema_registry import Registry
from pixy.pipeline.archive.decoding import Counts, Decoding
from pixy.pipeline.archive.planning import Plan
from pixy.pipeline.archive.staged_files import (
    BY_DAY,
    BY_TOPIC,
    StagedFile,
    share_of_mixed_days,
    staged_file,
    sum_by_partition,
)
from pixy.pipeline.decode.values import OUTCOMES_OF
from pixy.pipeline.errors import Overlap, PipelineError
from pixy.pipeline.lake.checksum import MASK, Stats
from pixy.pipeline.lake.entry import BATCH, Entry, Range
from pixy.pipeline.lake.lake import Lake, now_ms
from pixy.pipeline.lake.layout import DATA
from pixy.pipeline.lake.parquet_stats import read_stats
from pixy.pipeline.lake.state import Ledger
from pixy.pipeline.spark import columns

SMALL_TASK: Final = 250_000
"""Partitions with few records share tasks, and so files, of about this many records."""
MIXED_DAYS: Final = 0.2
"""If a larger share of a batch's records is in partitions with several days, the next batch is written by day."""

_READERS: Final = 4


class BatchWriter:
    """Write the batches of one run of a job.

    Args:
        spark: the session.
        lake: the lake.
        ledger: its folded history; kept up to date.
        job: the job's name.
        isolation: ``read_committed`` or ``read_uncommitted``.
        registry: a schema registry, to decode keys and values; None for their bytes alone.

    Attributes:
        decoded: of the last batch, what became of keys and values.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        ledger: Ledger,
        job: str,
        isolation: str,
        registry: Registry | None = None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._ledger = ledger
        self._job = job
        self._isolation = isolation
        self._decoding = None if registry is None else Decoding(registry, lake.table)
        self.decoded: Counts = {}
        self._mixed_days = 0.0
        """Share of the last batch's records in partitions with several days."""

    def write(self, plan: Plan, read: Callable[[Sequence[Range]], DataFrame]) -> Entry:
        """Archive a batch.

        Args:
            plan: the batch.
            read: returns rows of Spark's Kafka source.

        Returns:
            The published entry.

        Raises:
            Overlap: another job was faster, with the offsets or with other columns; nothing was published.
            PipelineError: the files differ from what was read; nothing was published.
            RegistryError: the schema registry does not answer; nothing was published.
        """
        self.decoded = {}
        if self._decoding is not None:
            self._decoding.begin(plan.topics())
        folder = f"{DATA}/{self._job}/{uuid.uuid4().hex}"
        staged = self._stage(read(plan.ranges), plan.ranges, folder) if plan.ranges else []
        ranges = (*plan.skipped, *self._with_stats(plan.ranges, staged))
        draft = Entry(
            BATCH,
            self._job,
            self._ledger.batches.get(self._job, -1) + 1,
            self._isolation,
            now_ms(),
            ranges,
            (*plan.events, *self._decode_events()),
        )
        if self._decoding is not None and staged:
            self._decoding.add_columns()
        entry = self._lake.publish(
            self._ledger, draft, [each.file for each in staged], check=lambda ledger: _check(ledger, ranges)
        )
        if self._decoding is not None:
            self._decoding.published()
        return entry

    def _decode_events(self) -> list[str]:
        return [] if self._decoding is None else self._decoding.events(self.decoded)

    # -- files ------------------------------------------------------------------------------------

    def _stage(self, records: DataFrame, ranges: Sequence[Range], folder: str) -> list[StagedFile]:
        """Write the rows to files of one topic and day each."""
        observed = Observation()
        rows = columns.with_hash(records, {each.topic: each.topic_id for each in ranges})
        counted = columns.observed_columns()
        if self._decoding is not None:
            rows = self._decoding.decoded(rows)
            counted += self._decoding.aggregates()
        rows = rows.observe(observed, *counted).drop(*OUTCOMES_OF.values())
        total = sum(each.end - each.start for each in ranges)
        tasks = max(self._spark.sparkContext.defaultParallelism, -(-total // SMALL_TASK))
        if len(ranges) > 2 * tasks:
            # Many thin partitions: a file each would be small. Sorting few records costs little.
            written = self._save_by_day(rows.coalesce(tasks), f"{folder}/days")
        elif self._mixed_days > MIXED_DAYS:
            written = self._save_by_day(rows, f"{folder}/days")
        else:
            self._writer(rows).parquet(self._lake.location.for_spark(f"{folder}/flat"))
            written = self._read_back(f"{folder}/flat")
        self._compare_with_observed(observed, written)
        if self._decoding is not None:
            self.decoded = self._decoding.counts(observed.get)
        staged = self._split(written, folder)
        self._mixed_days = share_of_mixed_days(staged)
        ids = {each.topic: each.topic_id for each in ranges}
        return sorted(
            (
                replace(each, file=replace(each.file, topic_id=ids.get(each.file.topic, "")))
                for each in staged
            ),
            key=lambda each: each.order,
        )

    def _compare_with_observed(self, observed: Observation, staged: list[StagedFile]) -> None:
        """Raise unless the driver reads back what the executors wrote.

        They differ if an executor's file system has another folder under the lake's name: its files are then
        nowhere in the lake, and a batch without files would be published as one without records.
        """
        wrote = columns.observed_of(observed.get)
        sums = [stats for each in staged for stats in each.partitions.values()]
        found = (sum(each.count for each in sums), sum(each.checksum for each in sums) & MASK)
        if wrote != found:
            raise PipelineError(
                f"the executors wrote {wrote[0]} records with checksum {wrote[1]:016x}, the driver reads back "
                f"{found[0]} with {found[1]:016x} from {self._lake.location.root}: driver and executors must reach "
                "the lake under the same name on one file system; nothing is published"
            )

    def _writer(self, rows: DataFrame) -> DataFrameWriter:
        return rows.write.options(**columns.PARQUET)

    def _save_by_day(self, rows: DataFrame, folder: str) -> list[StagedFile]:
        """Write a file for each task, topic and day."""
        rows = rows.withColumn(BY_TOPIC, F.col("topic")).withColumn(BY_DAY, columns.day())
        rows = rows.sortWithinPartitions(BY_TOPIC, BY_DAY, "partition", "offset")
        self._writer(rows).partitionBy(BY_TOPIC, BY_DAY).parquet(self._lake.location.for_spark(folder))
        return self._read_back(folder)

    def _split(self, staged: list[StagedFile], folder: str) -> list[StagedFile]:
        """Rewrite files of several days as one file for each day; keep the hashes of Kafka's rows."""
        mixed = [each for each in staged if each.mixed]
        if not mixed:
            return staged
        paths = [self._lake.location.for_spark(each.file.path) for each in mixed]
        split = self._save_by_day(
            self._spark.read.schema(self._file_schema()).parquet(*paths), f"{folder}/split"
        )
        before, after = sum_by_partition(mixed), sum_by_partition(split)
        if before != after:
            raise PipelineError(
                f"the files split by day hold {after}, the files before the split {before}: "
                "nothing is published"
            )
        return [each for each in staged if not each.mixed] + split

    def _file_schema(self) -> StructType:
        return columns.FILE_SCHEMA if self._decoding is None else self._decoding.file_schema()

    def _read_back(self, folder: str) -> list[StagedFile]:
        """Read the stats of a folder's files from their small columns."""
        location = self._lake.location
        files = [(path, size) for path, size in location.files(folder) if path.endswith(".parquet")]
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(
                lambda path: read_stats(location.for_arrow(path), location.filesystem),
                [path for path, _ in files],
            )
            return [
                staged_file(path, size, stats)
                for (path, size), stats in zip(files, found, strict=True)
                if stats
            ]

    # -- publishing -------------------------------------------------------------------------------

    def _with_stats(self, ranges: Sequence[Range], files: list[StagedFile]) -> list[Range]:
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


def _check(ledger: Ledger, ranges: Sequence[Range]) -> None:
    """Raise Overlap unless every range continues what the lake has."""
    for each in ranges:
        known = ledger.overlap(each)
        if known is not None:
            raise Overlap(
                f"offsets {known[0]} to {known[1] - 1} of {each.topic}/{each.partition} are in the lake already: "
                "nothing is archived twice"
            )
