"""Print to standard output in a thread of its own. Output is one consumer of the tap and the least: it may be slow, closed or
unable to encode, and forwarding goes on in each case.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.live import Live

from actors import ActorRef, Request, ThreadedActor, handles
from pixy.escaping import json_text
from pixy.tap.table import render

MAX_WAITING: Final = 10_000
"""Documents that wait for standard output, at most; further ones are dropped and counted."""

Broken = Callable[[Exception], None]
"""Is called once, in the printer's thread, with the error after which nothing more is printed."""


@dataclass(frozen=True, slots=True)
class Show(Request[None]):
    """Show this snapshot. The reply says that it is printed, so whoever waits for it keeps one snapshot in memory."""

    snapshot: dict[str, Any]


class JsonPrinter(ThreadedActor):
    """Print each document that it receives as a line of JSON.

    Args:
        on_broken: see :data:`Broken`.
    """

    mailbox_capacity = MAX_WAITING
    use_daemon_thread = True

    def __init__(self, on_broken: Broken) -> None:
        super().__init__()
        self._on_broken = on_broken
        self._broken = False

    @handles(dict)
    def _print(self, document: dict[str, Any]) -> None:
        if self._broken:
            return
        try:
            try:
                sys.stdout.write(f"{json_text(document, sys.stdout.encoding)}\n")
            except UnicodeEncodeError:  # the stream's encoding is not the one it names
                sys.stdout.write(f"{json_text(document, 'ascii')}\n")
            sys.stdout.flush()
        except Exception as error:  # closed, full, gone, or a document that is no JSON: never the tap's end
            self._broken = True
            self._on_broken(error)

    @handles(Show)
    def _show(self, message: Show) -> None:
        found = message.snapshot
        self._print({"time": found["time"], "event": "snapshot", **found})


class JsonOutput:
    """Hand documents to a :class:`JsonPrinter`; drop and count them while it is behind.

    The next document that finds room is preceded by ``{"event": "output.lost", "events": N}``.

    Args:
        printer: the printer's actor.
        clock: tells the time in seconds since the epoch.
    """

    def __init__(self, printer: ActorRef[JsonPrinter], clock: Callable[[], float] = time.time) -> None:
        self._printer, self._clock = printer, clock
        self.lost = 0
        """Documents dropped since the last one that was accepted."""

    def __call__(self, document: dict[str, Any]) -> None:
        """Accept a document. Never waits, never raises."""
        if self.lost:
            told = {"time": round(self._clock(), 3), "event": "output.lost", "events": self.lost}
            if self._printer.notify(told):
                self.lost = 0
        if not self._printer.notify(document):
            self.lost += 1


class TablePrinter(ThreadedActor):
    """Show the latest snapshot as a table: on a terminal on its alternate screen, so that what was there comes back.

    Args:
        listening: the addresses, for the first line.
        notes: what to know as long as there is no group: the alternate screen hides what was printed before.
        on_broken: see :data:`Broken`.
    """

    mailbox_capacity = 2
    use_daemon_thread = True

    def __init__(
        self,
        listening: Sequence[str],
        notes: Sequence[str] = (),
        on_broken: Broken = lambda _error: None,
    ) -> None:
        super().__init__()
        self._listening, self._notes, self._on_broken = listening, notes, on_broken
        self._broken = False
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
        if self._console.is_terminal:
            self._guarded(self._draw)

    def _draw(self) -> None:
        assert self._latest is not None
        if not self._live.is_started:
            self._live.start()
        shown = render(self._latest, self._console, self._listening, [*self._notes, "Ctrl-C ends the tap"])
        self._live.update(shown, refresh=True)

    def on_stop(self) -> None:
        """Leave the last table on the screen, or print it where there is no terminal."""
        if self._live.is_started:
            self._guarded(self._live.stop)
        if self._latest is not None:
            latest = self._latest
            self._guarded(lambda: self._console.print(render(latest, self._console, self._listening)))

    def _guarded(self, draw: Callable[[], None]) -> None:
        if self._broken:
            return
        try:
            draw()
        except Exception as error:  # the terminal is gone, or cannot encode: never the tap's end
            self._broken = True
            self._on_broken(error)


__all__ = ["MAX_WAITING", "JsonOutput", "JsonPrinter", "Show", "TablePrinter"]
