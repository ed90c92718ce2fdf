"""Rows: what the runtime's own counters, histograms and hooks cost an ask."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report

TURNS = 150
COUNTERS_MAY_COST = 0.15
NOISE = 0.05


def accounting(report: Report) -> None:
    """Both against variants of the runtime without the part in question, within one process."""
    (results,) = in_turn([Scenario("bare", "costs", TURNS)])
    for what, key, limit in (
        ("counters and histograms on, spans off: cost of an ask", "counters", COUNTERS_MAY_COST),
        ("hooks absent: cost of an ask", "hooks", NOISE),
    ):
        found = column(results, key)
        cost = statistics.median(found)
        report.add(
            what,
            f"{cost:.1%}",
            f"<= {limit:.0%}",
            cost <= limit,
            f"{len(found)} processes, {min(found):.1%} to {max(found):.1%}, "
            f"{statistics.median(column(results)):,.0f} asks a second",
        )
