"""Output to standard output, in a thread of its own: a reader that stops reading stops nobody else."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.live import Live

from actors import ThreadedActor
from pixy.tap.table import render


@dataclass(frozen=True, slots=True)
class Show:
    """A snapshot for the table."""

    snapshot: dict[str, Any]


class JsonPrinter(ThreadedActor):
    """Prints each document that it is told as a line; ``on_broken`` is called when nobody reads any more."""

    mailbox_capacity = 10_000
    use_daemon_thread = True

    def __init__(self, on_broken: Callable[[], None]) -> None:
        super().__init__()
        self._on_broken = on_broken

    def on_receive(self, message: Any) -> None:
        """A document, or a tuple of them."""
        for each in message if isinstance(message, tuple) else (message,):
            try:
                sys.stdout.write(json.dumps(each, ensure_ascii=False) + "\n")
                sys.stdout.flush()
            except (BrokenPipeError, ValueError):
                self._on_broken()
                return


class TablePrinter(ThreadedActor):
    """Shows the last snapshot."""

    mailbox_capacity = 2
    use_daemon_thread = True

    def __init__(self, listening: str) -> None:
        super().__init__()
        self._listening = listening
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=False, transient=False)

    def on_receive(self, message: Any) -> None:
        """See :class:`Show`."""
        if not self._live.is_started:
            self._live.start()
        self._live.update(render(message.snapshot, self._console.height, self._listening), refresh=True)

    def on_stop(self) -> None:
        """Leave the last table on the screen."""
        if self._live.is_started:
            self._live.stop()
