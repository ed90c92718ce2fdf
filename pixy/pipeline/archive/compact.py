"""Closed days rewritten to large files. May be killed anywhere; readers see the old files or the new.

The new files are written aside and read back whole: for every partition the figures computed from the
bytes must be those of the manifests of the files they replace. Only then is one entry published that
takes the old files away and adds the new ones. The old files stay on disk for readers that know them
from before, and are deleted by a later run.
"""

from __future__ import annotations

import contextlib
import fcntl
import re
import uuid
from collections.abc import Iterator
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
from pixy.pipeline.lake.data_files import batches, open_file
from pixy.pipeline.lake.lake import (
    COMPACTION,
    DATA,
    STAGING,
    DataFile,
    Lake,
    Manifest,
    State,
    data_folder,
    now_ms,
    sum_by_partition,
)
from pixy.pipeline.lake.store import LocalStore
from pixy.pipeline.spark import columns
from pixy.pipeline.spark.errors import FULL, cause

JOB = "compact"
TARGET = 256 << 20
SMALL = 128 << 20
"""Files from this size on are left alone."""
KEEP = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one topic and day, and into how many they go."""

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
    """What a run did."""

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
    """What there is to compact: days before ``before`` with small files that would be fewer."""
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
    """The first day that is not closed yet, in UTC."""
    return datetime.now(UTC).date().isoformat()


class Compactor:
    """One run over a lake.

    Args:
        keep: seconds that replaced files stay on disk.
        delta: the session has Delta's jars; a lake with a Delta table needs them.

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
        """Compact what :func:`plan` finds, each day by itself.

        Raises:
            PipelineError: a file does not hold what its manifest says; its day stays as it is.
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
        """Remove what a killed run left; nobody but a compactor makes these names."""
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
        """The figures, computed from the bytes that were written."""
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
                raise self._damaged(group, f"{row['different']} records are not what was archived")
            path = f"{staging}/{unquote(row['path']).rpartition('/')[2]}"
            file = found.get(path) or DataFile("", group.topic, group.date, 0, row["file_size"], {})
            stats = columns.stats_of(row)
            found[path] = replace(
                file, rows=file.rows + stats.count, partitions={**file.partitions, row["partition"]: stats}
            )
        return sorted(found.items())

    def _compare(self, group: Group, files: list[DataFile]) -> None:
        wanted, found = sum_by_partition(group.files), sum_by_partition(files)
        for place in sorted({*wanted, *found}):
            if wanted.get(place, Stats()) != found.get(place, Stats()):
                raise self._damaged(
                    group,
                    f"partition {place[1]} has {found.get(place, Stats())}, its manifests say "
                    f"{wanted.get(place, Stats())}",
                )

    def _unreadable(self, group: Group, text: str) -> PipelineError:
        """Spark names the file it failed at, somewhere in pages of text."""
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
        return LakeError(f"{shown} can not be read: {short}; {group.topic} of {group.date} is left as it is")

    def _first_damaged(self, group: Group) -> str:
        """The first file that pyarrow can not read either; empty if it can, or is not asked to."""
        if isinstance(self._lake.store, LocalStore):
            for file in group.files:
                try:
                    path = self._lake.path(file.path)
                    with open_file(path) as opened:
                        for _ in batches(opened, path):
                            pass
                except LakeError:
                    return file.path
        return ""

    def _damaged(self, group: Group, what: str) -> PipelineError:
        return PipelineError(
            f"{self._lake.path(data_folder(group.topic, group.date))} does not hold what its manifests say: "
            f"{what}; it is left as it is, `verify` tells which file"
        )


def _still_live(state: State, paths: tuple[str, ...]) -> None:
    gone = [path for path in paths if path not in state.files]
    if gone:
        raise PipelineError(f"{gone[0]} was compacted by somebody else meanwhile")


@contextlib.contextmanager
def _locked(lake: Lake) -> Iterator[None]:
    if not isinstance(lake.store, LocalStore):
        yield
        return
    folder = Path(lake.store.root, STAGING)
    folder.mkdir(exist_ok=True)
    with Path(folder, f".{JOB}.lock").open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PipelineError(f"{lake.store.root} is being compacted by another process") from None
        yield
