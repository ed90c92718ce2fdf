"""The audit in one JSON document: totals by topic and group, quantiles from merged sketches, verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Any

from pixy.pipeline.audit import output
from pixy.pipeline.audit.facts import GROUP_COUNTS, NO_WINDOW, TOPIC_COUNTS, What
from pixy.pipeline.audit.findings import Severity
from pixy.pipeline.audit.job import Result
from pixy.pipeline.audit.tables import METRICS, Key, quantile_columns

MOST_FINDINGS = 200
"""Of each kind in the summary and the report; the table ``findings`` has them all."""
MOST_WINDOWS = 200
"""Restated windows that are named."""

_TOPIC = [what.name.lower() for what in TOPIC_COUNTS]
_GROUP = [what.name.lower() for what in GROUP_COUNTS]
_OF_TOPIC = (What.PRODUCE_ANSWER, What.ARCHIVE_DELAY)


def summarize(result: Result) -> dict[str, Any]:
    """See docs/pipeline.md, "Audit"."""
    topics, groups = _totals(result)
    counted = Counter((each.severity, each.kind) for each in result.findings)
    loss = any(each.severity is Severity.LOSS for each in result.findings)
    fault = any(each.severity is Severity.FAULT for each in result.findings)
    return {
        "format": output.FORMAT,
        "version": output.VERSION,
        "verdict": "loss" if loss else "fault" if fault else "clean",
        "run": result.run,
        "at": _stamp(result.now // 1000),
        "cluster": result.request.cluster,
        "lake": result.request.lake,
        "inputs": result.inputs,
        "inputs_digest": result.digest,
        "sources": [
            name for name in ("lake", "journal", "log", "committed") if result.inputs[name] is not None
        ],
        "windows": {
            "count": len(result.windows.rows),
            "length_ms": result.request.window,
            "watermark_ms": result.request.watermark,
            "closed_before_ms": result.windows.closed_before,
            "closed": sum(bool(row["closed"]) for row in result.windows.rows.values()),
            "restated": len(result.windows.changed),
            "carried": len(result.windows.carried),
            "restated_windows": [_window(key) for key in result.windows.changed[:MOST_WINDOWS]],
        },
        "topics": topics,
        "groups": groups,
        "partitions": list(output.partition_rows(result)),
        "found": [
            {
                "severity": str(severity),
                "kind": kind,
                "ranges": n,
                "offsets": _offsets(result, severity, kind),
            }
            for (severity, kind), n in counted.items()
        ],
        "findings": _some(result),
    }


def _totals(result: Result) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    topics: dict[str, Counter[str]] = defaultdict(Counter)
    groups: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seen: set[tuple[str, int, int]] = set()
    for (topic, partition, group, window), row in result.windows.rows.items():
        # The topic's figures stand in the row of each of its groups.
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


def _latencies(result: Result) -> dict[tuple[str, str | None], dict[str, float]]:
    kinds = {name: what for what, name in METRICS.items()}
    merged: dict[tuple[str, str | None, What], Counter[int]] = defaultdict(Counter)
    for row in result.sketches:
        merged[row["topic"], row["group"], kinds[row["metric"]]][row["bucket"]] += row["count"]
    found: dict[tuple[str, str | None], dict[str, float]] = defaultdict(dict)
    for (topic, group, what), buckets in merged.items():
        column = f"{METRICS[what]}_max_ms"
        most = max(
            (
                row[column]
                for key, row in result.windows.rows.items()
                if key[0] == topic and (what in _OF_TOPIC or key[2] == group) and row.get(column) is not None
            ),
            default=None,
        )
        found[topic, group] |= quantile_columns(what, sorted(buckets.items()), most)
        if most is not None:
            found[topic, group][column] = most
    return found


def _offsets(result: Result, severity: Severity, kind: str) -> int:
    return sum(each.offsets for each in result.findings if (each.severity, each.kind) == (severity, kind))


def _some(result: Result) -> list[dict[str, Any]]:
    shown: Counter[str] = Counter()
    rows = []
    for each in result.findings:
        shown[each.kind] += 1
        if shown[each.kind] <= MOST_FINDINGS:
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


__all__ = ["MOST_FINDINGS", "summarize"]
