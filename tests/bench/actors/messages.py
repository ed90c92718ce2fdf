"""Rows: the cost of a message, sent on the loop and from another thread."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report, pairs

ASKS = 5_000
TELLS = 50_000
THREAD_ASKS = 5_000
ROUNDS = 11
"""Rounds against pykka: many, because thread scheduling doubles or halves a round's figure."""


def on_the_loop(report: Report) -> None:
    """Measure ask and tell with the actor and its caller on one loop."""
    _add_row_against_pykka(report, "asks awaited one by one", "ask", ASKS, 6)
    plain, coroutine, bare = map(
        column,
        in_turn(
            [
                Scenario("actors", "ask", ASKS),
                Scenario("actors", "ask_coroutine", ASKS),
                Scenario("asyncio", "ask", ASKS),
            ]
        ),
    )
    report.times("asks awaited one by one, against a bare asyncio queue and future", 1.0, plain, bare)
    report.times("the same, of a coroutine handler", 0.8, coroutine, bare)
    _add_row_against_pykka(report, f"{TELLS:,} tells, until all are handled", "tell", TELLS, 4)


def from_a_thread(report: Report) -> None:
    """Measure asks from a thread to an actor on the background loop, against pykka's from thread to thread."""
    _add_row_against_pykka(report, "asks from another thread, one by one", "thread_lone", THREAD_ASKS, 0.7)
    _add_row_against_pykka(report, "asks from another thread, pipelined", "thread_pipelined", THREAD_ASKS, 3)


def _add_row_against_pykka(report: Report, what: str, name: str, count: int, target: float) -> None:
    """Add a row against pykka, whose figure depends on the scheduler.

    The target applies to processes that may use all cores, as in production. The detail has the same
    comparison on one core, which varies less and is pykka's best case.

    Args:
        report: takes the row.
        what: the measured thing.
        name: the scenario.
        count: its number of messages.
        target: the least multiple of pykka's rate.
    """
    ours, pykka, ours_kept, pykka_kept = map(
        column,
        in_turn(
            [Scenario(peer, name, count, kept) for kept in (False, True) for peer in ("actors", "pykka")],
            ROUNDS,
        ),
    )
    beside = statistics.median(pairs(ours_kept, pykka_kept))
    report.times(
        f"{what}, against pykka",
        target,
        ours,
        pykka,
        f"each on one core: {beside:.2f} x, {statistics.median(ours_kept):,.0f} against "
        f"{statistics.median(pykka_kept):,.0f}",
    )
