"""Rows: the share of an ask's time that the runtime's counters, histograms and hooks take."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report

TURNS = 150
COUNTERS_MAY_COST = 0.15
NOISE = 0.05


def costs(report: Report) -> None:
    """Compare the runtime with variants that lack the counters or the hooks, within one process."""
    (results,) = in_turn([Scenario("stripped", "costs", TURNS)])
    for what, key, limit in (
        ("counters and histograms on, spans off: share of an ask's time", "counters", COUNTERS_MAY_COST),
        ("no hooks installed: share of an ask's time", "hooks", NOISE),
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
