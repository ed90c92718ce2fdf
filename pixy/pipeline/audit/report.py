"""Render the report: one HTML file with its charts and their library, from ``templates``; it loads nothing."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from pixy.pipeline.audit.charts import chart_topic
from pixy.pipeline.audit.findings import Severity, duration
from pixy.pipeline.audit.result import AuditResult
from pixy.pipeline.audit.tables import Key, Row

MAX_TOPICS: Final = 12
"""Topics that get charts; the tables have all topics."""

_ROOM: Final = "pixy.pipeline.audit"
_PARTS: Final = ("report.css", "report.js", "uplot.css", "uplot.js")
"""Files of ``templates`` that become part of the page as they are."""


def render(result: AuditResult, summary: dict[str, Any]) -> str:
    """Return the report's HTML.

    Args:
        result: supplies the windows to plot.
        summary: result of :func:`pixy.pipeline.audit.summary.summarize`.
    """
    environment = Environment(
        loader=PackageLoader(_ROOM, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "millis": _millis, "time": _time, "duration": duration}
    by_topic: dict[str, list[tuple[Key, Row]]] = defaultdict(list)
    for key, row in result.windows.rows.items():
        by_topic[key[0]].append((key, row))
    # Topics with a problem first, then those with the most windows; the tables have all of them.
    faulty = {problem["topic"] for problem in summary["problems"]}
    shown = sorted(by_topic, key=lambda topic: (topic not in faulty, -len(by_topic[topic]), topic))[
        :MAX_TOPICS
    ]
    window = summary["windows"]["length_ms"]
    return environment.get_template("report.html").render(
        summary=summary,
        charts={topic: chart_topic(by_topic[topic], window) for topic in sorted(shown)},
        left_out=len(by_topic) - len(shown),
        parts={name: _part(name) for name in _PARTS},
        tiles=_tiles(summary),
        explained=_explained(result),
    )


def _tiles(summary: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return the numbers at the top: label, number, and the class of its colour if it is not 0."""

    def total(rows: list[dict[str, Any]], *names: str) -> int:
        return sum(row[name] for row in rows for name in names)

    topics, groups, waiting = summary["topics"], summary["groups"], summary["waiting"]
    late = [row["offsets"] for row in waiting if row["late"]]
    tiles = [
        ("messages", total(topics, "produced"), "plain"),
        ("lost in the lake", total(topics, "archive_lost"), "loss"),
        ("lost in Kafka's log", total(topics, "log_lost"), "loss"),
        ("archived twice", total(topics, "archive_duplicates"), "fault"),
        ("archived late", total(topics, "archive_late"), "behind"),
    ]
    if groups:
        tiles[3:3] = [("lost to a group", total(groups, "lost"), "loss")]
        tiles.append(("offered twice, unexplained", total(groups, "duplicates_unexplained"), "fault"))
    if summary["inputs"]["log"] is not None:
        tiles.append(("offsets in late queues", sum(late), "behind"))
    return tiles


def _explained(result: AuditResult) -> list[dict[str, Any]]:
    """Return the explained findings by kind, topic and group, with one reason as an example."""
    found: dict[tuple[str, str, str | None], dict[str, Any]] = {}
    for each in result.findings:
        if each.severity is Severity.EXPLAINED and not each.kind.startswith("waiting for"):
            new = {
                "kind": each.kind,
                "topic": each.topic,
                "group": each.group,
                "why": each.why,
                "ranges": 0,
                "offsets": 0,
            }
            row = found.setdefault((each.kind, each.topic, each.group), new)
            row["ranges"] += 1
            row["offsets"] += max(0, each.offsets)
    return [
        {**row, "why": row["why"] if row["ranges"] == 1 else f"for example: {row['why']}"}
        for row in found.values()
    ]


def _part(name: str) -> str:
    # The template takes it as it is: a script ends at the first </script.
    text = files(_ROOM).joinpath("templates", name).read_text(encoding="utf-8")
    assert "</script" not in text and "</style" not in text, name
    return text


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _millis(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def _time(millis: int | None) -> str:
    return "" if millis is None else datetime.fromtimestamp(millis / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


__all__ = ["render"]
