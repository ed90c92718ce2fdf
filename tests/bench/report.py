"""What all parts of the benchmark share: rows, ratios within one run, the table, the JSON file."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.kafka.cluster import Cluster

ROOT = Path(__file__).resolve().parent.parent.parent

console = Console(highlight=False)


@dataclass
class Row:
    """One line of the table."""

    what: str
    figure: str
    target: str
    met: bool
    detail: str


def pairs(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Ours over theirs, round by round: neighbours in time share the machine's mood."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


class Report:
    """Gathers rows, tells them as they come, and ends as a table and a file."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, what: str, figure: str, target: str, met: bool, detail: str) -> None:
        """Add a row whose verdict the caller has made."""
        self.rows.append(Row(what, figure, target, met, detail))
        console.print(f"  {what}: {figure} (wanted {target}) {detail}")

    def ratio(self, what: str, target: float, ours: Sequence[float], bare: Sequence[float]) -> None:
        """Add a row: our rate as a share of a bare server's."""
        each = pairs(ours, bare)
        found = statistics.median(each)
        self.add(
            what,
            f"{found:.0%}",
            f">= {target:.0%}",
            found >= target,
            f"{statistics.median(ours):,.0f} against {statistics.median(bare):,.0f} a second, "
            f"pairs {min(each):.0%} to {max(each):.0%}",
        )

    def times(
        self,
        what: str,
        target: float,
        ours: Sequence[float],
        peer: Sequence[float],
        note: str = "",
    ) -> None:
        """Add a row: our rate as a multiple of a peer's."""
        each = pairs(ours, peer)
        found = statistics.median(each)
        self.add(
            what,
            f"{found:.2f} x",
            f">= {target:g} x",
            found >= target,
            f"{statistics.median(ours):,.0f} against {statistics.median(peer):,.0f} a second, "
            f"pairs {min(each):.2f} to {max(each):.2f}" + (f"; {note}" if note else ""),
        )

    def finish(self, path: Path) -> bool:
        """Print the table, write the file; tell whether every row met its target."""
        table = Table("what", "figure", "wanted", "met", "detail")
        for row in self.rows:
            table.add_row(row.what, row.figure, row.target, "yes" if row.met else "NO", row.detail)
        console.print()
        console.print(table)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([vars(row) for row in self.rows], indent=2) + "\n")
        console.print(f"written to {path.relative_to(ROOT)}")
        return all(row.met for row in self.rows)


def on_kafka(rows: Callable[[Cluster, Report], None], path: Path, about: str) -> bool:
    """Run rows that need a broker on one of their own; tell whether all met their targets."""
    console.print(
        f"{os.cpu_count()} CPUs, Python {sys.version.split()[0]}, real Kafka on loopback, {about}, medians of pairs\n"
    )
    report = Report()
    cluster = Cluster()
    try:
        rows(cluster, report)
    finally:
        cluster.close()
    return report.finish(path)
