"""Findings: one range of offsets each, with severity, kind and reason; the rows of ``findings.parquet``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa

from pixy.pipeline.audit.gaps import REMOVED, Gap, Reason
from pixy.pipeline.audit.journal_view import Hole, HoleReason
from pixy.pipeline.audit.partitions import PartitionView, Ranges
from pixy.pipeline.audit.tallies import TallyKind
from pixy.pipeline.audit.waiting import Waiting


class Severity(StrEnum):
    """The severity of a finding, the worst first."""

    LOSS = "loss"
    """Data is lost; the command exits with code 3."""
    FAULT = "fault"
    """A guarantee is broken, but nothing is lost."""
    BEHIND = "behind"
    """A group or the lake is later than the stated bound; nothing is lost or broken yet."""
    UNKNOWN = "unknown"
    """A source is too incomplete to tell."""
    EXPLAINED = "explained"


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding about the offsets ``[start, end)`` of a partition; -1 where it is about no offsets.

    Attributes:
        since: the oldest known timestamp of the records, milliseconds since 1970; -1 if none is known.
    """

    severity: Severity
    kind: str
    topic: str = ""
    partition: int = -1
    group: str | None = None
    start: int = -1
    end: int = -1
    why: str = ""
    since: int = -1

    @property
    def offsets(self) -> int:
        """Length of the range; not every offset need hold a record."""
        return self.end - self.start

    def row(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        since = None if self.since < 0 else self.since
        return {**asdict(self), "severity": str(self.severity), "since": since, "offsets": self.offsets}


def from_row(row: Mapping[str, Any]) -> Finding:
    """Convert a row of ``findings.parquet`` back."""
    values = {name: row[name] for name in Finding.__dataclass_fields__}
    since = -1 if row["since"] is None else round(row["since"].timestamp() * 1000)
    return Finding(**{**values, "severity": Severity(row["severity"]), "since": since})


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
        ("since", pa.timestamp("ms", tz="UTC")),
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
    TallyKind.R_ARCHIVE_LATE: (
        Severity.BEHIND,
        "archived late",
        "the lake had the record more than {late} after its timestamp",
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


def from_ranges(ranges: Ranges, late_after: int) -> Iterator[Finding]:
    """Yield findings of the classification.

    Args:
        ranges: the sets of offsets that it found.
        late_after: the bound of late records, milliseconds.
    """
    for (kind, topic, partition, group), offsets in ranges.items():
        if kind in _RANGE_FINDINGS:
            severity, name, why = _RANGE_FINDINGS[kind]
            text = why.format(late=duration(late_after))
            for start, end in offsets:
                yield Finding(severity, name, topic, partition, group, start, end, text)


def from_partitions(views: Iterable[PartitionView]) -> Iterator[Finding]:
    """Yield findings about gaps, overlapping ranges and lost confirmed records."""
    severities = {Reason.LOSS: Severity.LOSS, Reason.UNKNOWN: Severity.UNKNOWN}
    for view in views:
        where = (view.topic, view.partition, None)
        for gap in view.gaps:
            severity = severities.get(gap.reason, Severity.EXPLAINED)
            kind = "missing in the lake" if severity is Severity.LOSS else "gap in the lake"
            if gap.reason in REMOVED:
                kind = f"{gap.reason} from the lake"
            why = f"{gap.reason}: {gap.evidence}" if gap.evidence else str(gap.reason)
            since = min((view.timestamps[at] for at in _known(view, gap)), default=-1)
            yield Finding(severity, kind, *where, gap.start, gap.end, why, since)
        for start, end, entries in view.overlapping:
            why = f"{entries} entries of the lake's log list these offsets"
            yield Finding(Severity.FAULT, "archived ranges overlap", *where, start, end, why)
        for gap in view.log_lost:
            yield Finding(
                Severity.LOSS, "confirmed to a producer and lost", *where, gap.start, gap.end, gap.evidence
            )


def from_holes(holes: Iterable[Hole]) -> Iterator[Finding]:
    """Yield findings about periods in which the journal is incomplete."""
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
        yield Finding(Severity.UNKNOWN, "hole in the journal", why=why, since=hole.start // 1000)


def from_skips(skips: Mapping[tuple[str, int, str], tuple[tuple[int, int], ...]]) -> Iterator[Finding]:
    """Yield findings about offsets that a group skipped, given by (topic, partition, group)."""
    why = "the group's offset was set, or a member without a journal owned the partition"
    for (topic, partition, group), ranges in skips.items():
        for start, end in ranges:
            yield Finding(
                Severity.EXPLAINED, "skipped by the group", topic, partition, group, start, end, why
            )


def _known(view: PartitionView, gap: Gap) -> Iterator[int]:
    """Yield the offsets of a gap whose timestamp the log told."""
    return (at for at in view.timestamps if gap.start <= at < gap.end)


def from_waiting(waiting: Iterable[Waiting], late_after: int) -> Iterator[Finding]:
    """Yield findings about offsets that wait for a group, or to be archived.

    Args:
        waiting: by partition, and by group.
        late_after: the bound above which they are late, milliseconds.
    """
    bound = duration(late_after)
    for each in waiting:
        where = (each.topic, each.partition, each.group)
        reader = "the group" if each.group is not None else "the archive"
        if each.expired:
            why = f"the log begins at {each.start}; {reader} had read up to {each.start - each.expired}"
            yield Finding(
                Severity.FAULT,
                f"expired before {reader} read it",
                *where,
                each.start - each.expired,
                each.start,
                why,
            )
        if each.late:
            kind = "group behind" if each.group is not None else "not archived yet"
            why = f"{each.late:,} of {each.end - each.start:,} waiting offsets are older than {bound}"
            yield Finding(Severity.BEHIND, kind, *where, each.start, each.end, why, each.oldest)
        elif each.start < each.end:
            why = f"all waiting offsets are younger than {bound}"
            yield Finding(Severity.EXPLAINED, f"waiting for {reader}", *where, each.start, each.end, why)


def duration(millis: int) -> str:
    """Return a length of time for people: ``90 s``, ``2 min``, ``3 h``, ``2 days``."""
    for size, unit in ((86_400_000, "days"), (3_600_000, "h"), (60_000, "min")):
        if millis >= 2 * size or millis == size:
            return f"{millis / size:,.3g} {'day' if unit == 'days' and millis == size else unit}"
    return f"{millis / 1000:,.3g} s"


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
    "duration",
    "from_holes",
    "from_partitions",
    "from_ranges",
    "from_row",
    "from_skips",
    "from_waiting",
    "sort",
]
