"""Rewrite files of one topic and day to new ones, and prove that these hold the same records, or all but those to leave out.

While Spark reads the old files it observes their count and checksum, and hashes each record again; the new files are then
read back whole, and the sums computed from their bytes must be those of the records that were kept. The caller publishes them.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F

from pixy.pipeline.archive.staged_files import StagedFile, staged_file
from pixy.pipeline.errors import LakeError, PipelineError
from pixy.pipeline.lake.checksum import Stats, total
from pixy.pipeline.lake.data_files import open_file, read_batches
from pixy.pipeline.lake.data_table import TYPED, DataFile
from pixy.pipeline.lake.lake import Lake
from pixy.pipeline.lake.layout import DATA
from pixy.pipeline.spark import columns
from pixy.pipeline.spark.java_errors import FULL, cause
from pixy.wire.types import TopicPartition

TARGET: Final = 256 << 20
"""Bytes; the size of a new file."""


@dataclass(frozen=True, slots=True)
class Group:
    """Files of one topic, epoch and day, and the number of files to rewrite them to."""

    topic: str
    topic_id: str
    date: str
    files: tuple[DataFile, ...]
    into: int

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


def by_day(files: Iterable[DataFile]) -> dict[tuple[str, str, str], list[DataFile]]:
    """Sort files by topic, epoch and day."""
    days: dict[tuple[str, str, str], list[DataFile]] = {}
    for file in files:
        days.setdefault((file.topic, file.topic_id, file.date), []).append(file)
    return dict(sorted(days.items()))


class Rewriter:
    """Rewrites groups of files.

    Args:
        spark: the session.
        lake: the lake.
        job: names the folder of the new files.
    """

    def __init__(self, spark: SparkSession, lake: Lake, job: str) -> None:
        self._spark = spark
        self._lake = lake
        self._job = job

    def rewrite(self, group: Group, where: str = "", left_out: Iterable[Stats] = ()) -> list[DataFile]:
        """Write new files, which are not published.

        Args:
            group: the files.
            where: Spark SQL; records for which it is true are left out.
            left_out: their stats, to be checked.

        Raises:
            PipelineError: a file is damaged or cannot be read, or the new files are not what they should be.
        """
        folder = f"{DATA}/{self._job}/{uuid.uuid4().hex}"
        gone = total(left_out)
        try:
            read = self._write(group, folder, where)
            written = self._read_back(group, folder)
        except (Py4JJavaError, PySparkException) as error:
            raise self._unreadable(group, str(error)) from error
        kept = total(stats for each in written for stats in each.partitions.values())
        listed = sum(file.rows for file in group.files)
        left = f" and {gone.count} with {gone.checksum:016x} left out" if gone.count else ""
        if read != ((kept + gone).count, (kept + gone).checksum) or read[0] != listed:
            raise self._damaged(
                group,
                f"{read[0]} records with checksum {read[1]:016x} were read, {kept.count} with {kept.checksum:016x} written"
                f"{left}; the table says {listed}",
            )
        return [each.file for each in written]

    def rows(self, paths: Iterable[str], *, topic: str = "", damaged: bool = False) -> DataFrame:
        """Read files of the lake.

        Args:
            paths: relative to the lake.
            topic: the topic of all files, for its columns of decoded keys and values; empty for the columns of all topics.
            damaged: pass over what cannot be read, instead of failing.
        """
        typed = self._lake.table.typed_columns()
        own = {f"{part}_{topic}" for part in TYPED}
        chosen = {name: each for name, each in typed.items() if not topic or name in own}
        reader = self._spark.read.schema(columns.file_schema(chosen)).options(
            recursiveFileLookup=True, ignoreCorruptFiles=damaged, ignoreMissingFiles=damaged
        )
        return reader.parquet(*[self._lake.location.for_spark(path) for path in paths])

    def _write(self, group: Group, folder: str, where: str) -> tuple[int, int]:
        """Write the new files; return the count and the checksum of what was read."""
        missing = [file.path for file in group.files if self._lake.size(file.path) != file.size]
        if missing:
            raise LakeError(
                f"{self._lake.path(missing[0])} is missing or has not the size that the table says; "
                f"{group.topic} of {group.date} is left as it is"
            )
        read = Observation()
        rows = self.rows((file.path for file in group.files), topic=group.topic).observe(
            read,
            *columns.observed_columns(),
            F.sum((F.col("hash") != columns.content_hash()).cast("long")).alias("different"),
            F.sum((F.col("topic") != group.topic).cast("long")).alias("foreign"),
        )
        if where:
            rows = rows.where(~F.coalesce(F.expr(where), F.lit(False)))
        if group.into > 1:
            rows = rows.repartitionByRange(group.into, "partition", "offset")
        else:
            rows = rows.coalesce(1)
        rows.sortWithinPartitions("partition", "offset").write.options(**columns.PARQUET).parquet(
            self._lake.location.for_spark(folder)
        )
        if read.get["different"] or read.get["foreign"]:
            odd = read.get["different"] + read.get["foreign"]
            raise self._damaged(group, f"{odd} records differ from what was archived")
        return columns.observed_of(read.get)

    def _read_back(self, group: Group, folder: str) -> list[StagedFile]:
        """Compute the stats of the new files from their bytes."""
        location = self._lake.location
        sizes = dict(location.files(folder))
        rows = self.rows([folder]).select(
            F.col("_metadata.file_name").alias("name"),
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            columns.payload_size().cast("int").alias("size"),
            columns.content_hash().alias("hash"),
        )
        found: dict[str, dict[TopicPartition, Stats]] = {}
        for row in rows.groupBy("name", "topic", "partition").agg(*columns.stats_columns()).collect():
            partition = (row["topic"], row["partition"])
            found.setdefault(f"{folder}/{row['name']}", {})[partition] = columns.stats_of(row)
        made = []
        for path, partitions in sorted(found.items()):
            one = staged_file(path, sizes[path], partitions)
            file = replace(one.file, date=group.date, topic_id=group.topic_id)
            made.append(StagedFile(file, one.partitions))
        return made

    def _unreadable(self, group: Group, text: str) -> PipelineError:
        """Make the error of a failed Spark job; Spark names the file somewhere in pages of text."""
        short = cause(text)
        if re.search(FULL, text):
            return PipelineError(
                f"the disk of {self._lake.location.root} (or Spark's temporary folder) is full, or files may not "
                f"grow (quota, ulimit); {group.topic} of {group.date} is left as it is: {short}"
            )
        named = [file.path for file in group.files if file.path.rpartition("/")[2] in text]
        where = named[0] if len(named) == 1 else self._first_damaged(group)
        shown = self._lake.path(where) if where else f"a file of {group.topic}"
        return LakeError(f"{shown} cannot be read: {short}; {group.topic} of {group.date} is left as it is")

    def _first_damaged(self, group: Group) -> str:
        """Find the first file that pyarrow cannot read either; empty if there is none."""
        location = self._lake.location
        for file in group.files:
            try:
                path = location.for_arrow(file.path)
                with open_file(path, location.filesystem) as opened:
                    for _ in read_batches(opened, path):
                        pass
            except LakeError:
                return file.path
        return ""

    def _damaged(self, group: Group, what: str) -> PipelineError:
        return PipelineError(
            f"{group.topic} of {group.date} in {self._lake.location.root}: {what}; it is left as it is, "
            "`verify` names the file"
        )
