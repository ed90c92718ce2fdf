"""Run all rows of the wire library and the tap; writes build/bench-wire.json."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from pixy.wire import crc
from tests.bench.report import ROOT, Report, console
from tests.bench.wire import messages, records, tap, tap_kafka
from tests.bench.wire.timing import ROUNDS

RESULT = ROOT / "build" / "bench-wire.json"
PARTS: tuple[Callable[[Report], None], ...] = (
    records.decode,
    records.encode,
    records.scan,
    messages.decode,
    messages.encode,
    messages.split,
    tap.measure,
    tap.measure_small,
    tap_kafka.measure,
)


def run() -> bool:
    """Run the rows; return whether all met their targets."""
    console.print(
        f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, CRC-32C by {crc.BACKEND}, {ROUNDS} rounds a "
        f"row in turn, medians of pairs; load average {os.getloadavg()[0]:.1f} before\n"
    )
    report = Report()
    for part in PARTS:
        part(report)
    return report.finish(RESULT)
