"""Results on standard output: tables for people, JSON and YAML for programs; remarks on standard error."""

from __future__ import annotations

import base64
import codecs
import sys
from collections.abc import Sequence
from typing import Any, Final

from pixy.cli.shell import interrupts
from pixy.escaping import escaped, json_text

FORMS: Final = ("table", "json", "yaml")
_GAP: Final = 2
"""Columns of the screen between two of a table."""
_PIPED_WIDTH: Final = 100_000
"""Columns of a table that is not shown on a terminal: nothing is cut or broken."""
_MUCH_LAG: Final = 1_000
_LEAST: Final = 16
"""Columns of the screen that text has in a table, if it needs as many: more of it goes to further lines, and a narrower screen breaks rows."""


class Word(str):
    """A word in a column of numbers: it stands on the right as they do."""


class Output:
    """Prints the result of one command.

    Args:
        form: one of FORMS.
    """

    def __init__(self, form: str) -> None:
        self.form = form

    @property
    def structured(self) -> bool:
        """True if a program reads the result."""
        return self.form != "table"

    def document(self, document: Any) -> None:
        """Print one document: JSON on a line of its own, YAML after a separator."""
        if self.form == "yaml":
            import yaml

            whole = codecs.lookup(sys.stdout.encoding).name.startswith("utf-")
            text = yaml.safe_dump(document, sort_keys=False, allow_unicode=whole, explicit_start=True)
        else:
            text = json_text(document, sys.stdout.encoding) + "\n"
        write(text)

    def result(self, document: Any, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Print a document, or the table of the same content for people.

        Args:
            document: for programs.
            columns: the table's headings.
            rows: its cells; numbers are right-aligned, and a column ``lag`` is coloured.
        """
        if self.structured:
            self.document(document)
        else:
            table(columns, rows)

    def fields(self, document: dict[str, Any]) -> None:
        """Print a document, or for people a line for each of its fields."""
        if self.structured:
            self.document(document)
            return
        width = max((len(name) for name in document), default=0)
        for name, value in document.items():
            write(f"{name.replace('_', ' '):<{width}}  {plain(value)}\n")


def write(text: str) -> None:
    """Write to standard output at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Print a remark on standard error. Raises KeyboardInterrupt after a signal if nobody reads it."""
    with interrupts.remarking():
        sys.stderr.write(f"{escaped(text)}\n")
        sys.stderr.flush()


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print a table. A terminal breaks long cells; elsewhere each row is one line, whole.

    Numbers, short texts and names of groups are never broken: a table that then has no room is wider than the screen.

    Args:
        columns: the headings.
        rows: cells; None is shown as ``-``.
    """
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="")
    needed = -_GAP
    for at, name in enumerate(columns):
        cells = [row[at] for row in rows]
        numbers = bool(cells) and all(isinstance(cell, int | Word | None) for cell in cells)
        widest = max(cell_len(text) for text in (name, *map(plain, cells)))
        least = widest if numbers or name == "group" else min(widest, _LEAST)
        needed += least + _GAP
        # What is broken is text, and all of it stays on the screen.
        shown.add_column(
            Text(name, style="bold"),
            justify="right" if numbers else "left",
            no_wrap=least == widest,
            overflow="fold",
        )
    for row in rows:
        shown.add_row(
            *(
                Text(plain(cell), style=_lag_style(cell) if name == "lag" else "")
                for name, cell in zip(columns, row, strict=True)
            )
        )
    console = Console(file=sys.stdout, highlight=False)
    console.width = max(console.width, needed) if sys.stdout.isatty() else _PIPED_WIDTH
    with console.capture() as captured:
        console.print(shown)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def _lag_style(lag: Any) -> str:
    if not isinstance(lag, int) or lag < 0:  # below 0: committed beyond the end of the log
        return ""
    return "green" if lag == 0 else "yellow" if lag < _MUCH_LAG else "red"


def plain(value: Any) -> str:
    """Return a value as text in which nothing commands a terminal."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return escaped(",".join(map(str, value)))
    return escaped(str(value))


def bytes_view(value: bytes) -> dict[str, str]:
    """Show bytes as text if they are UTF-8, else as base64, so that nothing is lost."""
    try:
        return {"text": value.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


__all__ = ["FORMS", "Output", "bytes_view", "note", "plain", "table", "write"]
