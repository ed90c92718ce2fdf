"""Rows: how late a timer of the loop fires beside actors that are busy all the time."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report

SLEEPS = 100
ROUNDS = 3
MOST_MS = 15.0

KINDS = (
    ("plain", "plain handlers"),
    ("coroutine", "coroutine handlers"),
    ("mixed", "every eighth a coroutine"),
)


def beside_busy_actors(report: Report) -> None:
    """Measure ``asyncio.sleep(0.002)`` beside ten actors with handlers of 1 ms of processor time."""
    for name, kind in KINDS:
        (found,) = in_turn([Scenario("actors", f"latency_{name}", SLEEPS)], ROUNDS)
        late = statistics.median(column(found, "late_ms"))
        report.add(
            f"loop latency beside 10 busy actors, handlers of 1 ms, {kind}",
            f"{late:.1f} ms",
            f"< {MOST_MS:g} ms",
            late < MOST_MS,
            f"median of {SLEEPS} sleeps of 2 ms; the longest {max(column(found, 'most_ms')):.1f} ms late; "
            f"{statistics.median(column(found, 'per_second')):,.0f} messages a second",
        )
