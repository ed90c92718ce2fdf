"""Rows: what an actor costs, in time to begin and end and in memory while it is there."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn, measure
from tests.bench.report import Report, pairs

MANY, FEW = 10_000, 1_000
THREADS = 1_000
"""pykka starts fewer: its actors are threads, its registry a list. The cost of each is compared."""

MEMORY_THREADS = 2_000
LINEAR = 1.5
"""Ten times as many may cost this much more each; a scan of the others would cost ten times."""

MEMORY_KIB = 6.0
MEMORY_ROUNDS = 3


def spawn_and_stop(report: Report) -> None:
    """All spawned, then all stopped, in the order of their birth."""
    ours, pykka = in_turn(
        [
            Scenario("actors", "spawn_and_stop", MANY),
            Scenario("pykka", "spawn_and_stop", THREADS),
        ]
    )
    report.times(
        f"spawn and stop {MANY:,}, against pykka's {THREADS:,}, actor by actor",
        5,
        column(ours),
        column(pykka),
        f"spawn {_us(column(ours, 'spawn_us'))}, stop {_us(column(ours, 'stop_us'))}",
    )


def linear_stop(report: Report) -> None:
    """Stopped in either order, the cost of one does not grow with the number of the others."""
    old, few_old, new, few_new = (
        column(results, "stop_us")
        for results in in_turn(
            [
                Scenario("actors", "stop_oldest_first", MANY),
                Scenario("actors", "stop_oldest_first", FEW),
                Scenario("actors", "stop_newest_first", MANY),
                Scenario("actors", "stop_newest_first", FEW),
            ]
        )
    )
    for order, many, few in (("oldest", old, few_old), ("newest", new, few_new)):
        times = pairs(many, few)
        found = statistics.median(times)
        report.add(
            f"stopped {order} first: cost of one of {MANY:,} over one of {FEW:,}",
            f"{found:.2f} x",
            f"<= {LINEAR:g} x",
            found <= LINEAR,
            f"{_us(many)} against {_us(few)} a stop, Python's cyclic collector off, "
            f"pairs {min(times):.2f} to {max(times):.2f}",
        )


def memory(report: Report) -> None:
    """Resident memory of an idle actor that has handled one message."""
    ours, pykka = (
        statistics.median(column(results, "kib"))
        for results in in_turn(
            [Scenario("actors", "memory", MANY), Scenario("pykka", "memory", MEMORY_THREADS)],
            MEMORY_ROUNDS,
        )
    )
    traced = measure(Scenario("actors", "memory_traced", MANY))["kib"]
    report.add(
        f"memory of one of {MANY:,} idle actors",
        f"{ours:.1f} KiB",
        f"<= {MEMORY_KIB:g} KiB",
        ours <= MEMORY_KIB,
        f"resident; tracemalloc says {traced:.1f}; pykka with {MEMORY_THREADS:,}: {pykka:.1f} KiB",
    )


def _us(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} us"
