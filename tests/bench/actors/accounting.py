"""Row: what the runtime's own counters, histograms and hooks cost an ask."""

from __future__ import annotations

from tests.bench.report import Report

COUNTERS_MAY_COST = 0.15


def accounting(report: Report) -> None:
    """Counters and histograms on, spans off, against a runtime without them; and hooks absent.

    Not measured yet: it needs a variant of the runtime without accounting. A row that is not
    measured is not met. ``process.measure`` passes an environment on to the child.
    """
    for what, target in (
        ("counters and histograms on, spans off: cost of an ask", f"<= {COUNTERS_MAY_COST:.0%}"),
        ("hooks absent: cost of an ask", "within noise"),
    ):
        report.add(what, "not measured", target, False, "no variant of the runtime without them")
