"""Logs asynchronous messages that are lost: the first ones each, then how many more there were.

A client that sends nothing but messages that Kafka refuses would otherwise fill the disk: a line each.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

logger = logging.getLogger("pixy.engine")

MOST: Final = 20
"""Lines in :data:`SPAN`; later losses are counted."""
SPAN: Final = 10.0
"""Seconds."""


class LossLog:
    """Takes the losses of one topic, or of some that do not exist.

    Args:
        name: whose losses they are, for the lines that count them.
        clock: returns seconds that only grow.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._until = self._clock()
        self._lines = self._untold = 0

    def lost(self, where: str, error: Exception) -> None:
        """Tell or count a loss. The count is told before the next line, or by :meth:`tell`.

        Args:
            where: the topic, or its producer.
            error: why.
        """
        now = self._clock()
        if now >= self._until:
            self._until = now + SPAN
            self._lines = 0
        if self._lines >= MOST:
            self._untold += 1
            return
        self._lines += 1
        self.tell()
        logger.error("%s: an asynchronous message is lost: %s", where, error)
        if self._lines == MOST:
            logger.error("%s: losses in the next %.0f s are only counted", self._name, self._until - now)

    def tell(self) -> None:
        """Tell how many losses were only counted, if any. Call it when there will be no other one."""
        if self._untold:
            logger.error("%s: %d more asynchronous messages were lost", self._name, self._untold)
            self._untold = 0


__all__ = ["MOST", "SPAN", "LossLog"]
