"""The day of a staged file, and the share of records that makes a batch be written by day."""

from __future__ import annotations

import pytest

from pixy.pipeline.archive.staged_files import StagedFile, day_of, share_of_mixed_days, staged_file
from pixy.pipeline.errors import PipelineError
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import describe_file

DAY = 86_400_000


def stats(low: int, high: int, count: int = 1) -> Stats:
    return Stats(count, 0, 0, count - 1, low, high)


@pytest.mark.parametrize(
    ("low", "high", "day"),
    [
        (0, DAY - 1, "1970-01-01"),
        (-1, -1, "1969-12-31"),  # a record without a timestamp
        (-1, 0, ""),
        (DAY - 1, DAY, ""),
        (1_700_006_400_000, 1_700_006_400_000, "2023-11-15"),
        (1 << 60, 1 << 60, ""),  # a year of more than four digits
    ],
)
def test_the_day_of_a_range_of_times(low: int, high: int, day: str) -> None:
    assert day_of(stats(low, high)) == day


def test_a_file_of_several_days_has_no_date_until_it_is_split() -> None:
    one, other, both = stats(5, 6), stats(DAY, DAY), stats(5, DAY)
    assert staged_file("s/flat/f", 9, {("t", 0): one, ("t", 1): one}).file.date == "1970-01-01"
    for several in ({("t", 0): one, ("t", 1): other}, {("t", 0): both}):
        assert staged_file("s/flat/f", 9, several).mixed
    by_day = staged_file("s/days/by_topic=t/by_date=1970-01-02/f", 9, {("t", 0): other})
    assert (by_day.file.date, by_day.mixed) == ("1970-01-02", False)
    # Days that other readers' calendars lack: a file of its own without a date.
    odd = staged_file(
        "s/days/by_topic=t/by_date=__HIVE_DEFAULT_PARTITION__/f", 9, {("t", 0): stats(1 << 60, 1 << 60)}
    )
    assert (odd.file.date, odd.mixed) == ("", False)
    with pytest.raises(PipelineError, match="records of t, u into one file"):
        staged_file("s/flat/f", 9, {("t", 0): one, ("u", 0): one})


def test_the_share_of_records_in_partitions_with_several_days() -> None:
    def file(date: str, **counts: int) -> StagedFile:
        partitions = {int(n[1:]): stats(0, 0, count) for n, count in counts.items()}
        return StagedFile(describe_file("", "t", date, 0, partitions), partitions)

    assert share_of_mixed_days([]) == 0
    assert share_of_mixed_days([file("a", p0=5), file("b", p1=5)]) == 0
    assert share_of_mixed_days([file("a", p0=5, p1=10), file("b", p1=5)]) == 0.75
