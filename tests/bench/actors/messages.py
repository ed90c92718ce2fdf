"""Rows: what a message costs, on the loop and from another thread into it."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn
from tests.bench.report import Report, pairs

ASKS = 5_000
TELLS = 50_000
THREAD_ASKS = 5_000
ROUNDS = 11
"""Of the rows beside pykka: what the scheduler does to its threads doubles or halves a round's figure."""


def on_the_loop(report: Report) -> None:
    """Ask and tell where actor and caller share a loop."""
    _beside_pykka(report, "ask, awaited one by one", "ask", ASKS, 6)
    ours, bare = map(
        column,
        in_turn(
            [
                Scenario("actors", "ask", ASKS),
                Scenario("asyncio", "ask", ASKS),
            ]
        ),
    )
    report.times("ask, against a bare asyncio queue and future", 0.6, ours, bare)
    _beside_pykka(report, f"{TELLS:,} tells until all are handled", "tell", TELLS, 4)


def from_a_thread(report: Report) -> None:
    """Asks from a thread into the background loop, against pykka's thread to thread."""
    _beside_pykka(report, "ask from another thread, alone", "thread_lone", THREAD_ASKS, 0.7)
    _beside_pykka(report, "asks from another thread, pipelined", "thread_pipelined", THREAD_ASKS, 3)


def _beside_pykka(report: Report, what: str, name: str, count: int, target: float) -> None:
    """A row where the scheduler decides what pykka's figure is.

    The verdict is on processes that run where they like, as they would in earnest; the same pair
    on one core, which is steadier and where pykka is at its best, stands beside it.
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
