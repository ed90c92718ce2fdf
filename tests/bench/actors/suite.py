"""Run all rows of the actor runtime; writes build/bench-actors.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from tests.bench.actors import instrumentation, latency, lifecycle, messages, pipeline, processes
from tests.bench.actors.process import ROUNDS, ScenarioFailed
from tests.bench.report import ROOT, Report, console

RESULT = ROOT / "build" / "bench-actors.json"
PARTS: tuple[Callable[[Report], None], ...] = (
    messages.on_the_loop,
    latency.beside_busy_actors,
    lifecycle.spawn_and_stop,
    lifecycle.linear_stop,
    lifecycle.memory,
    instrumentation.costs,
    pipeline.long_run,
    pipeline.against_peers,
    messages.from_a_thread,
    processes.round_trips,
    processes.cores,
)


def run() -> bool:
    """Run the rows; return whether all met their targets."""
    console.print(
        f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, asyncio's own loop, {ROUNDS} "
        f"rounds a row ({messages.ROUNDS} against pykka, {pipeline.ROUNDS} of pipelines), medians of pairs; "
        f"load average {os.getloadavg()[0]:.1f} before\n"
    )
    report = Report()
    for part in PARTS:
        try:
            part(report)
        except ScenarioFailed as error:  # the other rows still run
            name = f"{part.__module__.rpartition('.')[2]}.{part.__name__}"
            report.add(name, "failed", "a figure", False, str(error))
    return report.finish(RESULT)
