"""Compare one bucket of offsets: bitmaps of the table and of the lake against the expected offsets, and the log's word.

A bucket is a bitmap of Spark's: 32,768 offsets in 4 kB, whatever the number of rows. Spark builds them where
the rows are, so a billion offsets are 30,000 rows here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from pixy.pipeline.audit.gaps import BatchSpan, Gap, PartitionLog, Reason, explain_gaps
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.table_audit.bounds import Expected

SIZE: Final = 32_768
"""Offsets of a bucket: the bits of a bitmap of Spark's ``bitmap_construct_agg``."""

Scan = Callable[[Expected, Intervals], Sequence[BatchSpan]]
"""Looks into the log around missing offsets; see :func:`pixy.pipeline.audit.log_scan.scan_log`."""


class Problem(StrEnum):
    """What is wrong with a range of offsets."""

    MISSING = "missing"
    """The table lacks the record, and has later ones."""
    LATE = "late"
    """The table lacks the record, has no later ones, and the record is older than the bound."""
    NOT_DUE = "not_due"
    """As LATE, but the record is younger than the bound."""
    DOUBLED = "doubled"
    """The table has several rows of the offset."""
    BEYOND = "beyond"
    """The table has an offset that the log has not reached: another topic's row, or the topic was created again."""
    GONE = "gone"
    """The table lacks the offset, and no source is left that could say whether there was a record."""
    ERASED = "erased"
    """The table lacks the record, and it was erased from the lake on request: it is not to be put back."""
    EXPLAINED = "explained"
    """The table lacks the offset, and there is no record: a transaction marker, compaction and so on."""


FAULTS: Final = (Problem.MISSING, Problem.DOUBLED, Problem.LATE, Problem.BEYOND)
"""Problems that end the command with exit code 3."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket of one partition: the offsets from ``number * SIZE`` on.

    Attributes:
        table: offsets that the table has.
        lake: offsets that the lake has.
        doubled: offsets that the table has more than once.
    """

    number: int
    table: Intervals = Intervals()
    lake: Intervals = Intervals()
    doubled: Intervals = Intervals()


@dataclass(frozen=True, slots=True)
class Found:
    """A range of offsets ``[start, end)`` with one problem.

    Attributes:
        reason: of an explained gap; otherwise the evidence.
        source: where the record can be had: ``broker``, ``lake`` or nothing.
        first_timestamp: of the range's records as far as the log told, milliseconds since 1970; -1 if unknown.
        last_timestamp: as above.
    """

    start: int
    end: int
    problem: Problem
    reason: str
    source: str = ""
    first_timestamp: int = -1
    last_timestamp: int = -1


def offsets_of(bitmap: bytes | None, number: int) -> Intervals:
    """Return the offsets of a bitmap of Spark's.

    Args:
        bitmap: bit n, from the lowest bit of the first byte on, stands for the bucket's n-th offset.
        number: the bucket's.
    """
    if not bitmap:
        return Intervals()
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), bitorder="little").astype(np.int8)
    edges = np.flatnonzero(np.diff(bits, prepend=0, append=0)) + number * SIZE
    return Intervals(tuple(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)))


def compare(partition: Expected, buckets: Sequence[Bucket], scan: Scan) -> Iterator[Found]:
    """Yield what is wrong with buckets of one partition, sorted by problem.

    Args:
        partition: the offsets that are expected.
        buckets: neighbours, so that one look into the log serves all of them.
        scan: looks into the log; called at most once.
    """
    table, lake, doubled = (
        Intervals.of(one for bucket in buckets for one in getattr(bucket, name))
        for name in ("table", "lake", "doubled")
    )
    covered = Intervals.of((bucket.number * SIZE, (bucket.number + 1) * SIZE) for bucket in buckets)
    for start, end in doubled:
        yield Found(start, end, Problem.DOUBLED, "the table has several rows of the offset")
    for start, end in table - Intervals.span(0, partition.end):
        yield Found(start, end, Problem.BEYOND, f"the log ends at {partition.end}")
    missing = (covered & Intervals.span(partition.start, partition.end)) - table
    inside, tail = (
        (missing & Intervals.span(0, partition.table_end)),
        missing - Intervals.span(0, partition.table_end),
    )
    erased = list(_erased(partition, covered, missing - lake))
    yield from erased
    gone = Intervals.of((each.start, each.end) for each in erased)
    inside, tail = inside - gone, tail - gone
    kept = tail & lake & Intervals.span(0, partition.log_start)
    for offsets, problem in ((inside & lake, Problem.MISSING), (kept, Problem.LATE)):
        for start, end in offsets:
            yield Found(start, end, problem, "the lake has the records", "lake")
    yield from _look_into_log(partition, (inside - lake) | (tail - kept), scan)


def _erased(partition: Expected, covered: Intervals, missing: Intervals) -> Iterator[Found]:
    for start, end, why in partition.erased:
        if missing and start < covered.end and covered.start < end:
            here = missing & Intervals.span(start, end)
            missing = missing - here
            yield from (Found(low, high, Problem.ERASED, why) for low, high in here)


def _look_into_log(partition: Expected, missing: Intervals, scan: Scan) -> Iterator[Found]:
    if not missing:
        return
    told = missing & Intervals.span(*partition.lake)
    gone = missing & Intervals.span(0, partition.log_start)
    for start, end in gone & told:
        yield Found(start, end, Problem.EXPLAINED, "the lake lacks it too, and covers it")
    for gap in explain_gaps(gone - told, _log(partition, ())):
        yield Found(gap.start, gap.end, Problem.GONE, f"{gap.reason}: {gap.evidence}")
    here = missing - Intervals.span(0, partition.log_start)
    if not here:
        return
    spans = tuple(scan(partition, here))
    times = dict(pair for span in spans for pair in span.timestamps)
    for gap in explain_gaps(here, _log(partition, spans)):
        if gap.reason is Reason.LOSS:
            yield from _lost(partition, gap, times)
        else:
            yield Found(gap.start, gap.end, Problem.EXPLAINED, str(gap.reason))


def _lost(partition: Expected, gap: Gap, times: dict[int, int]) -> Iterator[Found]:
    """Cut a gap at the table's end, above which it is late or not due: each record's timestamp decides."""
    begin = gap.start
    for offset in range(gap.start, gap.end):
        problem = _problem(partition, offset, times)
        if offset + 1 < gap.end and _problem(partition, offset + 1, times) is problem:
            continue
        known = [times[each] for each in range(begin, offset + 1) if each in times]
        source = "broker" if known else ""
        first, last = min(known, default=-1), max(known, default=-1)
        yield Found(begin, offset + 1, problem, gap.evidence, source, first, last)
        begin = offset + 1


def _problem(partition: Expected, offset: int, times: dict[int, int]) -> Problem:
    if offset < partition.table_end:
        return Problem.MISSING
    return Problem.LATE if times.get(offset, -1) < partition.late_before else Problem.NOT_DUE


def _log(partition: Expected, spans: tuple[BatchSpan, ...]) -> PartitionLog:
    return PartitionLog(
        partition.log_start,
        partition.end,
        spans,
        compacted=partition.compacted,
        deleting=partition.deleting,
        retention_ms=partition.retention_ms,
        retention_bytes=partition.retention_bytes,
        now=partition.now,
    )


__all__ = ["FAULTS", "SIZE", "Bucket", "Found", "Problem", "compare", "offsets_of"]
