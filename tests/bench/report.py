"""Report a benchmark: rows, ratios of rates measured in turn, the printed table, the JSON file."""

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
    """Divide our rate by theirs, round by round.

    The two rates of a round are measured one right after the other, so both meet the machine
    in the same state.
    """
    return [mine / other for mine, other in zip(ours, theirs, strict=True)]


class Report:
    """Collects rows, prints each one as it comes, and finally prints a table and writes a file."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, what: str, figure: str, target: str, met: bool, detail: str) -> None:
        """Add a row.

        Args:
            what: the measured thing.
            figure: the result, with its unit.
            target: the bound on the figure.
            met: whether the figure meets the target.
            detail: further figures.
        """
        self.rows.append(Row(what, figure, target, met, detail))
        console.print(f"  {what}: {figure} (target {target}) {detail}")

    def ratio(self, what: str, target: float, ours: Sequence[float], bare: Sequence[float]) -> None:
        """Add a row with our rate as a share of a bare server's: the median of the pairs.

        Args:
            what: the measured thing.
            target: the least share that meets the target.
            ours: our rate in each round, a second.
            bare: the bare server's rate in the same rounds.
        """
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
        """Add a row with our rate as a multiple of a peer's: the median of the pairs.

        Args:
            what: the measured thing.
            target: the least multiple that meets the target.
            ours: our rate in each round, a second.
            peer: the peer's rate in the same rounds.
            note: text to append to the detail.
        """
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
        """Print the table and write the rows to ``path``; return whether every row met its target."""
        table = Table("what", "figure", "target", "met", "detail")
        for row in self.rows:
            table.add_row(row.what, row.figure, row.target, "yes" if row.met else "NO", row.detail)
        console.print()
        console.print(table)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps([vars(row) for row in self.rows], indent=2) + "\n")
        console.print(f"written to {path.relative_to(ROOT)}")
        return all(row.met for row in self.rows)


def on_kafka(rows: Callable[[Cluster, Report], None], path: Path, about: str) -> bool:
    """Start a broker and run the rows that need it.

    Args:
        rows: adds the rows to the report.
        path: file for the rows.
        about: text about the measurement for the first line of the output.

    Returns:
        Whether all rows met their targets.
    """
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
