"""Rows: a pipeline of three bounded stages, checked for loss and memory growth, and compared with the peers."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn, measure
from tests.bench.report import Report

LONG = 1_000_000
SHORT = 20_000
ROUNDS = 3
STAGES, BOUND = 3, 1_000
UNDER_WAY = STAGES * (BOUND + 1) + 1
"""The most messages in flight: full mailboxes, one message handled by each stage, one held by the sender."""

GROWTH_MIB = 4.0
"""Bound on the growth, low enough to show a leak of four bytes per message."""


def long_run(report: Report) -> None:
    """Send a million messages; check that each arrives and that memory does not grow."""
    found = measure(Scenario("actors", "pipeline", LONG))
    growth, under_way = found["growth_mib"], found["under_way"]
    report.add(
        f"{LONG:,} messages through {STAGES} stages with mailboxes of {BOUND:,}: memory growth",
        f"{growth:.1f} MiB",
        f"<= {GROWTH_MIB:g} MiB",
        growth <= GROWTH_MIB,
        f"resident memory, after the first tenth of the messages, to {found['rss_mib']:.0f} MiB; "
        f"{1e6 / found['per_second']:.1f} us a message",
    )
    report.add(
        "the same: messages lost, most messages in flight",
        f"0, {under_way:,.0f}",
        f"0, <= {UNDER_WAY:,}",
        found["taken"] == LONG and under_way <= UNDER_WAY,
        "by count and sum at the end",
    )


def against_peers(report: Report) -> None:
    """Compare rates with the peers', all with the same number of messages."""
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
        f"{SHORT:,} messages through the stages, against xoscar",
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
