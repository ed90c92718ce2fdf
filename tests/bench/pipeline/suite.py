"""The rows of the data pipeline."""

from __future__ import annotations

from tests.bench.pipeline import audit, journal, lake, source
from tests.bench.report import ROOT, Report


def run() -> bool:
    """Run them; tell whether all targets were met."""
    report = Report()
    for part in (lake, source, journal, audit):
        part.run(report)
    return report.finish(ROOT / "build" / "bench-pipeline.json")
