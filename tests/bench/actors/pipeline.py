"""Rows: a pipeline of three bounded stages, for loss, for memory, and against the peers."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn, measure
from tests.bench.report import Report

LONG = 1_000_000
SHORT = 20_000
ROUNDS = 3
STAGES, BOUND = 3, 1_000
UNDER_WAY = STAGES * (BOUND + 1) + 1
"""Full mailboxes, one message in each stage's hands, one in the feeder's."""

GROWTH_MIB = 4.0
"""Four bytes a message would show."""


def long_run(report: Report) -> None:
    """A million messages: each arrives, none piles up."""
    found = measure(Scenario("actors", "pipeline", LONG))
    growth, under_way = found["growth_mib"], found["under_way"]
    report.add(
        f"{LONG:,} messages through {STAGES} stages bound to {BOUND:,}: growth",
        f"{growth:.1f} MiB",
        f"<= {GROWTH_MIB:g} MiB",
        growth <= GROWTH_MIB,
        f"resident, after the first tenth, to {found['rss_mib']:.0f} MiB; "
        f"{1e6 / found['per_second']:.1f} us a message",
    )
    report.add(
        "the same: messages lost, and most under way at once",
        f"0, {under_way:,.0f}",
        f"0, <= {UNDER_WAY:,}",
        found["taken"] == LONG and under_way <= UNDER_WAY,
        "count and sum at the end",
    )


def against_peers(report: Report) -> None:
    """The cost of a message, all with as many."""
    ours, xoscar, calls, thespian = map(
        column,
        in_turn(
            [
                Scenario("actors", "pipeline", SHORT),
                Scenario("xoscar", "pipeline", SHORT),
                Scenario("xoscar", "pipeline_calls", SHORT),
                Scenario("thespian", "pipeline", SHORT),
            ],
            ROUNDS,
        ),
    )
    report.times(
        f"a message of {SHORT:,} through the stages, against xoscar",
        1,
        ours,
        xoscar,
        f"local refs, unbounded tells; as nested calls {statistics.median(calls):,.0f} a second",
    )
    report.times(
        "the same, against thespian",
        1,
        ours,
        thespian,
        "simpleSystemBase, a plain queue in the caller's thread",
    )
