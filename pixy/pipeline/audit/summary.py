"""Summarize an audit in one JSON document: verdict, totals by topic and group, quantiles, findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

from pixy.pipeline.audit.findings import Severity
from pixy.pipeline.audit.output import partition_rows
from pixy.pipeline.audit.previous_run import FORMAT, VERSION
from pixy.pipeline.audit.problems import find_problems
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.tables import METRICS, Key, quantile_columns
from pixy.pipeline.audit.tallies import GROUP_COUNTS, NO_WINDOW, TOPIC_COUNTS, TallyKind

MAX_FINDINGS = 200
"""Findings per kind in the summary and the report; ``findings.parquet`` has them all."""
MAX_WINDOWS = 200
"""Restated windows that the summary names."""

_TOPIC = [kind.name.lower() for kind in TOPIC_COUNTS]
_GROUP = [kind.name.lower() for kind in GROUP_COUNTS]
_TOPIC_LATENCIES = (TallyKind.PRODUCE_ANSWER, TallyKind.ARCHIVE_DELAY)


def summarize(result: AuditResult) -> dict[str, Any]:
    """Return the summary; docs/pipeline.md ("Audit") describes it."""
    topics, groups = _totals(result)
    loss = any(each.severity is Severity.LOSS for each in result.findings)
    fault = any(each.severity is Severity.FAULT for each in result.findings)
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": "loss" if loss else "fault" if fault else "clean",
        "run": result.run,
        "complete": result.complete,
        "at": _stamp(result.now // 1000),
        "cluster": result.request.cluster,
        "lake": result.request.lake,
        "inputs": result.inputs,
        "inputs_digest": result.digest,
        "sources": [
            name for name in ("lake", "journal", "log", "committed") if result.inputs[name] is not None
        ],
        "windows": _windows(result),
        "topics": topics,
        "groups": groups,
        "partitions": list(partition_rows(result)),
        "late_after_ms": result.request.late_after,
        "found": _counted(result),
        "problems": find_problems(result.findings, result.windows.rows, result.request),
        "waiting": _waiting(result),
        "findings": _first_findings(result),
    }


def _windows(result: AuditResult) -> dict[str, Any]:
    windows = result.windows
    return {
        "count": len(windows.rows),
        "length_ms": result.request.window,
        "watermark_ms": result.request.watermark,
        "closed_before_ms": windows.closed_before,
        "closed": sum(bool(row["closed"]) for row in windows.rows.values()),
        "restated": len(windows.restated),
        "carried": len(windows.carried),
        "restated_windows": [_window(key) for key in windows.restated[:MAX_WINDOWS]],
    }


def _counted(result: AuditResult) -> list[dict[str, Any]]:
    ranges: Counter[tuple[Severity, str]] = Counter()
    offsets: Counter[tuple[Severity, str]] = Counter()
    for each in result.findings:
        ranges[each.severity, each.kind] += 1
        offsets[each.severity, each.kind] += each.offsets
    return [
        {"severity": str(key[0]), "kind": key[1], "ranges": n, "offsets": offsets[key]}
        for key, n in ranges.items()
    ]


_WAITING = ("group behind", "waiting for the group", "not archived yet", "waiting for the archive")


def _waiting(result: AuditResult) -> list[dict[str, Any]]:
    """Return how far each group, and the archive, is behind in each partition; those that are not are left out."""
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "group": each.group,
            "position": each.start,
            "end": each.end,
            "offsets": each.offsets,
            "late": each.severity is Severity.BEHIND,
            "oldest": None if each.since < 0 else _stamp(each.since),
        }
        for each in result.findings
        if each.kind in _WAITING
    ]


def _totals(result: AuditResult) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    topics: dict[str, Counter[str]] = defaultdict(Counter)
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seen: set[tuple[str, int, int]] = set()
    for (topic, partition, group, window), row in result.windows.rows.items():
        # Each group's row repeats the topic's figures.
        if (topic, partition, window) not in seen:
            seen.add((topic, partition, window))
            topics[topic] += Counter({name: row.get(name) or 0 for name in _TOPIC})
        if group is not None:
            groups[topic, group] += Counter({name: row.get(name) or 0 for name in _GROUP})
    latencies = _latencies(result)
    return (
        [
            {"topic": topic, **{name: counts[name] for name in _TOPIC}, **latencies.get((topic, None), {})}
            for topic, counts in sorted(topics.items())
        ],
        [
            {
                "topic": topic,
                "group": group,
                **{name: counts[name] for name in _GROUP},
                **latencies.get((topic, group), {}),
            }
            for (topic, group), counts in sorted(groups.items())
        ],
    )


def _latencies(result: AuditResult) -> dict[tuple[str, str | None], dict[str, float]]:
    kinds = {name: kind for kind, name in METRICS.items()}
    merged: dict[tuple[str, str | None, TallyKind], Counter[int]] = defaultdict(Counter)
    for row in result.sketches:
        merged[row["topic"], row["group"], kinds[row["metric"]]][row["bucket"]] += row["count"]
    found: dict[tuple[str, str | None], dict[str, float]] = defaultdict(dict)
    for (topic, group, kind), buckets in merged.items():
        column = f"{METRICS[kind]}_max_ms"
        largest = max(
            (
                row[column]
                for key, row in result.windows.rows.items()
                if key[0] == topic
                and (kind in _TOPIC_LATENCIES or key[2] == group)
                and row.get(column) is not None
            ),
            default=None,
        )
        found[topic, group] |= quantile_columns(kind, sorted(buckets.items()), largest)
        if largest is not None:
            found[topic, group][column] = largest
    return found


def _first_findings(result: AuditResult) -> list[dict[str, Any]]:
    shown: Counter[str] = Counter()
    rows = []
    for each in result.findings:
        shown[each.kind] += 1
        if shown[each.kind] <= MAX_FINDINGS:
            rows.append(each.row())
    return rows


def _window(key: Key) -> dict[str, Any]:
    return {
        "topic": key[0],
        "partition": key[1],
        "group": key[2],
        "window": None if key[3] == NO_WINDOW else _stamp(key[3]),
    }


def _stamp(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds")


__all__ = ["MAX_FINDINGS", "summarize"]
