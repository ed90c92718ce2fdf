"""Print to standard output in a thread of its own, so that a blocked reader does not block the tap."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live

from actors import ThreadedActor, handles
from pixy.escaping import json_text
from pixy.tap.table import render


@dataclass(frozen=True, slots=True)
class Show:
    """Show this snapshot in the table."""

    snapshot: dict[str, Any]


class JsonPrinter(ThreadedActor):
    """Print each document that it receives as a line of JSON.

    Args:
        on_broken: is called with the error when standard output takes no more, once.
    """

    mailbox_capacity = 10_000
    use_daemon_thread = True

    def __init__(self, on_broken: Callable[[Exception], None]) -> None:
        super().__init__()
        self._on_broken = on_broken
        self._broken = False

    @handles(dict)
    def _print(self, document: dict[str, Any]) -> None:
        if self._broken:
            return
        line = json_text(document, sys.stdout.encoding)
        try:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        except (OSError, ValueError) as error:  # the latter: it is closed
            self._broken = True
            self._on_broken(error)


class TablePrinter(ThreadedActor):
    """Show the latest snapshot as a table: on a terminal on its alternate screen, so that what was there comes back.

    Args:
        listening: the addresses, for the first line.
        notes: what to know as long as there is no group: the alternate screen hides what was printed before.
    """

    mailbox_capacity = 2
    use_daemon_thread = True

    def __init__(self, listening: Sequence[str], notes: Sequence[str] = ()) -> None:
        super().__init__()
        self._listening, self._notes = listening, notes
        self._console = Console(highlight=False)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            screen=self._console.is_terminal,
            vertical_overflow="crop",
            redirect_stderr=False,
        )
        self._latest: dict[str, Any] | None = None

    @handles(Show)
    def _show(self, message: Show) -> None:
        self._latest = message.snapshot
        if not self._console.is_terminal:
            return
        if not self._live.is_started:
            self._live.start()
        shown = render(
            message.snapshot, self._console, self._listening, [*self._notes, "Ctrl-C ends the tap"]
        )
        self._live.update(shown, refresh=True)

    def on_stop(self) -> None:
        """Leave the last table on the screen, or print it where there is no terminal."""
        if self._live.is_started:
            self._live.stop()
        if self._latest is not None:
            self._console.print(render(self._latest, self._console, self._listening))


__all__ = ["JsonPrinter", "Show", "TablePrinter"]
