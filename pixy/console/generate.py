"""Make what follows from the table of metrics: docs/metrics.md, Grafana's dashboard and Prometheus' alert rules.

``python -m pixy.console.generate`` writes them into the project's folder; a test holds them equal to the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from pixy.console.metric_table import ALERTS, FOREIGN, METRICS, MOST_SERIES, Metric

_RATE: Final = "[$__rate_interval]"
_ROWS: Final = ("Findings", "Requests", "Consume", "Groups", "Produce", "Kafka", "Daemon")
_HALF: Final = 12
"""Grafana's grid has 24 columns."""
_TALL: Final = 8


def metrics_page() -> str:
    """Return docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "<!-- Made by `python -m pixy.console.generate` from pixy/console/metric_table.py; do not edit. -->",
        "",
        "With `admin_addr` set, the daemon serves these at `/metrics`, for Prometheus and OpenMetrics ([admin listener](admin.md)). With `auth` a",
        "scraper needs a credential with the verb `console`. Labels come from the configuration or from fixed sets, except for groups and topics:",
        f"of one metric the {MOST_SERIES} largest series are shown, and the rest is summed up as `(others)`. OpenMetrics' form has the trace ids of",
        "requests with a W3C `traceparent` as exemplars.",
        "",
        "[`deploy/grafana/kafka-pixy.json`](../deploy/grafana/kafka-pixy.json) is a dashboard of them, and",
        "[`deploy/prometheus/alerts.yaml`](../deploy/prometheus/alerts.yaml) has alert rules.",
        "",
        "| Metric | Type | Labels | Meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{each.full_name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} | {each.text} |"
        for each in METRICS
    ]
    lines += [f"| `{name}` | | | {text} |" for name, text in FOREIGN]
    lines += [
        "",
        "Counters belong to this daemon and begin at 0 when it starts; gauges of groups describe what this daemon has. Sum both over all daemons,",
        "but take the maximum of `kafka_pixy_lag_messages`, which each daemon of a group asks Kafka for.",
        "",
        "## Alerts",
        "",
        "| Alert | Severity | Holds for | When |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {each.name} | {each.severity} | {each.wait} | `{each.expr.replace('|', chr(92) + '|')}` |"
        for each in ALERTS
    ]
    return "\n".join(lines) + "\n"


def alert_rules() -> str:
    """Return Prometheus' rules file."""
    rules = [
        {
            "alert": each.name,
            "expr": each.expr,
            "for": each.wait,
            "labels": {"severity": each.severity},
            "annotations": {"summary": each.text},
        }
        for each in ALERTS
    ]
    head = "# Made by `python -m pixy.console.generate`; do not edit.\n"
    return head + yaml.safe_dump(
        {"groups": [{"name": "kafka-pixy", "rules": rules}]}, sort_keys=False, width=200, allow_unicode=True
    )


def query_of(metric: Metric) -> tuple[str, str]:
    """Return the dashboard's query for a metric, and the legend of its lines."""
    labels = [each for each in metric.labels if each not in ("status", "severity")]
    by = ", ".join(labels)
    chosen = f'{metric.full_name}{{instance=~"$instance"}}'
    legend = " ".join(f"{{{{{each}}}}}" for each in labels) or "{{instance}}"
    if metric.kind == "histogram":
        bucket = f'{metric.full_name}_bucket{{instance=~"$instance"}}'
        return f"histogram_quantile(0.99, sum by (le, {by}) (rate({bucket}{_RATE})))", legend
    if metric.kind == "counter":
        return (f"sum by ({by}) (rate({chosen}{_RATE}))" if by else f"rate({chosen}{_RATE})"), legend
    together = "max" if metric.name in ("lag_messages",) or metric.name.endswith("_seconds") else "sum"
    if metric.name in ("up", "broker_up"):
        together = "min"
    return (f"{together} by ({by}) ({chosen})" if by else chosen), legend


def dashboard() -> str:
    """Return Grafana's dashboard."""
    panels: list[dict[str, Any]] = []
    top = 0
    for row in _ROWS:
        panels.append(
            {
                "type": "row",
                "title": row,
                "id": len(panels) + 1,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": 2 * _HALF, "h": 1},
            }
        )
        top += 1
        shown = [each for each in METRICS if each.panel == row]
        for at, metric in enumerate(shown):
            place = {"x": _HALF * (at % 2), "y": top + _TALL * (at // 2), "w": _HALF, "h": _TALL}
            panels.append(_panel(metric, len(panels) + 1, place))
        top += _TALL * ((len(shown) + 1) // 2)
    made = {
        "uid": "kafka-pixy",
        "title": "Kafka-Pixy",
        "tags": ["kafka"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [_variable("datasource"), _variable("instance")]},
        "panels": panels,
    }
    return json.dumps(made, indent=2) + "\n"


def _variable(name: str) -> dict[str, Any]:
    if name == "datasource":
        return {"name": name, "label": "Source", "type": "datasource", "query": "prometheus", "current": {}}
    return {
        "name": name,
        "label": "Daemon",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": "label_values(kafka_pixy_info, instance)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panel(metric: Metric, number: int, place: dict[str, int]) -> dict[str, Any]:
    query, legend = query_of(metric)
    title = metric.name.replace("_", " ").capitalize()
    unit = "s" if metric.name.endswith("_seconds") else "short"
    if metric.kind == "histogram":
        title = f"{title}, 99th percentile"
    elif metric.kind == "counter":
        title, unit = f"{title} a second", "ops"
    source = {"type": "prometheus", "uid": "${datasource}"}
    return {
        "type": "timeseries",
        "id": number,
        "title": title,
        "description": metric.text,
        "datasource": source,
        "gridPos": place,
        "targets": [{"refId": "A", "datasource": source, "expr": query, "legendFormat": legend}],
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi", "sort": "desc"}},
    }


FILES: Final[dict[str, Callable[[], str]]] = {
    "docs/metrics.md": metrics_page,
    "deploy/prometheus/alerts.yaml": alert_rules,
    "deploy/grafana/kafka-pixy.json": dashboard,
}
"""By path below the project's folder."""


def main() -> None:
    """Write all files into the present folder."""
    for name, make in FILES.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(make(), "utf-8")


if __name__ == "__main__":
    main()
