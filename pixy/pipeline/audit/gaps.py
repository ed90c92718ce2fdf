"""Why offsets are missing: each gap gets a reason, and only what no reason is left for is a loss.

Pure. ``Log`` is what a broker tells of one partition; :mod:`pixy.pipeline.audit.log_scan` asks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from pixy.pipeline.audit.intervals import Intervals


class Why(StrEnum):
    """The reason of a gap."""

    MARKER = "transaction marker"
    ABORTED = "aborted transaction"
    COMPACTION = "compaction"
    RETENTION = "retention"
    DELETED = "DeleteRecords"
    LOSS = "loss"
    UNKNOWN = "unknown"
    """The log was not looked at."""


@dataclass(frozen=True, slots=True)
class Span:
    """A batch in the log: offsets ``[base, end)``."""

    base: int
    end: int
    records: Intervals
    """Which of them are records that a reader gets; none of a control batch."""
    control: bool = False
    aborted: bool = False
    stamps: tuple[tuple[int, int], ...] = ()
    """(offset, timestamp in milliseconds) of those records that are missing somewhere else."""


@dataclass(frozen=True, slots=True)
class Log:
    """One partition at a broker.

    Attributes:
        start: log start offset; what lies below is gone.
        end: the high watermark.
        spans: batches where something was missing, at least, and the one that ``start`` lies in.
        compacted: whether ``cleanup.policy`` names ``compact``.
        deleting: whether it names ``delete``.
        retention_ms, retention_bytes: -1: without limit.
        now: when that was asked, milliseconds.
    """

    start: int
    end: int
    spans: tuple[Span, ...] = ()
    compacted: bool = False
    deleting: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    now: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of missing offsets and the reason."""

    start: int
    end: int
    why: Why
    evidence: str = ""


@dataclass(slots=True)
class _Sorting:
    left: Intervals
    gaps: list[Gap] = field(default_factory=list)

    def take(self, part: Intervals, why: Why, evidence: str = "") -> None:
        for start, end in self.left & part:
            self.gaps.append(Gap(start, end, why, evidence))
        self.left = self.left - part


def classify(missing: Intervals, log: Log | None, newest_gone: int = -1) -> list[Gap]:
    """The reasons of what is missing, by offset; together the gaps are exactly ``missing``.

    Args:
        missing: offsets that should be somewhere (in the lake, say) and are not.
        log: None: nobody could be asked.
        newest_gone: the largest timestamp that is known of what was below the log's start
            (milliseconds; from the lake or the journal), -1 if none is.
    """
    if log is None:
        return [Gap(start, end, Why.UNKNOWN, "no broker was asked") for start, end in missing]
    sorting = _Sorting(missing)
    why, evidence = _below_start(log, newest_gone)
    sorting.take(Intervals.span(0, log.start), why, evidence)
    sorting.take(
        _union(span.records for span in log.spans if not span.aborted), Why.LOSS, "the broker has it"
    )
    sorting.take(_whole(span for span in log.spans if span.control), Why.MARKER)
    sorting.take(_whole(span for span in log.spans if span.aborted), Why.ABORTED)
    sorting.take(
        Intervals.span(log.end, max(log.end, missing.end if missing else 0)),
        Why.LOSS,
        f"beyond the end of the log ({log.end}): the log lost its end, or the topic was made anew",
    )
    if log.compacted:
        sorting.take(sorting.left, Why.COMPACTION, "cleanup.policy has compact")
    sorting.take(sorting.left, Why.LOSS, "not in the log either, and nothing explains it")
    return sorted(sorting.gaps, key=lambda gap: gap.start)


def _below_start(log: Log, newest_gone: int) -> tuple[Why, str]:
    """Retention deletes whole segments; DeleteRecords goes to any offset, and for any reason."""
    first = next((span for span in log.spans if span.base <= log.start < span.end), None)
    if first is not None and first.base < log.start:
        return Why.DELETED, f"the log starts at {log.start}, inside the batch of {first.base}"
    if not log.deleting:
        return Why.DELETED, "cleanup.policy has no delete"
    if log.retention_ms < 0 and log.retention_bytes < 0:
        return Why.DELETED, "retention is without limit"
    if log.retention_bytes < 0 and 0 <= log.now - log.retention_ms <= newest_gone:
        return Why.DELETED, "younger than retention.ms"
    return Why.RETENTION, f"retention.ms {log.retention_ms}, retention.bytes {log.retention_bytes}"


def _whole(spans: Iterable[Span]) -> Intervals:
    return Intervals.of((span.base, span.end) for span in spans)


def _union(parts: Iterable[Intervals]) -> Intervals:
    return Intervals.of(each for part in parts for each in part)


__all__ = ["Gap", "Log", "Span", "Why", "classify"]
