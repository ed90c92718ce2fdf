"""The report's plots as SVG texts, so that the report is one file."""

from __future__ import annotations

import io
from collections import defaultdict
from datetime import UTC, datetime
from math import isnan
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from pixy.pipeline.audit.tables import Key, Row

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
"""Paul Tol's "bright": told apart by the colour-blind."""

_LATENCIES = (
    ("produce_offer", "produce to offer", "#4477aa"),
    ("offer_ack", "offer to ack", "#228833"),
    ("archive_delay", "archive delay", "#ee7733"),
)


def of_topic(rows: list[tuple[Key, Row]]) -> str:
    """Three plots over the windows of one topic: messages, what went wrong, latencies."""
    times, series, latencies = _series(rows)
    figure = Figure(figsize=(10.5, 6.6), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 3))
    for name in ("produced", "archived", "offered", "acked"):
        if any(series[name]):
            top.plot(times, series[name], drawstyle="steps-post", label=name, color=_COLOURS[name], lw=1.4)
    top.set_ylabel("messages a window")
    for name in ("lost", "duplicates", "out of order", "retried"):
        if any(series[name]):
            middle.plot(times, series[name], drawstyle="steps-post", label=name, color=_COLOURS[name], lw=1.4)
    middle.set_ylabel("of them")
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


def _series(
    rows: list[tuple[Key, Row]],
) -> tuple[list[datetime], dict[str, list[float]], dict[str, list[float]]]:
    windows: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    worst: dict[int, dict[str, float]] = defaultdict(dict)
    seen: set[tuple[int, int]] = set()
    for key, row in rows:
        window = windows[key[3]]
        if (key[1], key[3]) not in seen:
            seen.add((key[1], key[3]))
            _add(
                window,
                row,
                {"produced": ("produced",), "archived": ("archived",), "lost": ("archive_lost", "log_lost")},
            )
            _add(
                window,
                row,
                {"duplicates": ("archive_duplicates",), "out of order": ("archive_out_of_order",)},
            )
        _add(
            window,
            row,
            {
                "offered": ("offered",),
                "acked": ("acked",),
                "retried": ("retried",),
                "lost": ("lost",),
                "duplicates": ("duplicates_unexplained",),
                "out of order": ("out_of_order",),
            },
        )
        for metric, _, _ in _LATENCIES:
            for part in ("p50", "p99"):
                name = f"{metric}_{part}_ms"
                if row.get(name) is not None:
                    worst[key[3]][name] = max(worst[key[3]].get(name, 0.0), row[name])
    order = sorted(at for at in windows if at >= 0)
    return (
        [datetime.fromtimestamp(at / 1000, UTC) for at in order],
        {name: [windows[at].get(name, 0.0) for at in order] for name in _COLOURS},
        defaultdict(
            lambda: [float("nan")] * len(order),
            {
                name: [worst[at].get(name, float("nan")) for at in order]
                for name in {each for found in worst.values() for each in found}
            },
        ),
    )


def _add(window: dict[str, float], row: Row, columns: dict[str, tuple[str, ...]]) -> None:
    for name, parts in columns.items():
        window[name] += sum(row.get(part) or 0 for part in parts)


def _finish(axes: Axes) -> None:
    if axes.lines:
        axes.legend(
            loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, ncols=6, frameon=False, borderaxespad=0.2
        )
    else:
        axes.text(0.5, 0.5, "nothing", transform=axes.transAxes, ha="center", color="#888888")
        axes.set_yticks([])
    axes.grid(color="#dddddd", lw=0.6)
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
        figure.savefig(target, format="svg", metadata={"Date": None})
    text = target.getvalue()
    return text[text.index("<svg") :]


__all__ = ["of_topic"]
