"""Files in staging: topic, day and stats of each, read from what Spark has written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta

from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.manifest import DataFile
from pixy.wire.types import TopicPartition

_DAY = 86_400_000
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file in staging, and its future entry in the manifest.

    Attributes:
        path: where it is now, relative to the lake.
        file: the entry, still without a path. Its date is empty if the file holds several days.
    """

    path: str
    file: DataFile

    @property
    def order(self) -> tuple[str, str, int, int]:
        """Sort key: topic, day, first partition, first offset."""
        first = min(self.file.partitions)
        return self.file.topic, self.file.date, first, self.file.partitions[first].first


def staged_file(path: str, size: int, found: dict[TopicPartition, Stats]) -> StagedFile:
    """Describe a file in staging.

    Args:
        path: relative to the lake. Files that were written by day have ``_date=<day>`` in it.
        size: bytes on disk.
        found: stats of the file's partitions.

    Raises:
        PipelineError: the file holds records of several topics.
    """
    topics = {topic for topic, _ in found}
    if len(topics) > 1:
        raise PipelineError(f"Spark put records of {', '.join(sorted(topics))} into one file")
    days = {day_of(stats) for stats in found.values()}
    day = path.partition("/_date=")[2].partition("/")[0] or (days.pop() if len(days) == 1 else "")
    return StagedFile(
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


def day_of(stats: Stats) -> str:
    """Return the day (UTC) of all records; empty for several days, or a year without four digits."""
    days = {milliseconds // _DAY for milliseconds in (stats.min_timestamp, stats.max_timestamp)}
    day = days.pop()
    if days or not _FIRST_DAY <= day <= _LAST_DAY:
        return ""
    return (_EPOCH + timedelta(days=day)).isoformat()


def share_of_mixed_days(staged: Iterable[StagedFile]) -> float:
    """Return the share of records, 0 to 1, in partitions that have records of several days."""
    rows: dict[TopicPartition, dict[str, int]] = {}
    for each in staged:
        for number, stats in each.file.partitions.items():
            days = rows.setdefault((each.file.topic, number), {})
            days[each.file.date] = days.get(each.file.date, 0) + stats.count
    sums = [(sum(days.values()), len(days) > 1) for days in rows.values()]
    return sum(count for count, mixed in sums if mixed) / max(1, sum(count for count, _ in sums))
