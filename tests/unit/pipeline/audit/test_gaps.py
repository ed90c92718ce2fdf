"""Each missing offset gets exactly one reason."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.audit.gaps import BatchSpan, PartitionLog, Reason, explain_gaps
from pixy.pipeline.audit.intervals import Intervals

DAY = 86_400_000


def data(base: int, end: int, *gone: int, **more: bool) -> BatchSpan:
    """A batch of records, without those that compaction removed."""
    return BatchSpan(base, end, Intervals.span(base, end) - Intervals.offsets(gone), **more)


def marker(at: int) -> BatchSpan:
    return BatchSpan(at, at + 1, Intervals(), control=True)


LOG = PartitionLog(
    start=10,
    end=40,
    now=100 * DAY,
    retention_ms=7 * DAY,
    spans=(data(10, 15), marker(15), data(16, 19, aborted=True), marker(19), data(20, 30, 22, 23)),
)


def reasons(log: PartitionLog | None, *offsets: int, newest_gone: int = -1) -> list[Reason]:
    gaps = explain_gaps(Intervals.offsets(offsets), log, newest_gone)
    return [gap.reason for gap in gaps for _ in range(gap.start, gap.end)]


def test_records_of_the_log_are_lost_but_markers_and_aborted_records_are_not() -> None:
    assert reasons(LOG, 12, 15, 16, 18, 19, 21) == [
        Reason.LOSS,
        Reason.MARKER,
        Reason.ABORTED,
        Reason.ABORTED,
        Reason.MARKER,
        Reason.LOSS,
    ]


def test_compaction_explains_a_hole_in_the_log_only_of_a_compacted_topic() -> None:
    assert reasons(LOG, 22, 35) == [Reason.LOSS, Reason.LOSS]
    compacted = PartitionLog(LOG.start, LOG.end, LOG.spans, compacted=True)
    assert reasons(compacted, 21, 22, 23, 35) == [
        Reason.LOSS,
        Reason.COMPACTION,
        Reason.COMPACTION,
        Reason.COMPACTION,
    ]


def test_offsets_beyond_the_end_of_the_log_are_lost() -> None:
    assert reasons(LOG, 40, 41) == [Reason.LOSS, Reason.LOSS]
    assert "beyond the end of the log (40)" in explain_gaps(Intervals.span(40, 42), LOG)[0].evidence


@pytest.mark.parametrize(
    ("log", "newest_gone", "reason"),
    [
        (LOG, -1, Reason.RETENTION),
        (LOG, 92 * DAY, Reason.RETENTION),
        (LOG, 95 * DAY, Reason.DELETED),  # too young for retention
        (
            PartitionLog(10, 40, LOG.spans, retention_ms=7 * DAY, retention_bytes=1000, now=100 * DAY),
            95 * DAY,
            Reason.RETENTION,
        ),
        (PartitionLog(10, 40, LOG.spans), -1, Reason.DELETED),
        (
            PartitionLog(10, 40, LOG.spans, compacted=True, deleting=False, retention_ms=DAY),
            -1,
            Reason.DELETED,
        ),
        (PartitionLog(12, 40, LOG.spans, retention_ms=DAY), -1, Reason.DELETED),  # inside a batch
    ],
)
def test_offsets_below_the_start_of_the_log_were_deleted_or_expired(
    log: PartitionLog, newest_gone: int, reason: Reason
) -> None:
    assert reasons(log, 3, 4, newest_gone=newest_gone) == [reason, reason]


def test_without_a_broker_reasons_are_unknown() -> None:
    assert reasons(None, 1, 2) == [Reason.UNKNOWN, Reason.UNKNOWN]


@given(st.sets(st.integers(0, 60)), st.booleans(), st.integers(0, 30))
def test_every_missing_offset_has_one_reason(missing: set[int], compacted: bool, start: int) -> None:
    gaps = explain_gaps(Intervals.offsets(missing), PartitionLog(start, 40, LOG.spans, compacted=compacted))
    explained = [offset for gap in gaps for offset in range(gap.start, gap.end)]
    assert sorted(explained) == sorted(missing)
    assert explained == sorted(explained)
