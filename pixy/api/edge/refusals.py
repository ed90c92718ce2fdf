"""Log what happens to many clients at once now and then, with a count."""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger("pixy.api")

Refused = Callable[[int, str, str], None]
"""Takes the status, the peer's address and the reason of what is refused before it is a request."""

_EVERY = 60.0
"""Seconds between two lines about the same thing."""


def ignore(_status: int, _address: str, _error: str) -> None:
    """Note nothing: there is no access log."""


class Refusals:
    """Counts refusals by kind and logs each kind at most once a minute.

    Args:
        clock: tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, tuple[float, int]] = {}

    def count(self, text: str, kind: str = "") -> None:
        """Note one refusal.

        Args:
            text: the line to log.
            kind: what to count it under; ``text`` by default. There are few of them.
        """
        kind = kind or text
        now = self._clock()
        last, silent = self._since.get(kind, (float("-inf"), 0))
        if now - last < _EVERY:
            self._since[kind] = (last, silent + 1)
            return
        self._since[kind] = (now, 0)
        logger.warning("%s%s", text, f" ({silent} more since the last such line)" if silent else "")
