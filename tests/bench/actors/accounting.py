"""Rows: what the runtime's own counters, histograms and hooks cost an ask."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report, pairs

ASKS = 10_000
COUNTERS_MAY_COST = 0.15
NOISE = 0.05


def accounting(report: Report) -> None:
    """Both against variants of the runtime without the part in question."""
    ours, bare, unhooked = map(column, in_turn([
        Scenario("actors", "ask", ASKS), Scenario("bare", "ask_without_accounting", ASKS),
        Scenario("bare", "ask_without_hooks", ASKS),
    ]))
    for what, others, limit in (
        ("counters and histograms on, spans off: cost of an ask", bare, COUNTERS_MAY_COST),
        ("hooks absent: cost of an ask", unhooked, NOISE),
    ):
        cost = 1 - statistics.median(pairs(ours, others))
        report.add(
            what, f"{cost:.1%}", f"<= {limit:.0%}", cost <= limit,
            f"{statistics.median(ours):,.0f} a second, {statistics.median(others):,.0f} without",
        )
