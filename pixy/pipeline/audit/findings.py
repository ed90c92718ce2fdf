"""What the audit found, one range of offsets each: the rows of the table ``findings``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from pixy.pipeline.audit.facts import What
from pixy.pipeline.audit.gaps import Why
from pixy.pipeline.audit.journal_view import Hole
from pixy.pipeline.audit.missing import PartitionView, Ranges


class Severity(StrEnum):
    """How bad it is."""

    LOSS = "loss"
    """Something is gone: the exit code tells."""
    FAULT = "fault"
    """Against the promises, nothing is gone."""
    EXPLAINED = "explained"
    UNKNOWN = "unknown"
    """It can not be told, for a source is incomplete."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Offsets ``[start, end)`` of a partition (-1 where it is not about offsets)."""

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
        """How many offsets, as a range; not each of them need be a record."""
        return self.end - self.start

    def row(self) -> dict[str, Any]:
        """As plain values."""
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

_OF_RANGES = {
    What.R_ARCHIVE_DUPLICATES: (Severity.FAULT, "archived twice", "rows of the lake with the same offset"),
    What.R_ARCHIVE_OUT_OF_ORDER: (
        Severity.FAULT,
        "archived out of order",
        "behind a higher offset in its file",
    ),
    What.R_LOST: (
        Severity.LOSS,
        "lost to the group",
        "below the committed offset, never acknowledged nor given up",
    ),
    What.R_UNKNOWN: (Severity.UNKNOWN, "acknowledgement not known", "the journal has a hole behind it"),
    What.R_UNEXPLAINED: (Severity.FAULT, "offered twice", "the same attempt within one assignment"),
    What.R_OUT_OF_ORDER: (
        Severity.FAULT,
        "offered out of order",
        "after a higher offset within one assignment",
    ),
}


def of_ranges(ranges: Ranges) -> Iterator[Finding]:
    """What the judge found."""
    for (what, topic, partition, group), offsets in ranges.items():
        if what in _OF_RANGES:
            severity, kind, why = _OF_RANGES[what]
            for start, end in offsets:
                yield Finding(severity, kind, topic, partition, group, start, end, why)


def of_partitions(views: Iterable[PartitionView]) -> Iterator[Finding]:
    """Gaps, overlaps and lost answers."""
    for view in views:
        place = (view.topic, view.partition, None)
        for gap in view.gaps:
            severity = {Why.LOSS: Severity.LOSS, Why.UNKNOWN: Severity.UNKNOWN}.get(
                gap.why, Severity.EXPLAINED
            )
            kind = "missing in the lake" if severity is Severity.LOSS else "gap in the lake"
            why = f"{gap.why}: {gap.evidence}" if gap.evidence else str(gap.why)
            yield Finding(severity, kind, *place, gap.start, gap.end, why)
        for start, end, times in view.overlapping:
            yield Finding(
                Severity.FAULT,
                "archived ranges overlap",
                *place,
                start,
                end,
                f"{times} entries of the lake's log",
            )
        for gap in view.log_lost:
            yield Finding(
                Severity.LOSS, "confirmed to a producer and gone", *place, gap.start, gap.end, gap.evidence
            )


def of_holes(holes: Iterable[Hole]) -> Iterator[Finding]:
    """What the journal does not tell."""
    for hole in holes:
        count = f"{hole.events:,} events, " if hole.events else ""
        yield Finding(
            Severity.UNKNOWN,
            "hole in the journal",
            why=f"{hole.why}: {count}{hole.client}, {_time(hole.start)} to {_time(hole.end)}",
        )


def of_skips(watches: Mapping[tuple[str, int, str], tuple[tuple[int, int], ...]]) -> Iterator[Finding]:
    """Offsets that a group was moved past; by (topic, partition, group)."""
    for (topic, partition, group), skipped in watches.items():
        for start, end in skipped:
            yield Finding(
                Severity.EXPLAINED,
                "passed over by the group",
                topic,
                partition,
                group,
                start,
                end,
                "its offset was set, or a member without a journal had the partition",
            )


def _time(micros: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


ORDER = (Severity.LOSS, Severity.FAULT, Severity.UNKNOWN, Severity.EXPLAINED)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, then by place."""
    return sorted(
        findings,
        key=lambda each: (
            ORDER.index(each.severity),
            each.kind,
            each.topic,
            each.partition,
            each.group or "",
            each.start,
        ),
    )


__all__ = ["SCHEMA", "Finding", "Severity", "in_order", "of_holes", "of_partitions", "of_ranges", "of_skips"]
