"""Progress of the demo's clients: bars on a terminal, otherwise a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_LINE_EVERY = 5.0
"""Seconds between lines of progress."""

Bar = Callable[[str, int], Callable[[int], None]]
"""Starts a bar from a title and a total; returns a function that shows the count so far."""


@contextmanager
def progress_bars(console: Console) -> Iterator[Bar]:
    """Show bars on a terminal, otherwise a line every few seconds."""
    if not console.is_terminal:

        def lines(what: str, total: int) -> Callable[[int], None]:
            last = time.monotonic()

            def show(done: int) -> None:
                nonlocal last
                if time.monotonic() - last >= _LINE_EVERY:
                    last = time.monotonic()
                    console.print(f"  {done:,} of {total:,} {what}", style="dim")

            return show

        yield lines
        return
    with Progress(
        TextColumn("  {task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as shown:

        def bars(what: str, total: int) -> Callable[[int], None]:
            task = shown.add_task(what, total=total)
            return lambda done: shown.update(task, completed=done)

        yield bars
