"""The part of the sources that an audit of a period, or of what is new, looks at: a range of offsets of each partition.

Lake files, log, journal and producers' checks are read within it. Ranges of the lake are taken whole, so their counts can be
compared. Windows and findings outside of it stay as the earlier run has left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from pixy.pipeline.audit.findings import Finding
from pixy.pipeline.audit.open_sources import EVERYTHING, AuditSources, Slice
from pixy.pipeline.audit.previous_run import PreviousRun
from pixy.pipeline.audit.request import AuditRequest
from pixy.wire.types import TopicPartition

_ALWAYS_NEW: Final = (
    "archived ranges overlap",
    "expired before",
    "group behind",
    "waiting for",
    "not archived yet",
)
"""Kinds of findings (their beginnings) that each run makes anew for all offsets."""


def first_new(request: AuditRequest, sources: AuditSources, previous: PreviousRun) -> int | None:
    """Return the timestamp, milliseconds, from which on messages may have facts that the earlier run did not know.

    These are messages of windows that it had not closed, that were archived since, that waited for a group then, or were younger than
    its bound.

    Args:
        request: the request.
        sources: with the lake opened.
        previous: the earlier run.

    Returns:
        None if everything must be read: there was no earlier run of all windows with this lake and these names.
    """
    settings = previous.inputs.get("settings", {})
    lake = previous.inputs.get("lake")
    opened = sources.lake.identity.id if sources.lake is not None else None
    named = set(request.topics) - set(settings.get("topics", ()))
    named |= set(request.groups) - set(settings.get("groups", ()))
    if not previous.complete or named or (lake or {}).get("id") != opened:
        return None
    since = min(previous.closed_before, previous.at - int(settings.get("late_after_ms", 0)))
    for ranges in sources.ranges.values():
        for each in ranges:
            if lake and each.seq > lake["entry"] and each.range.stats.count:
                since = min(since, each.range.stats.min_timestamp)
    for late, oldest in previous.waiting:
        if late and oldest < 0:
            return None
        since = min(since, oldest) if late else since
    return max(since, 0)


def slices(sources: AuditSources) -> dict[TopicPartition, Slice]:
    """Return the offsets to look at of each partition; empty for all.

    Args:
        sources: with lake, cluster and period.
    """
    since, until = sources.since, sources.until
    if since is None and until is None:
        return {}
    first: dict[TopicPartition, int] = {}
    if sources.view is not None and since is not None and sources.bounds:
        at = sources.view.offsets_at(sorted(sources.bounds), since)
        first = {tp: sources.bounds[tp][1] if offset < 0 else offset for tp, offset in at.items()}
    found: dict[TopicPartition, Slice] = {}
    for tp in sources.partitions:
        parts = [
            (each.range.start, each.range.end)
            for each in sources.ranges.get(tp, ())
            if each.range.stats.count
            and (since is None or each.range.stats.max_timestamp >= since)
            and (until is None or each.range.stats.min_timestamp < until)
        ]
        end = sources.archived_end(tp)
        if tp in sources.bounds:
            start, log_end = max(first.get(tp, 0), end or 0), sources.bounds[tp][1]
            parts += [(start, EVERYTHING[1])] if start < log_end else []
        elif end is None:
            parts.append(EVERYTHING)
        found[tp] = (min(p[0] for p in parts), max(p[1] for p in parts)) if parts else (0, 0)
    return found


def carried(findings: Iterable[Finding], sources: AuditSources) -> Iterator[Finding]:
    """Yield the earlier run's findings about offsets and times that this run did not look at.

    Args:
        findings: those of the earlier run.
        sources: with period and slices.
    """
    for each in findings if sources.slices else ():
        if each.kind.startswith(_ALWAYS_NEW):
            continue
        if each.start < 0:
            if each.since < (sources.since or 0):
                yield each
            continue
        low, high = sources.slices.get((each.topic, each.partition), (0, 0))
        for start, end in ((each.start, min(each.end, low)), (max(each.start, high), each.end)):
            if start < end and low < high:
                yield replace(each, start=start, end=end)
        if low >= high:
            yield each
