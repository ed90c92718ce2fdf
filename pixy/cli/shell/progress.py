"""A bar on standard error while messages go by: how many, how fast, how long still."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Final, Self

_LEAST: Final = 40
"""Columns of the screen below which a bar says nothing."""


class Bar:
    """Shows progress, unless standard error is no terminal, a dumb or a very narrow one, or messages go to the same one.

    Args:
        what: is going on, such as ``producing``.
        messages: how many there will be; None if that is not known.
        size: bytes of the input; None if that is not known.
        prints: messages are printed to standard output meanwhile.
        typed: a person types messages meanwhile, which a bar would erase.
    """

    def __init__(
        self,
        what: str,
        *,
        messages: int | None = None,
        size: int | None = None,
        prints: bool = False,
        typed: bool = False,
    ) -> None:
        self._began = time.monotonic()
        self._progress: Any = None
        if typed or not sys.stderr.isatty() or (prints and sys.stdout.isatty()):
            return
        from rich.console import Console

        console = Console(stderr=True, highlight=False)
        if not console.is_interactive or console.width < _LEAST:
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        columns: list[Any] = [TextColumn(what), BarColumn(), TextColumn("{task.fields[count]:,} messages")]
        if size is not None:
            columns.append(DownloadColumn())
        columns += [TextColumn("{task.fields[rate]:,.0f}/s"), TimeRemainingColumn()]
        # A redirected standard output would go to the bar's terminal, and not where the messages are to go.
        self._progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._by_size = size is not None
        self._task = self._progress.add_task("", total=size if self._by_size else messages, count=0, rate=0.0)

    def __enter__(self) -> Self:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def update(self, messages: int, size: int = 0) -> None:
        """Show how far it is.

        Args:
            messages: from the beginning on.
            size: bytes of the input, from the beginning on; counts only if its size is known.
        """
        if self._progress is not None:
            rate = messages / max(1e-3, time.monotonic() - self._began)
            done = size if self._by_size else messages
            self._progress.update(self._task, completed=done, count=messages, rate=rate)


__all__ = ["Bar"]
