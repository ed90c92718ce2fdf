"""Plot windows as SVG text, so that the report is one file."""

from __future__ import annotations

import io
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isnan, nan
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from pixy.pipeline.audit.tables import Key, Row
from pixy.pipeline.audit.tallies import NO_WINDOW

_COLOURS = {
    "produced": "#4477aa",
    "archived": "#66ccee",
    "offered": "#ccbb44",
    "acked": "#228833",
    "lost": "#cc3311",
    "duplicates": "#ee7733",
    "out of order": "#aa3377",
    "retried": "#bbbbbb",
}
"""Paul Tol's "bright" scheme, which colour-blind readers can distinguish."""

_GRID = "#dddddd"
_LATENCIES = (
    ("produce_offer", "produce to offer", "#4477aa"),
    ("offer_ack", "offer to ack", "#228833"),
    ("archive_delay", "archive delay", "#ee7733"),
)


_TOPIC_SERIES = {
    "produced": ("produced",),
    "archived": ("archived",),
    "lost": ("archive_lost", "log_lost"),
    "duplicates": ("archive_duplicates",),
    "out of order": ("archive_out_of_order",),
}
_GROUP_SERIES = {
    "offered": ("offered",),
    "acked": ("acked",),
    "retried": ("retried",),
    "lost": ("lost",),
    "duplicates": ("duplicates_unexplained",),
    "out of order": ("out_of_order",),
}
"""By series, the columns of a window that it adds up."""


def plot_topic(rows: list[tuple[Key, Row]]) -> str:
    """Plot one topic's windows as SVG: messages, faults and latencies."""
    starts = sorted({key[3] for key, _ in rows if key[3] != NO_WINDOW})
    times = [datetime.fromtimestamp(start / 1000, UTC) for start in starts]
    series, latencies = _count_series(rows, starts), _latency_series(rows, starts)
    figure = Figure(figsize=(10.5, 6.6), layout="constrained", facecolor="none")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 3))
    _plot_counts(top, times, series, ("produced", "archived", "offered", "acked"))
    top.set_ylabel("messages per window")
    _plot_counts(middle, times, series, ("lost", "duplicates", "out of order", "retried"))
    middle.set_ylabel("of these")
    for metric, label, colour in _LATENCIES:
        for part, style in (("p50", "-"), ("p99", ":")):
            values = latencies[f"{metric}_{part}_ms"]
            if not all(isnan(value) for value in values):
                bottom.plot(
                    times, values, style, label=f"{label} {part}", color=colour, lw=1.4, marker=".", ms=3
                )
    bottom.set_ylabel("milliseconds")
    bottom.set_yscale("log")
    for axes in (top, middle, bottom):
        _finish(axes)
    return _svg(figure)


def _plot_counts(axes: Axes, times: list[Any], series: dict[str, list[int]], names: tuple[str, ...]) -> None:
    for name in names:
        if any(series[name]):
            axes.plot(times, series[name], drawstyle="steps-post", label=name, color=_COLOURS[name], lw=1.4)


def _count_series(rows: list[tuple[Key, Row]], starts: list[int]) -> dict[str, list[int]]:
    windows: dict[int, Counter[str]] = defaultdict(Counter)
    seen: set[tuple[int, int]] = set()
    for (_, partition, _, start), row in rows:
        _add(windows[start], row, _GROUP_SERIES)
        # Each group's row repeats the topic's figures.
        if (partition, start) not in seen:
            seen.add((partition, start))
            _add(windows[start], row, _TOPIC_SERIES)
    return {name: [windows[start][name] for start in starts] for name in _COLOURS}


def _add(window: Counter[str], row: Row, series: Mapping[str, tuple[str, ...]]) -> None:
    for name, columns in series.items():
        window[name] += sum(row.get(column) or 0 for column in columns)


def _latency_series(rows: list[tuple[Key, Row]], starts: list[int]) -> dict[str, list[float]]:
    """The largest quantile of any partition and group in each window; NaN where there is none."""
    largest: dict[tuple[str, int], float] = {}
    names = [f"{metric}_{part}_ms" for metric, _, _ in _LATENCIES for part in ("p50", "p99")]
    for (_, _, _, start), row in rows:
        for name in names:
            if row.get(name) is not None:
                largest[name, start] = max(largest.get((name, start), 0.0), row[name])
    return {name: [largest.get((name, start), nan) for start in starts] for name in names}


def _finish(axes: Axes) -> None:
    if axes.lines:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, ncols=6, frameon=False, borderaxespad=0.2
        )
    else:
        axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#888888")
        axes.set_yticks([])
    axes.grid(color=_GRID, lw=0.6)
    axes.set_facecolor("none")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _svg(figure: Figure) -> str:
    target = io.StringIO()
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": "audit",
        "font.family": "sans-serif",
        "font.size": 9,
    }
    with mpl.rc_context(settings):
        figure.savefig(target, format="svg", metadata={"Date": None}, facecolor="none")
    text = target.getvalue()
    # Lines and grid take the colours of the page, which is light or dark.
    for drawn, colour in (("#000000", "currentColor"), (_GRID, "var(--line, #dddddd)")):
        text = text.replace(f"stroke: {drawn}", f"stroke: {colour}").replace(
            f"fill: {drawn}", f"fill: {colour}"
        )
    return text[text.index("<svg") :]


__all__ = ["plot_topic"]
