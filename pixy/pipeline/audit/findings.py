"""Findings: one range of offsets each, with severity, kind and reason; the rows of ``findings.parquet``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from pixy.pipeline.audit.gaps import Reason
from pixy.pipeline.audit.journal_view import Hole, HoleReason
from pixy.pipeline.audit.partitions import PartitionView, Ranges
from pixy.pipeline.audit.tallies import TallyKind


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    LOSS = "loss"
    """Data is lost; the command exits with code 3."""
    FAULT = "fault"
    """A guarantee is broken, but nothing is lost."""
    UNKNOWN = "unknown"
    """A source is too incomplete to tell."""
    EXPLAINED = "explained"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about the offsets ``[start, end)`` of a partition; -1 where it is about no offsets."""

    severity: Severity
    kind: str
    topic: str = ""
    partition: int = -1
    group: str | None = None
    start: int = -1
    end: int = -1
    why: str = ""

    @property
    def offsets(self) -> int:
        """Length of the range; not every offset need hold a record."""
        return self.end - self.start

    def row(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {**asdict(self), "severity": str(self.severity), "offsets": self.offsets}


SCHEMA = pa.schema(
    [
        ("severity", pa.string()),
        ("kind", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("group", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("why", pa.string()),
        ("offsets", pa.int64()),
    ]
)

_RANGE_FINDINGS = {
    TallyKind.R_ARCHIVE_DUPLICATES: (
        Severity.FAULT,
        "archived twice",
        "the lake has several rows with this offset",
    ),
    TallyKind.R_ARCHIVE_OUT_OF_ORDER: (
        Severity.FAULT,
        "archived out of order",
        "the row follows a higher offset in its file",
    ),
    TallyKind.R_LOST: (
        Severity.LOSS,
        "lost to the group",
        "the group's committed offset is higher, but the message was neither acknowledged nor given up",
    ),
    TallyKind.R_UNKNOWN: (
        Severity.UNKNOWN,
        "acknowledgement unknown",
        "a later hole in the journal may have held the acknowledgement",
    ),
    TallyKind.R_UNEXPLAINED: (
        Severity.FAULT,
        "offered twice",
        "one assignment made the same attempt more than once",
    ),
    TallyKind.R_OUT_OF_ORDER: (
        Severity.FAULT,
        "offered out of order",
        "one assignment offered a higher offset first",
    ),
}


def from_ranges(ranges: Ranges) -> Iterator[Finding]:
    """Findings of the classification."""
    for (kind, topic, partition, group), offsets in ranges.items():
        if kind in _RANGE_FINDINGS:
            severity, name, why = _RANGE_FINDINGS[kind]
            for start, end in offsets:
                yield Finding(severity, name, topic, partition, group, start, end, why)


def from_partitions(views: Iterable[PartitionView]) -> Iterator[Finding]:
    """Findings about gaps, overlapping ranges and lost confirmed records."""
    severities = {Reason.LOSS: Severity.LOSS, Reason.UNKNOWN: Severity.UNKNOWN}
    for view in views:
        where = (view.topic, view.partition, None)
        for gap in view.gaps:
            severity = severities.get(gap.reason, Severity.EXPLAINED)
            kind = "missing in the lake" if severity is Severity.LOSS else "gap in the lake"
            why = f"{gap.reason}: {gap.evidence}" if gap.evidence else str(gap.reason)
            yield Finding(severity, kind, *where, gap.start, gap.end, why)
        for start, end, entries in view.overlapping:
            why = f"{entries} entries of the lake's log list these offsets"
            yield Finding(Severity.FAULT, "archived ranges overlap", *where, start, end, why)
        for gap in view.log_lost:
            yield Finding(
                Severity.LOSS, "confirmed to a producer and lost", *where, gap.start, gap.end, gap.evidence
            )


def from_holes(holes: Iterable[Hole]) -> Iterator[Finding]:
    """Findings about periods in which the journal is incomplete."""
    texts = {
        HoleReason.DROPPED: "daemon {client} dropped {events:,} events from {start} to {end}",
        HoleReason.BATCHES_MISSING: "batches of daemon {client} are missing from {start} to {end}",
        HoleReason.NO_END: (
            "daemon {client} ended without closing its journal: it was killed or cut off from Kafka; "
            "events from {start} to {end} may be missing"
        ),
    }
    for hole in holes:
        why = texts[hole.reason].format(
            client=hole.client, events=hole.events, start=_time(hole.start), end=_time(hole.end)
        )
        yield Finding(Severity.UNKNOWN, "hole in the journal", why=why)


def from_skips(skips: Mapping[tuple[str, int, str], tuple[tuple[int, int], ...]]) -> Iterator[Finding]:
    """Findings about offsets that a group skipped, given by (topic, partition, group)."""
    why = "the group's offset was set, or a member without a journal owned the partition"
    for (topic, partition, group), ranges in skips.items():
        for start, end in ranges:
            yield Finding(
                Severity.EXPLAINED, "skipped by the group", topic, partition, group, start, end, why
            )


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


_ORDER = list(Severity)


def sort(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by severity, the worst first, then by kind, partition and offset."""
    return sorted(
        findings,
        key=lambda each: (
            _ORDER.index(each.severity),
            each.kind,
            each.topic,
            each.partition,
            each.group or "",
            each.start,
        ),
    )


__all__ = [
    "SCHEMA",
    "Finding",
    "Severity",
    "from_holes",
    "from_partitions",
    "from_ranges",
    "from_skips",
    "sort",
]
