"""Render the report: one HTML file, plots included, from ``templates/report.html``."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pixy.pipeline.audit import plots
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.tables import Key, Row

MAX_TOPICS = 12
"""Topics that get plots; the tables have all topics."""


def render(result: AuditResult, summary: dict[str, Any]) -> str:
    """Return the report's HTML.

    Args:
        result: supplies the windows to plot.
        summary: result of :func:`pixy.pipeline.audit.summary.summarize`.
    """
    environment = Environment(
        loader=PackageLoader("pixy.pipeline.audit", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "millis": _millis}
    by_topic: dict[str, list[tuple[Key, Row]]] = defaultdict(list)
    for key, row in result.windows.rows.items():
        by_topic[key[0]].append((key, row))
    # The topics with the most windows; the tables show faults of all topics.
    busiest = sorted(by_topic, key=lambda topic: (-len(by_topic[topic]), topic))[:MAX_TOPICS]
    return environment.get_template("report.html").render(
        summary=summary,
        plots={topic: plots.plot_topic(by_topic[topic]) for topic in sorted(busiest)},
        left_out=len(by_topic) - len(busiest),
    )


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _millis(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


__all__ = ["render"]
