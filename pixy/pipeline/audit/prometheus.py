"""The audit's summary in Prometheus' text format, for node_exporter's textfile collector."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from pixy.pipeline.audit.facts import GROUP_COUNTS, TOPIC_COUNTS
from pixy.pipeline.audit.tables import METRICS
from pixy.pipeline.errors import PipelineError, UsageError

_PREFIX = "kafka_pixy_audit"
_VERDICTS = ("clean", "fault", "loss")
_QUANTILES = {"p50": "0.5", "p95": "0.95", "p99": "0.99", "max": "1"}
_PARTITION = {
    "archived_records": "Records of the partition in the lake",
    "not_archived_yet": "Offsets of the log behind the lake's end",
    "missing": "Offsets missing in the lake, whatever the reason",
    "lost": "Records that the broker has, in an archived range, and the lake has not",
}
_WINDOWS = {
    "count": "Windows of the audit",
    "closed": "Windows that the watermark has closed",
    "restated": "Closed windows that late data has changed in this run",
    "carried": "Windows carried on from the run before, as the sources hold them no more",
}


def check_file(path: str) -> None:
    """Raise UsageError unless the file can be put there: before an hour's work, not after."""
    if path and not Path(path).resolve().parent.is_dir():
        raise UsageError(f"--prometheus {path}: there is no such folder")


def write(path: str, summary: Mapping[str, Any]) -> None:
    """Replace the file as a whole (written aside and renamed); raises PipelineError, naming it."""
    try:
        write_to_textfile(path, registry(summary))
    except OSError as error:
        raise PipelineError(f"--prometheus {path}: {error.strerror or error}") from error


def registry(summary: Mapping[str, Any]) -> CollectorRegistry:
    """What :func:`pixy.pipeline.audit.summary.summarize` gives, as gauges."""
    made = CollectorRegistry()
    _run(made, summary)
    _counts(made, "topic", TOPIC_COUNTS, summary["topics"], "topic")
    _counts(made, "group", GROUP_COUNTS, summary["groups"], "topic", "group")
    for name, text in _PARTITION.items():
        gauge = _gauge(made, f"partition_{name}", text, "topic", "partition")
        for row in summary["partitions"]:
            gauge.labels(row["topic"], str(row["partition"])).set(row[name] or 0)
    _latencies(made, summary)
    return made


def _gauge(made: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"{_PREFIX}_{name}", text, labels, registry=made)


def _run(made: CollectorRegistry, summary: Mapping[str, Any]) -> None:
    _gauge(made, "timestamp_seconds", "When the audit looked at its sources").set(
        datetime.fromisoformat(summary["at"]).timestamp()
    )
    _gauge(made, "run", "Number of the run in its folder").set(summary["run"])
    verdict = _gauge(made, "verdict", "1 for the verdict of the run, 0 for the others", "verdict")
    for each in _VERDICTS:
        verdict.labels(each).set(each == summary["verdict"])
    source = _gauge(made, "source", "1 for a source that was used", "source")
    for each in ("lake", "journal", "log", "committed"):
        source.labels(each).set(each in summary["sources"])
    for name, text in _WINDOWS.items():
        _gauge(made, f"windows_{name}" if name != "count" else "windows", text).set(summary["windows"][name])
    ranges = _gauge(made, "findings", "Findings, a range of offsets each", "severity", "kind")
    offsets = _gauge(made, "finding_offsets", "Offsets in the findings' ranges", "severity", "kind")
    for row in summary["found"]:
        ranges.labels(row["severity"], row["kind"]).set(row["ranges"])
        offsets.labels(row["severity"], row["kind"]).set(max(0, row["offsets"]))


def _counts(
    made: CollectorRegistry, of: str, counts: tuple[Any, ...], rows: list[dict[str, Any]], *labels: str
) -> None:
    for what in counts:
        name = what.name.lower()
        gauge = _gauge(made, f"{of}_{name}", f"{name.replace('_', ' ')}, see docs/pipeline.md", *labels)
        for row in rows:
            gauge.labels(*[row[label] for label in labels]).set(row[name])


def _latencies(made: CollectorRegistry, summary: Mapping[str, Any]) -> None:
    gauge = _gauge(
        made,
        "latency_seconds",
        "Quantiles of the delays; the group is empty for those of the topic",
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
