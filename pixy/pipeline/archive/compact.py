"""Rewrite the closed days of a lake to large files. A kill may come at any point.

The new files are written to staging and read back whole: the stats of every partition, computed from the
bytes, must equal those in the manifests of the replaced files. Only then is one entry published that
removes the old files and adds the new ones, so readers see the old files or the new. The old files stay
on disk for readers that have listed them, and a later run deletes them.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, functions as F

from pixy.pipeline.archive.delta import DeltaTable, has_table, refuse_without
from pixy.pipeline.errors import LakeError, PipelineError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_files import open_file, read_batches
from pixy.pipeline.lake.lake import Lake, now_ms
from pixy.pipeline.lake.layout import DATA, STAGING, data_folder
from pixy.pipeline.lake.locking import exclusive_lock
from pixy.pipeline.lake.manifest import COMPACTION, DataFile, Manifest
from pixy.pipeline.lake.state import State, sum_by_partition
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark import columns
from pixy.pipeline.spark.java_errors import FULL, cause

JOB = "compact"
TARGET = 256 << 20
"""Bytes; the size of a new file."""
SMALL = 128 << 20
"""Bytes; files of this size and above are left alone."""
KEEP = 24 * 3600.0
"""Seconds that replaced files stay on disk."""


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one topic and day, and the number of files to rewrite them to."""

    topic: str
    date: str
    files: tuple[DataFile, ...]
    into: int

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)


@dataclass
class Outcome:
    """Result of a run; bytes on disk."""

    groups: list[Group] = field(default_factory=list)
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0
    deleted: int = 0


def plan(
    state: State, before: str, topic: str | None = None, target: int = TARGET, small: int = SMALL
) -> list[Group]:
    """Find the days whose small files fit into fewer, larger ones.

    Args:
        state: the folded log.
        before: the first day to leave alone, as ISO 8601 in UTC.
        topic: only this topic.
        target: bytes of a new file.
        small: bytes; files of this size and above are left alone.
    """
    days: dict[tuple[str, str], list[DataFile]] = {}
    for file in state.select(topic):
        if file.date < before and file.size < small:
            days.setdefault((file.topic, file.date), []).append(file)
    groups = []
    for (name, date), files in sorted(days.items()):
        into = max(1, round(sum(file.size for file in files) / target))
        if into < len(files):
            groups.append(Group(name, date, tuple(files), into))
    return groups


def today() -> str:
    """Return the current day in UTC, the first one that is not closed."""
    return datetime.now(UTC).date().isoformat()


class Compactor:
    """One run over a lake.

    Args:
        spark: the session.
        lake: the lake.
        keep: seconds that replaced files stay on disk.
        delta: true if the session has Delta's jars; a lake with a Delta table needs them.

    Raises:
        UsageError: the lake has a Delta table, and ``delta`` is false.
    """

    def __init__(self, spark: SparkSession, lake: Lake, keep: float = KEEP, *, delta: bool = False) -> None:
        self._spark = spark
        self._lake = lake
        self._keep = keep
        if not delta:
            refuse_without(lake.store, "a compaction without it")
        self._table = DeltaTable(spark, lake) if delta and has_table(lake.store) else None

    def run(self, before: str, topic: str | None = None, target: int = TARGET, small: int = SMALL) -> Outcome:
        """Compact the days that :func:`plan` finds, one by one.

        Args:
            before, topic, target, small: see :func:`plan`.

        Raises:
            PipelineError: a file differs from its manifest; its day stays as it is.
        """
        outcome = Outcome()
        with _locked(self._lake):
            state = self._lake.state()
            self._follow(state)
            self._clear(state)
            for group in plan(state, before, topic, target, small):
                made = self._compact(state, group)
                self._follow()
                outcome.groups.append(group)
                outcome.files_before += len(group.files)
                outcome.files_after += len(made)
                outcome.bytes_before += group.size
                outcome.bytes_after += sum(file.size for file in made)
                outcome.records += sum(file.rows for file in made)
            outcome.deleted = self._delete_replaced(state)
        return outcome

    def _follow(self, checked: State | None = None) -> None:
        if self._table is not None:
            if checked is not None:
                self._table.check(checked)
            self._table.follow()

    def _clear(self, state: State) -> None:
        """Remove the files that a killed run left; only a compactor makes these names."""
        self._lake.store.remove(f"{STAGING}/{JOB}")
        known = {*state.files, *state.replaced}
        for path in self._lake.store.walk(DATA):
            if path.rpartition("/")[2].startswith(f"{JOB}-") and path not in known:
                self._lake.store.remove(path)

    def _delete_replaced(self, state: State) -> int:
        old = [
            path
            for path, when in state.replaced.items()
            if when <= now_ms() - self._keep * 1000 and self._lake.store.size(path) is not None
        ]
        for path in old:
            self._lake.store.remove(path)
        return len(old)

    def _compact(self, state: State, group: Group) -> list[DataFile]:
        staging = f"{STAGING}/{JOB}/{uuid.uuid4().hex}"
        try:
            try:
                self._write(group, staging)
                written = self._read_back(group, staging)
            except (Py4JJavaError, PySparkException) as error:
                raise self._unreadable(group, str(error)) from error
            self._compare(group, [file for _, file in written])
            made = []
            name = f"{JOB}-{uuid.uuid4().hex[:12]}"
            for number, (source, file) in enumerate(written):
                path = f"{data_folder(group.topic, group.date)}/{name}-{number:04d}.parquet"
                self._lake.store.move(source, path)
                made.append(replace(file, path=path))
            replaces = tuple(file.path for file in group.files)
            self._lake.publish(
                state,
                Manifest(
                    seq=0,
                    previous="",
                    kind=COMPACTION,
                    published=now_ms(),
                    job=JOB,
                    batch=-1,
                    checkpoint="",
                    isolation="",
                    ranges=(),
                    files=tuple(made),
                    replaces=replaces,
                ),
                lambda now: _still_live(now, replaces),
            )
            return made
        finally:
            self._lake.store.remove(staging)

    def _rows(self, *paths: str) -> DataFrame:
        return self._spark.read.schema(columns.SCHEMA).option("recursiveFileLookup", "true").parquet(*paths)

    def _write(self, group: Group, staging: str) -> None:
        missing = [file.path for file in group.files if self._lake.store.size(file.path) != file.size]
        if missing:
            raise LakeError(
                f"{self._lake.path(missing[0])} is missing or has not the size that its manifest says; "
                f"{group.topic} of {group.date} is left as it is"
            )
        rows = self._rows(*[self._lake.path(file.path) for file in group.files])
        if group.into > 1:
            rows = rows.repartitionByRange(group.into, "partition", "offset")
        else:
            rows = rows.coalesce(1)
        rows.sortWithinPartitions("partition", "offset").write.options(**columns.PARQUET).parquet(
            self._lake.path(staging)
        )

    def _read_back(self, group: Group, staging: str) -> list[tuple[str, DataFile]]:
        """Compute the stats of the new files from their bytes."""
        stored = F.col("hash")
        rows = self._rows(self._lake.path(staging)).select(
            F.col("_metadata.file_path").alias("path"),
            F.col("_metadata.file_size").alias("file_size"),
            "topic",
            "partition",
            "offset",
            "timestamp",
            "timestampType",
            columns.payload_size().cast("int").alias("size"),
            columns.content_hash().alias("hash"),
            (stored != columns.content_hash()).alias("differs"),
        )
        found: dict[str, DataFile] = {}
        for row in (
            rows.groupBy("path", "file_size", "topic", "partition")
            .agg(*columns.stats_columns(), F.sum(F.col("differs").cast("int")).alias("different"))
            .collect()
        ):
            if row["different"] or row["topic"] != group.topic:
                raise self._damaged(group, f"{row['different']} records differ from what was archived")
            path = f"{staging}/{unquote(row['path']).rpartition('/')[2]}"
            file = found.get(path) or DataFile("", group.topic, group.date, 0, row["file_size"], {})
            stats = columns.stats_of(row)
            found[path] = replace(
                file, rows=file.rows + stats.count, partitions={**file.partitions, row["partition"]: stats}
            )
        return sorted(found.items())

    def _compare(self, group: Group, files: list[DataFile]) -> None:
        wanted, found = sum_by_partition(group.files), sum_by_partition(files)
        for partition in sorted({*wanted, *found}):
            stats, listed = found.get(partition, Stats()), wanted.get(partition, Stats())
            if stats != listed:
                raise self._damaged(
                    group, f"partition {partition[1]} has {stats}, its manifests say {listed}"
                )

    def _unreadable(self, group: Group, text: str) -> PipelineError:
        """Make the error of a failed Spark job; Spark names the file somewhere in pages of text."""
        short = cause(text)
        if re.search(FULL, text):
            return PipelineError(
                f"the disk of {self._lake.store.root} (or Spark's temporary folder) is full, or files may not "
                f"grow (quota, ulimit); {group.topic} of {group.date} is left as it is: {short}"
            )
        named = [file.path for file in group.files if file.path.rpartition("/")[2] in text]
        where = named[0] if len(named) == 1 else self._first_damaged(group)
        folder = data_folder(group.topic, group.date)
        shown = self._lake.path(where) if where else f"a file of {self._lake.path(folder)}"
        return LakeError(f"{shown} cannot be read: {short}; {group.topic} of {group.date} is left as it is")

    def _first_damaged(self, group: Group) -> str:
        """Find the first file that pyarrow cannot read either; empty if there is none, or the lake is not local."""
        if isinstance(self._lake.store, LocalStore):
            for file in group.files:
                try:
                    path = self._lake.path(file.path)
                    with open_file(path) as opened:
                        for _ in read_batches(opened, path):
                            pass
                except LakeError:
                    return file.path
        return ""

    def _damaged(self, group: Group, what: str) -> PipelineError:
        return PipelineError(
            f"{self._lake.path(data_folder(group.topic, group.date))} differs from its manifests: "
            f"{what}; it is left as it is, `verify` names the file"
        )


def _still_live(state: State, paths: tuple[str, ...]) -> None:
    gone = [path for path in paths if path not in state.files]
    if gone:
        raise PipelineError(f"{gone[0]} was compacted by another process meanwhile")


def _locked(lake: Lake) -> contextlib.AbstractContextManager[None]:
    if not isinstance(lake.store, LocalStore):
        return contextlib.nullcontext()
    root = lake.store.root
    return exclusive_lock(
        Path(root, STAGING, f".{JOB}.lock"), PipelineError(f"{root} is being compacted by another process")
    )
