"""Write the audit's summary in Prometheus' text format, for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from pixy.pipeline.audit.tables import METRICS
from pixy.pipeline.audit.tallies import GROUP_COUNTS, TOPIC_COUNTS, TallyKind
from pixy.pipeline.errors import PipelineError, UsageError

_PREFIX = "kafka_pixy_audit"
_VERDICTS = ("clean", "fault", "loss")
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99", "max": "1"}
_PARTITION = {
    "archived_records": "Archived records of the partition",
    "not_archived_yet": "Offsets of the log above the lake's end",
    "missing": "Offsets missing in the lake, for any reason",
    "lost": "Records of an archived range that the broker has and the lake lacks",
}
_WINDOWS = {
    "count": "Windows of the audit",
    "closed": "Windows closed by the watermark",
    "restated": "Closed windows that late data changed in this run",
    "carried": "Windows taken over from the earlier run, because the sources no longer hold them",
}


def check_file(path: str) -> None:
    """Raise UsageError if the file's folder does not exist: before an hour's work, not after it."""
    if path and not Path(path).resolve().parent.is_dir():
        raise UsageError(f"--prometheus {path}: the folder does not exist")


def write(path: str, summary: Mapping[str, Any]) -> None:
    """Write the gauges and replace the file as a whole.

    Args:
        path: the file.
        summary: result of :func:`pixy.pipeline.audit.summary.summarize`.

    Raises:
        PipelineError: the file cannot be written; the text names it.
    """
    try:
        write_to_textfile(path, registry(summary))
    except OSError as error:
        raise PipelineError(f"--prometheus {path}: {error.strerror or error}") from error


def registry(summary: Mapping[str, Any]) -> CollectorRegistry:
    """Return the gauges of a summary."""
    result = CollectorRegistry()
    _run(result, summary)
    _counts(result, "topic", TOPIC_COUNTS, summary["topics"], "topic")
    _counts(result, "group", GROUP_COUNTS, summary["groups"], "topic", "group")
    for name, text in _PARTITION.items():
        gauge = _gauge(result, f"partition_{name}", text, "topic", "partition")
        for row in summary["partitions"]:
            gauge.labels(row["topic"], str(row["partition"])).set(row[name] or 0)
    _latencies(result, summary)
    return result


def _gauge(target: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"{_PREFIX}_{name}", text, labels, registry=target)


def _run(target: CollectorRegistry, summary: Mapping[str, Any]) -> None:
    _gauge(target, "timestamp_seconds", "When the audit read its sources, seconds since 1970").set(
        datetime.fromisoformat(summary["at"]).timestamp()
    )
    _gauge(target, "run", "Number of the run in its folder, from 1").set(summary["run"])
    verdict = _gauge(target, "verdict", "1 for the verdict of the run, 0 for the others", "verdict")
    for each in _VERDICTS:
        verdict.labels(each).set(each == summary["verdict"])
    source = _gauge(target, "source", "1 if the source was used", "source")
    for each in ("lake", "journal", "log", "committed"):
        source.labels(each).set(each in summary["sources"])
    for name, text in _WINDOWS.items():
        _gauge(target, f"windows_{name}" if name != "count" else "windows", text).set(
            summary["windows"][name]
        )
    ranges = _gauge(target, "findings", "Findings; each is one range of offsets", "severity", "kind")
    offsets = _gauge(target, "finding_offsets", "Offsets in the ranges of the findings", "severity", "kind")
    for row in summary["found"]:
        ranges.labels(row["severity"], row["kind"]).set(row["ranges"])
        offsets.labels(row["severity"], row["kind"]).set(max(0, row["offsets"]))


def _counts(
    target: CollectorRegistry,
    prefix: str,
    kinds: tuple[TallyKind, ...],
    rows: list[dict[str, Any]],
    *labels: str,
) -> None:
    for kind in kinds:
        name = kind.name.lower()
        gauge = _gauge(target, f"{prefix}_{name}", f"{name.replace('_', ' ')}, see docs/pipeline.md", *labels)
        for row in rows:
            gauge.labels(*[row[label] for label in labels]).set(row[name])


def _latencies(target: CollectorRegistry, summary: Mapping[str, Any]) -> None:
    gauge = _gauge(
        target,
        "latency_seconds",
        "Quantiles of the delays; the group is empty for delays of the topic",
        "topic",
        "group",
        "metric",
        "quantile",
    )
    for row in [*summary["topics"], *summary["groups"]]:
        for metric in METRICS.values():
            for part, quantile in _QUANTILES.items():
                value = row.get(f"{metric}_{part}_ms")
                if value is not None:
                    gauge.labels(row["topic"], row.get("group", ""), metric, quantile).set(value / 1000)


__all__ = ["check_file", "registry", "write"]
