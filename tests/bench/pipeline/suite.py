"""Run all rows of the data pipeline; writes build/bench-pipeline.json."""

from __future__ import annotations

from tests.bench.pipeline import archive_replay, audit, journal, lake_age, source
from tests.bench.report import ROOT, Report


def run() -> bool:
    """Run the rows; return whether all met their targets."""
    report = Report()
    for part in (archive_replay, lake_age, source, journal, audit):
        part.run(report)
    return report.finish(ROOT / "build" / "bench-pipeline.json")
