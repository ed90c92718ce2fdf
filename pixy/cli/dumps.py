"""What SIGUSR1 logs: what the daemon does now, described in slices, so that requests have their turns meanwhile."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

logger = logging.getLogger("pixy")

SLICE: Final = 0.004
"""Seconds of describing in one turn of the event loop."""


class Dumps:
    """Logs a dump whenever it is requested; one at a time.

    Args:
        lines: begins a dump; None instead of a line: there is none yet.
    """

    def __init__(self, lines: Callable[[], Iterable[str | None]]) -> None:
        self._lines = lines
        self._dumping: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Begin a dump, unless one is being made."""
        if self._dumping is None or self._dumping.done():
            self._dumping = asyncio.ensure_future(self._dump())
        else:
            logger.warning("dump (SIGUSR1): one is being made already")

    async def _dump(self) -> None:
        found: list[str] = []
        what = "dump (SIGUSR1), only its beginning"  # the daemon has ended meanwhile
        try:
            until = time.monotonic() + SLICE
            for line in self._lines():
                if line is not None:
                    found.append(line)
                if time.monotonic() >= until:
                    await asyncio.sleep(0)
                    until = time.monotonic() + SLICE
            what = "dump (SIGUSR1)"
        finally:
            logger.warning(what, extra={"block": "\n".join(found)})


__all__ = ["SLICE", "Dumps"]
