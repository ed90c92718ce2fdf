"""Sums up log records that repeat, such as librdkafka's about a broker that does not answer: twenty a second."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

_EVERY = 30.0
"""Seconds between two records that differ in numbers alone."""
_MOST_KINDS = 1_000
_NUMBERS = re.compile(r"\d+")
_PASSES = re.compile(r"Coordinator load in progress.*: retrying\Z", re.DOTALL)
"""What a broker that has just started answers for some seconds; librdkafka warns of it, and asks again."""
_REPEATS = re.compile(r", \d+ identical error\(s\) suppressed")


class Repeats(logging.Filter):
    """Passes the first record of a kind, and then one each 30 s that says how many there were.

    A warning of what passes by itself is one from the second of these on, and before that of level info.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}
        """By text without its numbers, when a record was passed, and how many have been left out since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record. Any thread may call."""
        text = record.getMessage()
        kind = _NUMBERS.sub("0", _REPEATS.sub("", text))
        now = self._clock()
        passed, left_out = self._kinds.get(kind, (None, 0))
        if passed is not None and now - passed < _EVERY:
            self._kinds[kind] = (passed, left_out + 1)
            return False
        if len(self._kinds) >= _MOST_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        if not left_out and _PASSES.search(text):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        if left_out:
            record.msg, record.args = "%s [%d more like this since]", (text, left_out)
        return True


__all__ = ["Repeats"]
