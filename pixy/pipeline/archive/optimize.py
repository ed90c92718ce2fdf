"""Rewrite the closed days of a lake to large files. A kill may come at any point.

One commit removes a day's old files and adds the new ones, whose sums were compared. It changes no record, and says so: streams
that read the table pass over it. The old files stay on disk for readers that have listed them, until ``vacuum``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from pyspark.sql import SparkSession

from pixy.pipeline.archive.rewrite import TARGET, Group, Rewriter, by_day
from pixy.pipeline.lake.entry import OPTIMIZATION, Entry
from pixy.pipeline.lake.lake import REPLACING, Lake, now_ms
from pixy.pipeline.lake.state import State

SMALL: Final = 128 << 20
"""Bytes; files of this size and above are left alone."""


@dataclass
class Outcome:
    """Result of a run; bytes on disk."""

    groups: list[Group] = field(default_factory=list)
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0


def plan(
    state: State, before: str, topic: str | None = None, target: int = TARGET, small: int = SMALL
) -> list[Group]:
    """Find the days whose small files fit into fewer, larger ones.

    Args:
        state: the folded history, with the live files.
        before: the first day to leave alone, as ISO 8601 in UTC.
        topic: only this topic.
        target: bytes of a new file.
        small: bytes; files of this size and above are left alone.
    """
    chosen = (
        file
        for file in state.all_files.values()
        if topic in (None, file.topic) and file.date < before and file.size < small
    )
    groups = []
    for key, files in by_day(chosen).items():
        into = max(1, round(sum(file.size for file in files) / target))
        if into < len(files):
            groups.append(Group(*key, tuple(files), into))
    return groups


def today() -> str:
    """Return the current day in UTC, the first one that is not closed."""
    return datetime.now(UTC).date().isoformat()


class Optimizer:
    """One run over a lake.

    Args:
        spark: the session.
        lake: the lake.
    """

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._rewriter = Rewriter(spark, lake, REPLACING)
        self._lake = lake

    def run(self, before: str, topic: str | None = None, target: int = TARGET, small: int = SMALL) -> Outcome:
        """Rewrite the days that :func:`plan` finds, one by one.

        Args:
            before, topic, target, small: see :func:`plan`.

        Raises:
            PipelineError: a file is damaged; its day stays as it is.
        """
        outcome = Outcome()
        with self._lake.replacing():
            state = self._lake.state()
            ledger = self._lake.ledger()
            for group in plan(state, before, topic, target, small):
                made = self._rewriter.rewrite(group)
                entry = Entry(OPTIMIZATION, published=now_ms())
                self._lake.publish(ledger, entry, made, group.files, changes=False)
                outcome.groups.append(group)
                outcome.files_before += len(group.files)
                outcome.files_after += len(made)
                outcome.bytes_before += group.size
                outcome.bytes_after += sum(file.size for file in made)
                outcome.records += sum(file.rows for file in made)
            self._lake.follow()
        return outcome
