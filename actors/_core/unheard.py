"""Asks that were refused and whose error nobody looked at: counted and logged.

A full mailbox or a dead actor is the error of an ask's future. Code that throws the future away, such as a call
through a proxy without ``get()`` or ``await``, would never learn of it. Only a refused future pays for this: it
becomes a :class:`Refused`, which reports itself when it is collected.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from actors._core.log_safely import log_safely
from actors._future import Future

if TYPE_CHECKING:
    import asyncio

    from actors._core.cell import Cell

logger = logging.getLogger("actors")

PAUSE = 1.0
"""Seconds between two reports; the refusals of the pause are counted."""


class Refused(Future[Any]):
    """The future of an ask that its actor's mailbox has refused."""

    _unheard: Unheard | None = None
    _path = ""

    def _outcome(self) -> Any:
        self._unheard = None
        return super()._outcome()

    def exception(self) -> BaseException | None:
        """See :meth:`Future.exception`."""
        self._unheard = None
        return super().exception()

    def __del__(self) -> None:
        unheard, self._unheard = self._unheard, None
        if unheard is not None:
            unheard.add(self._path, self._value)


def refuse(cell: Cell, future: Future[Any], error: BaseException) -> None:
    """Settle the future of an ask with the refusal of the actor's mailbox.

    Args:
        cell: the actor's that has refused the ask.
        future: the asker's.
        error: the refusal.
    """
    # Its traceback ends in the frame that holds the future: only the cyclic collector would free the two.
    if future.try_fail(BaseException.with_traceback(error, None)) and type(future) is Future:
        future.__class__ = Refused
        future.__dict__.update(_unheard=cell.system.unheard, _path=cell.path)


class Unheard:
    """Counts the refusals that nobody has heard of, for one system; logs the first at once, then one line a pause.

    Args:
        loop: the system's.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.total = 0
        """Refusals that nobody has heard of, since the system was made."""
        self._loop = loop
        self._counts: dict[str, tuple[int, BaseException]] = {}
        """For each path the number of refusals and the last one's error."""
        self._pausing = False

    def add(self, path: str, error: BaseException) -> None:
        """Count a refusal. Called by any thread, whenever a future is collected.

        Args:
            path: of the actor that refused.
            error: why.
        """
        self.total += 1
        self._counts[path] = self._counts.get(path, (0, error))[0] + 1, error
        if self._loop.is_closed():  # nobody ends a pause: report at 1, 2, 4, 8, ...
            if self.total & (self.total - 1) == 0:
                self.flush()
        elif not self._pausing:
            self._pausing = True
            self.flush()
            self._loop.call_soon_threadsafe(self._pause)

    def _pause(self) -> None:
        self._loop.call_later(PAUSE, self._end_of_pause)

    def _end_of_pause(self) -> None:
        if self._counts:
            self.flush()
            self._pause()
        else:
            self._pausing = False

    def flush(self) -> None:
        """Log what was counted since the last report."""
        counts, self._counts = self._counts, {}
        for path, (count, last) in counts.items():
            log_safely(
                logger.warning,
                "%s refused %d ask%s whose reply nobody took: %s",
                path,
                count,
                "" if count == 1 else "s",
                last,
            )
