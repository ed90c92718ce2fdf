"""The report: one HTML file with its plots in it, from the template beside this module."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from pixy.pipeline.audit import plots
from pixy.pipeline.audit.job import Result
from pixy.pipeline.audit.tables import Key, Row

MOST_TOPICS = 12
"""Topics with plots; all of them are in the tables."""


def render(result: Result, summary: dict[str, Any]) -> str:
    """The report's HTML."""
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
    # The busiest ones; what went wrong is in the tables whatever the topic.
    busiest = sorted(by_topic, key=lambda topic: (-len(by_topic[topic]), topic))[:MOST_TOPICS]
    return environment.get_template("report.html").render(
        summary=summary,
        plots={topic: plots.of_topic(by_topic[topic]) for topic in sorted(busiest)},
        left_out=len(by_topic) - len(busiest),
    )


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _millis(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


__all__ = ["render"]
