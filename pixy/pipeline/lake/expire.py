"""Remove the records of whole days from a lake, in one commit for each topic; needs neither Spark nor Kafka.

A file holds records of one day, so an expiry rewrites nothing: it removes the files from the table, and its entry says how many
records of which offsets they held. ``vacuum`` deletes the files from the disk later.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.entry import EXPIRY, Entry
from pixy.pipeline.lake.lake import Lake, now_ms
from pixy.pipeline.lake.parquet_stats import read_stats
from pixy.pipeline.lake.removal import RemovedRanges
from pixy.pipeline.lake.state import Ledger, State

_FIRST_DAY: Final = "1970-01-01"
"""Records without a timestamp have -1, the day before: their age is unknown."""
_READERS: Final = 4


@dataclass(frozen=True, slots=True)
class Expired:
    """What an expiry removes of one topic (and one epoch of it)."""

    topic: str
    topic_id: str
    files: tuple[DataFile, ...]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        """Bytes on disk, which ``vacuum`` frees."""
        return sum(file.size for file in self.files)

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day, ISO 8601."""
        days = [file.date for file in self.files]
        return min(days), max(days)


def plan(state: State, before: str, topic: str | None = None) -> list[Expired]:
    """Find the files of days before another one.

    Args:
        state: the folded history, with the live files.
        before: the first day to keep, as ISO 8601 in UTC.
        topic: only this topic, all epochs of it.
    """

    def epoch(file: DataFile) -> tuple[str, str]:
        return file.topic, state.id_of(file)

    old = [
        file
        for file in state.all_files.values()
        if topic in (None, file.topic) and _FIRST_DAY <= file.date < before
    ]
    return [Expired(*key, tuple(files)) for key, files in groupby(sorted(old, key=epoch), epoch)]


def expire(lake: Lake, before: str, topic: str | None = None) -> list[Expired]:
    """Remove the records of all days before another one.

    Args:
        lake: the lake.
        before, topic: see :func:`plan`.

    Returns:
        What was removed; each is a commit of its own. A kill leaves out the rest, which the next run removes.

    Raises:
        LakeError: a file cannot be read, or was replaced meanwhile; its topic stays as it is.
    """
    with lake.replacing():
        state, ledger = lake.state(), lake.ledger()
        found = plan(state, before, topic)
        for each in found:
            _remove(lake, ledger, each, f"expired: before {before}")
        lake.follow()
    return found


def _remove(lake: Lake, ledger: Ledger, expired: Expired, why: str) -> None:
    removed, location = RemovedRanges(), lake.location
    with ThreadPoolExecutor(_READERS) as readers:
        paths = [location.for_arrow(file.path) for file in expired.files]
        for found in readers.map(lambda path: read_stats(path, location.filesystem), paths):
            for (_, partition), stats in found.items():
                removed.add(partition, stats)
    ranges = removed.ranges(expired.topic, expired.topic_id, why)
    lake.publish(ledger, Entry(EXPIRY, published=now_ms(), ranges=ranges), removed=expired.files)
