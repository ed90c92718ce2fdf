"""Rows: an actor's cost in time to spawn and stop it, and in memory while it is idle."""

from __future__ import annotations

import statistics

from tests.bench.actors.process import Scenario, column, in_turn, measure
from tests.bench.report import Report, pairs

MANY, FEW = 10_000, 1_000
THREADS = 1_000
"""Actors on pykka: fewer, because its actors are threads and its registry is a list.

The rows compare the cost per actor.
"""

MEMORY_THREADS = 2_000
LINEAR = 1.5
"""Bound on the cost per actor of ten times as many actors; a scan of all others per stop would give 10."""

MEMORY_KIB = 6.0
MEMORY_ROUNDS = 3


def spawn_and_stop(report: Report) -> None:
    """Spawn all actors, then stop them, oldest first."""
    ours, pykka = in_turn(
        [
            Scenario("actors", "spawn_and_stop", MANY),
            Scenario("pykka", "spawn_and_stop", THREADS),
        ]
    )
    report.times(
        f"spawn and stop {MANY:,} actors, against pykka's {THREADS:,}, per actor",
        5,
        column(ours),
        column(pykka),
        f"spawn {_us(column(ours, 'spawn_us'))}, stop {_us(column(ours, 'stop_us'))}",
    )


def linear_stop(report: Report) -> None:
    """Check for both orders that the cost of a stop does not grow with the number of actors."""
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
            f"stop {order} first: cost per actor of {MANY:,}, against per actor of {FEW:,}",
            f"{found:.2f} x",
            f"<= {LINEAR:g} x",
            found <= LINEAR,
            f"{_us(many)} against {_us(few)} a stop, Python's cyclic collector off, "
            f"pairs {min(times):.2f} to {max(times):.2f}",
        )


def memory(report: Report) -> None:
    """Measure resident memory per idle actor that has handled one message."""
    ours, pykka = (
        statistics.median(column(results, "kib"))
        for results in in_turn(
            [Scenario("actors", "memory", MANY), Scenario("pykka", "memory", MEMORY_THREADS)],
            MEMORY_ROUNDS,
        )
    )
    traced = measure(Scenario("actors", "memory_traced", MANY))["kib"]
    report.add(
        f"memory per actor, {MANY:,} idle actors",
        f"{ours:.1f} KiB",
        f"<= {MEMORY_KIB:g} KiB",
        ours <= MEMORY_KIB,
        f"resident; tracemalloc says {traced:.1f}; pykka with {MEMORY_THREADS:,}: {pykka:.1f} KiB",
    )


def _us(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} us"
