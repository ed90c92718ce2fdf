"""Erase records of a topic from a lake, with proof. A kill may come at any point; the same command again finishes the rest.

1. Spark finds the files that hold the records, in all epochs of the topic.
2. Day by day their other records are rewritten to new files, and compared. One commit for each day exchanges the files; its entry
   says how many records of which offsets are gone, with their checksums, and on which request. So the chain of digests
   stays as it is, and the ranges less the erased records are what the files must hold.
3. The old files stay for readers of earlier versions until ``vacuum`` deletes them: only then are the records gone. The
   result says how many files on disk, listed or not, still hold any of them.

The condition is recorded nowhere: it is personal data as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession, Window, functions as F

from pixy.pipeline.archive.rewrite import TARGET, Group, Rewriter, by_day
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.entry import ERASURE, Entry
from pixy.pipeline.lake.lake import Lake, now_ms
from pixy.pipeline.lake.layout import DATA
from pixy.pipeline.lake.removal import RemovedRanges
from pixy.pipeline.lake.state import State
from pixy.pipeline.spark import columns
from pixy.pipeline.spark.predicate import readable

JOB: Final = "erase"


@dataclass(frozen=True, slots=True)
class Erasure:
    """What to erase.

    Attributes:
        topic: the topic's name; all epochs of it.
        where: Spark SQL over the columns of the files; records for which it is true are erased.
        request: names the request in the history.
    """

    topic: str
    where: str
    request: str


@dataclass(slots=True)
class Outcome:
    """Result of a run.

    Attributes:
        records: erased by this run, or to be erased.
        before: erased by earlier runs of the same request.
        files: rewritten, or to be rewritten.
        left: files on disk that the table does not list and that still hold such records.
    """

    records: int = 0
    before: int = 0
    files: int = 0
    left: list[str] = field(default_factory=list)


class Eraser:
    """One run over a lake.

    Args:
        spark: the session.
        lake: the lake.
    """

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._rewriter = Rewriter(spark, lake, JOB)
        self._lake = lake

    def dry_run(self, erasure: Erasure) -> Outcome:
        """Count what a run would erase, and look for files of earlier versions; change nothing."""
        state = self._lake.state()
        outcome = Outcome(before=_erased_before(state, erasure))
        live = [path for path, file in state.all_files.items() if file.topic == erasure.topic]
        found = self._find(live, erasure.where)
        outcome.records, outcome.files = sum(found.values()), len(found)
        outcome.left = self._left(state, erasure)
        return outcome

    def run(self, erasure: Erasure, *, vacuum: bool = False) -> Outcome:
        """Erase the records.

        Args:
            erasure: what to erase.
            vacuum: delete the replaced files at once, those of all earlier versions. Readers of those then fail.

        Raises:
            UsageError: the condition is not SQL, or names a column that does not exist.
            PipelineError: a file is damaged, or was replaced meanwhile; days that were done before stay done.
        """
        with self._lake.replacing():
            state, ledger = self._lake.state(), self._lake.ledger()
            outcome = Outcome(before=_erased_before(state, erasure))
            live = [path for path, file in state.all_files.items() if file.topic == erasure.topic]
            found = self._find(live, erasure.where)
            for key, files in by_day(state.all_files[path] for path in found).items():
                group = Group(*key, tuple(files), max(1, round(sum(file.size for file in files) / TARGET)))
                removed = RemovedRanges()
                gone = Stats()
                for partition, stats in self._runs(group, erasure.where):
                    removed.add(partition, stats)
                    gone += stats
                made = self._rewriter.rewrite(group, erasure.where, [gone])
                ranges = removed.ranges(
                    erasure.topic, state.id_of(files[0]), f"erased: request {erasure.request}"
                )
                entry = Entry(ERASURE, published=now_ms(), ranges=ranges)
                self._lake.publish(ledger, entry, made, group.files)
                outcome.records += gone.count
                outcome.files += len(files)
            self._lake.follow()
        if vacuum:
            self._lake.vacuum(0, dry_run=False, unlisted=False)
        outcome.left = self._left(self._lake.state(), erasure)
        return outcome

    def _find(self, paths: list[str], where: str, *, damaged: bool = False) -> dict[str, int]:
        """Count the records in each file that has any; ``damaged`` passes over files that are not whole."""
        if not paths:
            return {}
        root = self._lake.location.for_spark("").partition("://")[2]
        with readable(where):
            rows = self._matching(paths, where, damaged=damaged).groupBy("_metadata.file_path").count()
            found = {unquote(row[0]): row[1] for row in rows.collect()}
        return {path.partition(f"{root}/")[2]: count for path, count in sorted(found.items())}

    def _matching(self, paths: list[str], where: str, *, damaged: bool = False) -> DataFrame:
        return self._rewriter.rows(paths, damaged=damaged).where(where)

    def _runs(self, group: Group, where: str) -> Iterator[tuple[int, Stats]]:
        """Yield the stats of the records to erase, by partition and run of offsets."""
        before = Window.partitionBy("partition").orderBy("offset")
        runs = (
            self._matching([file.path for file in group.files], where)
            .withColumn("run", F.col("offset") - F.row_number().over(before))
            .groupBy("partition", "run")
            .agg(*columns.stats_columns())
        )
        with readable(where):
            for row in runs.toLocalIterator():
                yield row["partition"], columns.stats_of(row)

    def _left(self, state: State, erasure: Erasure) -> list[str]:
        """Find the files that the table does not list and that hold records to erase."""
        paths = [
            path
            for path, _ in self._lake.location.files(DATA)
            if path.endswith(".parquet") and path not in state.all_files and "/_delta_log/" not in path
        ]
        topic = erasure.topic.replace("'", "\\'")
        return list(self._find(paths, f"topic = '{topic}' and ({erasure.where})", damaged=True))


def _erased_before(state: State, erasure: Erasure) -> int:
    return sum(
        each.range.stats.count
        for (topic, _, _), ranges in state.all_removed.items()
        for each in ranges
        if topic == erasure.topic and each.range.skipped == f"erased: request {erasure.request}"
    )
