"""Explain missing offsets: each gap gets a reason, and only gaps without any other reason are losses.

Pure. :mod:`pixy.pipeline.audit.log_scan` fetches the :class:`PartitionLog` from a broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from pixy.pipeline.audit.intervals import Intervals


class Reason(StrEnum):
    """The reason of a gap."""

    MARKER = "transaction marker"
    ABORTED = "aborted transaction"
    COMPACTION = "compaction"
    RETENTION = "retention"
    DELETED = "DeleteRecords"
    EXPIRED = "expired"
    """Removed from the lake by ``expire``; the entry says so."""
    ERASED = "erased"
    """Removed from the lake by ``erase``."""
    LOSS = "loss"
    UNKNOWN = "unknown"
    """The log was not read."""


REMOVED: Final = (Reason.EXPIRED, Reason.ERASED)
"""Reasons that the lake's history states."""


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A batch in the log, with the offsets ``[base, end)``.

    Attributes:
        records: the offsets that hold records for consumers; none in a control batch.
        timestamps: (offset, timestamp in milliseconds) of records that are missing elsewhere.
    """

    base: int
    end: int
    records: Intervals
    control: bool = False
    aborted: bool = False
    timestamps: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionLog:
    """One partition's log at its leader.

    Attributes:
        start: log start offset; lower offsets are gone.
        end: the last stable offset.
        spans: at least the batches around missing offsets, and the one that contains ``start``.
        compacted: whether ``cleanup.policy`` names ``compact``.
        deleting: whether it names ``delete``.
        retention_ms: the topic's ``retention.ms``; -1 for no limit.
        retention_bytes: the topic's ``retention.bytes``; -1 for no limit.
        now: when the broker was asked, milliseconds since 1970.
    """

    start: int
    end: int
    spans: tuple[BatchSpan, ...] = ()
    compacted: bool = False
    deleting: bool = True
    retention_ms: int = -1
    retention_bytes: int = -1
    now: int = 0


@dataclass(frozen=True, slots=True)
class Gap:
    """The missing offsets ``[start, end)`` and their reason."""

    start: int
    end: int
    reason: Reason
    evidence: str = ""


@dataclass(slots=True)
class _Explanation:
    """Gaps so far, and the offsets that still lack a reason."""

    left: Intervals
    gaps: list[Gap] = field(default_factory=list)

    def explain(self, part: Intervals, reason: Reason, evidence: str = "") -> None:
        for start, end in self.left & part:
            self.gaps.append(Gap(start, end, reason, evidence))
        self.left = self.left - part


def explain_gaps(missing: Intervals, log: PartitionLog | None, newest_gone: int = -1) -> list[Gap]:
    """Return the reasons of missing offsets, sorted; together the gaps are exactly ``missing``.

    Args:
        missing: offsets that a source should have and lacks.
        log: the partition's log; None if no broker was asked.
        newest_gone: the largest known timestamp of the records below the log's start, milliseconds since 1970
            (the lake or the journal has it); -1 if none is known.
    """
    if log is None:
        return [Gap(start, end, Reason.UNKNOWN, "no broker was asked") for start, end in missing]
    result = _Explanation(missing)
    reason, evidence = _explain_below_start(log, newest_gone)
    result.explain(Intervals.span(0, log.start), reason, evidence)
    present = Intervals.of(each for span in log.spans if not span.aborted for each in span.records)
    result.explain(present, Reason.LOSS, "the broker still has the records")
    result.explain(_covered(span for span in log.spans if span.control), Reason.MARKER)
    result.explain(_covered(span for span in log.spans if span.aborted), Reason.ABORTED)
    result.explain(
        Intervals.span(log.end, max(log.end, missing.end if missing else 0)),
        Reason.LOSS,
        f"beyond the end of the log ({log.end}): the log was truncated, or the topic was recreated",
    )
    if log.compacted:
        result.explain(result.left, Reason.COMPACTION, "cleanup.policy includes compact")
    result.explain(result.left, Reason.LOSS, "the log lacks the records too, and nothing explains it")
    return sorted(result.gaps, key=lambda gap: gap.start)


def _explain_below_start(log: PartitionLog, newest_gone: int) -> tuple[Reason, str]:
    """Explain what lies below the start: retention deletes whole segments that are old or many, DeleteRecords up to any offset."""
    first = next((span for span in log.spans if span.base <= log.start < span.end), None)
    if first is not None and first.base < log.start:
        return Reason.DELETED, f"the log starts at {log.start}, inside the batch of {first.base}"
    if not log.deleting:
        return Reason.DELETED, "cleanup.policy does not include delete"
    if log.retention_ms < 0 and log.retention_bytes < 0:
        return Reason.DELETED, "the topic has no retention limit"
    if log.retention_bytes < 0 and 0 <= log.now - log.retention_ms <= newest_gone:
        return Reason.DELETED, "the records were younger than retention.ms"
    return Reason.RETENTION, f"retention.ms {log.retention_ms}, retention.bytes {log.retention_bytes}"


def _covered(spans: Iterable[BatchSpan]) -> Intervals:
    return Intervals.of((span.base, span.end) for span in spans)


__all__ = ["REMOVED", "BatchSpan", "Gap", "PartitionLog", "Reason", "explain_gaps"]
