"""The table on the terminal: groups with members and partitions, anomalies, the latest rebalances.

What a narrow terminal has no room for goes, whole columns in the order of :data:`_FIRST_TO_GO`; then a group's name gets a line of its own, above its
members. Names and partitions are broken into lines where they must, and never cut.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Console, Group as Lines, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pixy.escaping import escaped
from pixy.tap.table_notes import GAP, anomalies, clients, counters, explanations, findings, timeline
from pixy.tap.table_rows import COLUMNS, Row, cell, group_rows

_FIRST_TO_GO: Final = ("SOFTWARE", "ASSIGNOR", "SEEN BY", "CLIENT")
_OF_MEMBERS: Final = ("MEMBER", "CLIENT", "SOFTWARE", "PARTITIONS", "RECORDS", "SEEN BY")
_PARTITIONS: Final = 24
"""Characters that partitions get, if they need them, before other columns do."""
_FEWEST_ROWS: Final = 3


def render(
    snapshot: dict[str, Any], console: Console, listening: Sequence[str], notes: Sequence[str] = ()
) -> RenderableType:
    """Render a snapshot for a terminal's width and height.

    Args:
        snapshot: the ``table`` view.
        console: the terminal.
        listening: the addresses, for the first line.
        notes: what to know as long as there is no group.
    """
    title = f"kafka-pixy tap  {listening[0] if listening else ''}"
    more = f" and {len(listening) - 1} more" if len(listening) > 1 else ""
    above: list[RenderableType] = [
        Text(escaped(title + more), style="bold", overflow="fold"),
        Text(counters(snapshot), style="dim", overflow="fold"),
    ]
    rows = [row for group in snapshot["groups"] for row in group_rows(group)]
    hints = [Text(escaped(note), style="dim", overflow="fold") for note in notes] if not rows else []
    below: list[RenderableType] = [
        *hints,
        *anomalies(snapshot),
        *findings(snapshot),
        *clients(snapshot),
        *explanations(snapshot),
    ]
    if snapshot["timeline"]:
        below.append(timeline(snapshot))
    room = console.height - 1 - _height(console, *above, *below)
    shown = max(_FEWEST_ROWS, room)
    while True:
        groups = _groups(rows, shown, console.width)
        over = _height(console, groups) - room
        if over <= 0 or shown <= _FEWEST_ROWS:
            return Lines(*above, groups, *below)
        shown = max(_FEWEST_ROWS, min(shown, len(rows)) - over)


def _height(console: Console, *parts: RenderableType) -> int:
    return sum(len(console.render_lines(part, pad=False)) for part in parts)


def _groups(rows: list[Row], limit: int, width: int) -> RenderableType:
    if not rows:
        return Text("no group yet: point a client at the tap", style="dim")
    shown = rows[:limit]
    columns = _fitting(shown, COLUMNS, width)
    fits = _total(shown, columns) <= width
    parts: list[RenderableType] = [_table(shown, columns)] if fits else [*_blocks(shown, width)]
    if len(rows) > limit:
        parts.append(
            Text(f"... {len(rows) - limit} more rows: GET /groups shows all (--metrics)", style="dim")
        )
    return Lines(*parts)


def _blocks(rows: list[Row], width: int) -> Iterator[RenderableType]:
    """Show each group as a line, with its members below."""
    columns = _fitting(rows, _OF_MEMBERS, width - GAP)
    widths = {name: _natural(rows, name) for name in columns if name not in ("PARTITIONS", "RECORDS")}
    for _, found in itertools.groupby(rows, lambda row: row["ID"].plain):
        first, *more = found
        line = Text.assemble((first["ID"].plain, "bold"), "  ", first["STATE"])
        for text in (first["GEN"].plain and f"generation {first['GEN']}", first["ASSIGNOR"].plain):
            line.append(f"  {text}" if text else "")
        line.append(f"  lag {first['LAG']}" if first["LAG"].plain else "")
        line.overflow = "fold"
        yield line
        if first["MEMBER"].plain:
            yield Padding(_table([first, *more], columns, widths), (0, 0, 0, GAP))


def _table(rows: Sequence[Row], columns: Sequence[str], widths: dict[str, int] | None = None) -> Table:
    """Make a table, without a heading if the widths are given."""
    table = Table(
        box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold", show_header=widths is None
    )
    for name in columns:
        table.add_column(
            name,
            justify="right" if name in ("GEN", "LAG") else "left",
            no_wrap=name not in ("PARTITIONS", "RECORDS"),
            overflow="fold",
            min_width=(widths or {}).get(name),
        )
    for row in rows:
        table.add_row(*(cell(row, name) for name in columns))
    return table


def _fitting(rows: Sequence[Row], wanted: Sequence[str], width: int) -> list[str]:
    """Choose the columns for a width."""
    columns = [name for name in wanted if name != "RECORDS" or any(row[name].plain for row in rows)]
    for name in _FIRST_TO_GO:
        if _total(rows, columns) <= width:
            break
        if name in columns:
            columns.remove(name)
    return columns


def _total(rows: Sequence[Row], columns: Sequence[str]) -> int:
    """Return the width that columns need."""
    needed = GAP * (len(columns) - 1)
    for name in columns:
        natural = _natural(rows, name)
        needed += min(natural, _PARTITIONS) if name in ("PARTITIONS", "RECORDS") else natural
    return needed


def _natural(rows: Sequence[Row], name: str) -> int:
    return max(cell_len(name), *(cell_len(cell(row, name).plain) for row in rows))


__all__ = ["render"]
