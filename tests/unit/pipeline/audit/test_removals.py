"""Expired and erased offsets are told from lost ones by the counts of the lake's entries."""

from __future__ import annotations

from pixy.pipeline.audit.gaps import Gap, Reason
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.removals import find_removals
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.entry import Range
from pixy.pipeline.lake.state import Archived

Expected = list[tuple[int, int, Reason]]


def archived(start: int, end: int, count: int, skipped: str = "") -> Archived:
    return Archived(Range("t", "id", 0, start, end, Stats(count), skipped), 0, "", 0, 7)


ALL = Intervals.span(0, 20)
RANGES = [archived(0, 10, 9), archived(10, 20, 10)]
"""Offset 9 is a transaction marker."""
ERASED = archived(3, 5, 2, "erased: request 17")
EXPIRED = archived(10, 18, 5, "expired: before 2025-01-01")


def reasons(gaps: list[Gap]) -> Expected:
    return [(gap.start, gap.end, gap.reason) for gap in gaps]


def explain(missing: list[int], *removed: Archived, log: Expected = ()) -> Expected:  # type: ignore[assignment]
    """Explain missing offsets; ``log`` is what the broker's log says of those that remain."""
    lost = Intervals.offsets(missing)
    found = find_removals(lost, Intervals.span(0, 20) - lost, RANGES, removed, ALL)
    rest = lost - found.offsets
    assert rest == Intervals.of((start, end) for start, end, _ in log)
    return reasons(found.gaps + found.losses(Gap(*each) for each in log))


def test_removed_offsets_have_their_reason() -> None:
    marker = [(9, 10, Reason.MARKER)]
    assert explain([9], log=marker) == marker
    assert explain([3, 4, 9], ERASED, log=marker) == [(3, 5, Reason.ERASED), *marker]
    gone = [10, 11, 12, 16, 17]
    assert explain([3, 4, 9, *gone], ERASED, EXPIRED, log=marker) == [
        (3, 5, Reason.ERASED),
        (10, 13, Reason.EXPIRED),
        (16, 18, Reason.EXPIRED),
        *marker,
    ]


def test_the_evidence_names_request_and_entry() -> None:
    lost = Intervals.span(3, 5)
    (gap,) = find_removals(lost, Intervals.span(0, 20) - lost, RANGES, [ERASED], ALL).gaps
    assert gap.evidence == "request 17, entry 7: 2 records"


def test_a_loss_beside_exact_removals_is_found_though_the_log_no_longer_knows() -> None:
    """Kafka's retention explains why the log lacks a record, not why the lake does."""
    left = [(2, 3, Reason.RETENTION), (9, 10, Reason.MARKER)]
    assert explain([2, 3, 4, 9], ERASED, log=left) == [
        (3, 5, Reason.ERASED),
        (2, 3, Reason.LOSS),
        (9, 10, Reason.MARKER),
    ]


def test_a_loss_within_an_inexact_removal_makes_all_of_it_doubtful() -> None:
    gone = [10, 11, 12, 15, 16, 17]
    left = [(10, 13, Reason.RETENTION), (15, 18, Reason.RETENTION)]
    assert explain([9, *gone], EXPIRED, log=[(9, 10, Reason.MARKER), *left]) == [
        (9, 10, Reason.MARKER),
        (10, 13, Reason.LOSS),
        (15, 18, Reason.LOSS),
    ]


def test_rows_that_the_lake_lost_are_a_loss_without_any_removal() -> None:
    found = find_removals(Intervals.span(11, 13), Intervals.span(0, 9), [RANGES[1]], [], ALL)
    assert found.gaps == [] and [count for _, count in found.short] == [10]
    (gap,) = found.losses([Gap(11, 13, Reason.RETENTION)])
    assert gap.reason is Reason.LOSS
    assert gap.evidence == "the entries count 10 more records of offsets 10 to 19 than the lake has"
