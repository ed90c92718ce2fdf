"""Rows: actors in worker processes, beside the standard library's pool and xoscar's."""

from __future__ import annotations

import os

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report

ASKS = 2_000
STEPS = 2_000_000
"""Steps of one CPU-bound call: some tenths of a second."""

ROUNDS = 5


def round_trips(report: Report) -> None:
    """Measure asks to an actor in another process, one by one."""
    ours, executor, xoscar = map(
        column,
        in_turn(
            [
                Scenario("processes", "process_ask", ASKS),
                Scenario("executor", "process_ask", ASKS),
                Scenario("xoscar", "process_ask", ASKS),
            ],
            ROUNDS,
        ),
    )
    report.times("asks to another process, against xoscar", 1.0, ours, xoscar)
    report.times("asks to another process, against ProcessPoolExecutor", 1.0, ours, executor)


def cores(report: Report) -> None:
    """Measure four CPU-bound calls in a pool of two processes: on two cores against on one."""
    if (os.cpu_count() or 1) < 2:
        report.add("four CPU-bound calls on 2 cores", "not measured", "1.8 x one core", False, "one core")
        return
    both, one = map(
        column,
        in_turn(
            [
                Scenario("processes", "process_compute", STEPS),
                Scenario("processes", "process_compute", STEPS, one_core=True),
            ],
            ROUNDS,
        ),
    )
    report.times("four CPU-bound calls in a pool of two processes, against one core", 1.8, both, one)
