"""The reasons of gaps: a table, and that no offset is forgotten or told twice."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.audit.gaps import Log, Span, Why, classify
from pixy.pipeline.audit.intervals import Intervals

DAY = 86_400_000


def data(base: int, end: int, *gone: int, **more: bool) -> Span:
    """A batch of records, some of which compaction took."""
    return Span(base, end, Intervals.span(base, end) - Intervals.offsets(gone), **more)


def marker(at: int) -> Span:
    return Span(at, at + 1, Intervals(), control=True)


LOG = Log(
    start=10,
    end=40,
    now=100 * DAY,
    retention_ms=7 * DAY,
    spans=(data(10, 15), marker(15), data(16, 19, aborted=True), marker(19), data(20, 30, 22, 23)),
)


def reasons(log: Log | None, *offsets: int, newest_gone: int = -1) -> list[Why]:
    gaps = classify(Intervals.offsets(offsets), log, newest_gone)
    return [gap.why for gap in gaps for _ in range(gap.start, gap.end)]


def test_what_the_log_has_is_lost_and_markers_and_aborts_are_not() -> None:
    assert reasons(LOG, 12, 15, 16, 18, 19, 21) == [
        Why.LOSS,
        Why.MARKER,
        Why.ABORTED,
        Why.ABORTED,
        Why.MARKER,
        Why.LOSS,
    ]


def test_a_hole_in_the_log_is_compaction_only_where_there_is_compaction() -> None:
    assert reasons(LOG, 22, 35) == [Why.LOSS, Why.LOSS]
    compacted = Log(LOG.start, LOG.end, LOG.spans, compacted=True)
    assert reasons(compacted, 21, 22, 23, 35) == [Why.LOSS, Why.COMPACTION, Why.COMPACTION, Why.COMPACTION]


def test_what_lies_behind_the_logs_end_is_lost() -> None:
    assert reasons(LOG, 40, 41) == [Why.LOSS, Why.LOSS]
    assert "beyond the end of the log (40)" in classify(Intervals.span(40, 42), LOG)[0].evidence


@pytest.mark.parametrize(
    ("log", "newest_gone", "why"),
    [
        (LOG, -1, Why.RETENTION),
        (LOG, 92 * DAY, Why.RETENTION),
        (LOG, 95 * DAY, Why.DELETED),  # retention would not have taken it yet
        (
            Log(10, 40, LOG.spans, retention_ms=7 * DAY, retention_bytes=1000, now=100 * DAY),
            95 * DAY,
            Why.RETENTION,
        ),
        (Log(10, 40, LOG.spans), -1, Why.DELETED),
        (Log(10, 40, LOG.spans, compacted=True, deleting=False, retention_ms=DAY), -1, Why.DELETED),
        (Log(12, 40, LOG.spans, retention_ms=DAY), -1, Why.DELETED),  # inside a batch
    ],
)
def test_what_lies_before_the_logs_start(log: Log, newest_gone: int, why: Why) -> None:
    assert reasons(log, 3, 4, newest_gone=newest_gone) == [why, why]


def test_without_a_broker_nothing_is_claimed() -> None:
    assert reasons(None, 1, 2) == [Why.UNKNOWN, Why.UNKNOWN]


@given(st.sets(st.integers(0, 60)), st.booleans(), st.integers(0, 30))
def test_every_missing_offset_has_one_reason(missing: set[int], compacted: bool, start: int) -> None:
    gaps = classify(Intervals.offsets(missing), Log(start, 40, LOG.spans, compacted=compacted))
    told = [offset for gap in gaps for offset in range(gap.start, gap.end)]
    assert sorted(told) == sorted(missing)
    assert told == sorted(told)
