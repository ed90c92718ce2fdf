"""Problems: findings that have one cause, told once, with their place, their time and the next command."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from pixy.pipeline.audit.advice import Subject, advise
from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.audit.tables import Key, Row
from pixy.pipeline.audit.tallies import NO_WINDOW

MAX_RANGES: Final = 500
"""Ranges of offsets that a partition of a problem lists; ``findings.parquet`` has them all."""

MAX_EVIDENCE: Final = 2
"""Different texts of evidence that a problem lists: those of other partitions are alike."""

PLACES: Final = {
    "missing in the lake": "lake",
    "gap in the lake": "lake",
    "archived ranges overlap": "lake",
    "archived twice": "lake",
    "archived out of order": "lake",
    "archived late": "lake",
    "not archived yet": "lake",
    "expired before the archive read it": "lake",
    "confirmed to a producer and lost": "log",
    "sequence missing": "log",
    "sequence repeated": "log",
    "written twice": "log",
    "hole in the journal": "journal",
}
"""By kind of finding, where the fault is; the others are about a group."""

_PLACES_ORDER: Final = ("lake", "log", "group", "journal")

_COUNTS: Final = {
    "missing in the lake": "archive_lost",
    "archived twice": "archive_duplicates",
    "archived out of order": "archive_out_of_order",
    "archived late": "archive_late",
    "confirmed to a producer and lost": "log_lost",
    "lost to the group": "lost",
    "acknowledgement unknown": "unknown",
    "offered twice": "duplicates_unexplained",
    "offered out of order": "out_of_order",
}
"""By kind of finding, the column of the windows that counts it: so the windows say when it happened."""

_TITLES: Final = {
    "missing in the lake": "Lost in the lake",
    "gap in the lake": "Missing in the lake, reason unknown",
    "archived ranges overlap": "Archived by two batches",
    "archived late": "Archived late",
    "not archived yet": "Not archived yet, and late",
    "confirmed to a producer and lost": "Lost in Kafka's log",
    "lost to the group": "Lost to the group",
    "acknowledgement unknown": "Unknown whether acknowledged",
    "expired before the group read it": "Expired before the group read it",
    "sequence missing": "Missing sequence numbers of a producer",
    "sequence repeated": "Written again by a producer's retry",
    "written twice": "The same content at two offsets",
}


@dataclass(slots=True)
class _Gathered:
    why: list[str] = field(default_factory=list)
    ranges: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    since: int = -1

    def add(self, each: Finding) -> None:
        why = each.why.removeprefix("loss: ")
        if why not in self.why and len(self.why) < MAX_EVIDENCE:
            self.why.append(why)
        if each.start >= 0:
            self.ranges[each.partition].append((each.start, each.end))
        if each.since >= 0:
            self.since = each.since if self.since < 0 else min(self.since, each.since)


def find_problems(
    findings: Iterable[Finding], windows: dict[Key, Row], request: AuditRequest
) -> list[dict[str, Any]]:
    """Return the problems as plain values, the worst first; explained findings are none.

    Args:
        findings: sorted, the worst first.
        windows: the audit's windows, which know when most findings happened.
        request: supplies the names for the commands.
    """
    gathered: dict[tuple[Severity, str, str, str | None, str], _Gathered] = defaultdict(_Gathered)
    for each in findings:
        if each.severity is not Severity.EXPLAINED:
            # Other evidence has another cause only in the lake: the broker has the records, or lacks them, too.
            cause = each.why if each.kind == "missing in the lake" else ""
            gathered[each.severity, each.kind, each.topic, each.group, cause].add(each)
    times = _times(windows)
    problems = [
        _problem(severity, kind, (topic, group), found, times.get((kind, topic, group)), request)
        for (severity, kind, topic, group, _), found in gathered.items()
    ]
    order = [str(severity) for severity in Severity]
    return sorted(
        problems,
        key=lambda row: (order.index(row["severity"]), _PLACES_ORDER.index(row["place"]), -row["offsets"]),
    )


def _problem(
    severity: Severity,
    kind: str,
    where: tuple[str, str | None],
    found: _Gathered,
    times: tuple[int, int] | None,
    request: AuditRequest,
) -> dict[str, Any]:
    topic, group = where
    ranges = {partition: Intervals.of(each) for partition, each in sorted(found.ranges.items())}
    ends = tuple((partition, each.start, each.end) for partition, each in ranges.items() if each)
    advice = advise(kind, Subject(request, topic, group or "", " ".join(found.why), ends))
    since, until = times or (-1, -1)
    since = found.since if found.since >= 0 else since
    return {
        "severity": str(severity),
        "kind": kind,
        "title": _TITLES.get(kind, kind[:1].upper() + kind[1:]),
        "place": PLACES.get(kind, "group"),
        "topic": topic,
        "group": group,
        "offsets": sum(each.count for each in ranges.values()),
        "since": None if since < 0 else since,
        "until": None if until < 0 else until,
        "why": found.why,
        "cause": advice.cause,
        "next": [{"command": command, "remark": remark} for command, remark in advice.commands],
        "partitions": [
            {
                "partition": partition,
                "offsets": each.count,
                "ranges": [list(one) for one in each.ranges[:MAX_RANGES]],
                "more": max(0, len(each.ranges) - MAX_RANGES),
            }
            for partition, each in ranges.items()
        ],
    }


def _times(windows: dict[Key, Row]) -> dict[tuple[str, str, str | None], tuple[int, int]]:
    """Return the first and the last window in which each kind was counted, by (kind, topic, group)."""
    found: dict[tuple[str, str, str | None], tuple[int, int]] = {}
    for (topic, _, group, start), row in windows.items():
        if start == NO_WINDOW:
            continue
        for kind, column in _COUNTS.items():
            if row.get(column):
                key = (kind, topic, group if PLACES.get(kind) is None else None)
                first, last = found.get(key, (start, start))
                found[key] = min(first, start), max(last, start)
    return found


__all__ = ["MAX_RANGES", "PLACES", "find_problems"]
