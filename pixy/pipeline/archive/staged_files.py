"""Files that Spark has just written: topic, day and stats of each, read back from the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import DataFile, describe_file
from pixy.wire.types import TopicPartition

_DAY: Final = 86_400_000
_EPOCH: Final = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days
BY_TOPIC: Final = "by_topic"
BY_DAY: Final = "by_date"
"""Folders of files that Spark wrote by topic and day. A name that begins with ``_`` would hide them from Delta's VACUUM."""
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
"""Spark's name for the folder of a null."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that is not published yet.

    Attributes:
        file: how the table will list it. Its date is empty if the file holds several days, too.
        partitions: stats of its partitions.
        mixed: the file holds several days and is to be split.
    """

    file: DataFile
    partitions: dict[int, Stats]
    mixed: bool = False

    @property
    def order(self) -> tuple[str, str, int, int]:
        """Sort key: topic, day, first partition, first offset."""
        first = min(self.partitions)
        return self.file.topic, self.file.date, first, self.partitions[first].first


def staged_file(path: str, size: int, found: dict[TopicPartition, Stats]) -> StagedFile:
    """Describe a file.

    Args:
        path: relative to the lake. Files that were written by day have ``by_date=<day>`` in it.
        size: bytes on disk.
        found: stats of the file's partitions.

    Raises:
        PipelineError: the file holds records of several topics.
    """
    topics = {topic for topic, _ in found}
    if len(topics) > 1:
        raise PipelineError(f"Spark put records of {', '.join(sorted(topics))} into one file")
    partitions = {number: stats for (_, number), stats in sorted(found.items())}
    written = path.partition(f"/{BY_DAY}=")[2].partition("/")[0]
    if written:
        day, mixed = (written if written != _NO_DAY else ""), False
    else:
        days = {day_of(stats) for stats in found.values()}
        day = days.pop() if len(days) == 1 else ""
        mixed = not day
    return StagedFile(describe_file(path, topics.pop(), day, size, partitions), partitions, mixed)


def day_of(stats: Stats) -> str:
    """Return the day (UTC) of all records; empty for several days, or a year other than 1 to 9999."""
    days = {milliseconds // _DAY for milliseconds in (stats.min_timestamp, stats.max_timestamp)}
    day = days.pop()
    if days or not _FIRST_DAY <= day <= _LAST_DAY:
        return ""
    return (_EPOCH + timedelta(days=day)).isoformat()


def sum_by_partition(files: Iterable[StagedFile]) -> dict[TopicPartition, Stats]:
    """Sum the files' stats by partition."""
    found: dict[TopicPartition, Stats] = {}
    for each in files:
        for number, stats in each.partitions.items():
            partition = (each.file.topic, number)
            found[partition] = found.get(partition, Stats()) + stats
    return found


def share_of_mixed_days(staged: Iterable[StagedFile]) -> float:
    """Return the share of records, 0 to 1, in partitions that have records of several days."""
    rows: dict[TopicPartition, dict[str, int]] = {}
    for each in staged:
        for number, stats in each.partitions.items():
            days = rows.setdefault((each.file.topic, number), {})
            days[each.file.date] = days.get(each.file.date, 0) + stats.count
    sums = [(sum(days.values()), len(days) > 1) for days in rows.values()]
    return sum(count for count, mixed in sums if mixed) / max(1, sum(count for count, _ in sums))
