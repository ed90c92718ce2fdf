"""The tables of ``kafka-pixy top``. A narrow terminal loses whole columns, the least telling ones first, and never a part of a name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from pixy.escaping import escaped

NONE: Final = "-"
"""Shown where there is no value."""
_GAP: Final = 2
_NAMES: Final = ("GROUP", "CLUSTER", "ACTOR", "HANDLES")
"""Columns of text; the others have figures."""
_GROUPS_LOSE: Final = ("PARTITIONS", "ACKS/MIN", "CLUSTER", "WAITING", "DONE IN", "OLDEST", "RATE/S")
_ACTORS_LOSE: Final = ("RESTARTS", "WAIT P99", "RUN P99", "OLDEST", "HANDLES", "WAITING")


def groups_table(rows: Any, width: int) -> Table:
    """Lay out groups.

    Args:
        rows: as the page ``kafka.groups`` of the console has them.
        width: columns of the terminal.
    """
    titles = ("GROUP", "CLUSTER", "LAG", "RATE/S", "DONE IN", "UN-ACKED", "OLDEST", "WAITING", "ACKS/MIN",
              "PARTITIONS")  # fmt: skip
    cells = [
        (
            row["group"],
            row["cluster"],
            NONE if row["lag"] is None else str(row["lag"]),
            rate(row["rate"]),
            duration(row["drain"]),
            str(row["unacked"]),
            duration(row["oldest"]),
            str(row["polls"]),
            str(row["acks"]),
            str(row["partitions_owned"]),
        )
        for row in rows
    ]
    styles = ["red" if row["errors"] else "yellow" if row["trouble"] else "" for row in rows]
    return _table(titles, cells, styles, _GROUPS_LOSE, width)


def actors_table(rows: Any, width: int) -> Table:
    """Lay out actors.

    Args:
        rows: as ``/debug/actors`` has them.
        width: columns of the terminal.
    """
    titles = ("ACTOR", "HANDLES", "FOR", "WAITING", "OLDEST", "WAIT P99", "RUN P99", "RESTARTS")
    cells = [
        (
            row["path"],
            row["current"] or NONE,
            duration(row["busy"]),
            str(row["mailbox"]["depth"]),
            duration(row["mailbox"]["oldest_age"]),
            duration(row["wait_p99"]),
            duration(row["run_p99"]),
            str(row["restarts"]),
        )
        for row in rows
    ]
    return _table(titles, cells, [""] * len(cells), _ACTORS_LOSE, width)


def _table(
    titles: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Sequence[str],
    lose: Sequence[str],
    width: int,
) -> Table:
    shown = [[escaped(cell) for cell in row] for row in rows]
    needed = {
        title: max(map(cell_len, (title, *(row[at] for row in shown)))) for at, title in enumerate(titles)
    }
    kept = list(titles)
    for title in lose:
        if sum(needed[each] + _GAP for each in kept) - _GAP <= width:
            break
        kept.remove(title)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for title in kept:
        table.add_column(
            title,
            justify="left" if title in _NAMES else "right",
            no_wrap=title != titles[0],
            overflow="fold",
        )
    for row, style in zip(shown, styles, strict=True):
        table.add_row(*(Text(row[titles.index(title)]) for title in kept), style=style)
    return table


def rate(value: float | None) -> str:
    """Return how fast something grows, such as ``+1.5``; ``0`` if that rounds to nothing, and a dash if it is not known."""
    if value is None:
        return NONE
    return "0" if abs(value) < 0.05 else f"{value:+.1f}"


def duration(seconds: float | None) -> str:
    """Return a duration in two or three figures; a dash if there is none."""
    if seconds is None or seconds < 1e-6:
        return NONE
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    if seconds >= 1:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"


__all__ = ["NONE", "actors_table", "duration", "groups_table", "rate"]
