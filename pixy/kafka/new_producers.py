"""What comes before a new librdkafka producer: a pause after fatal errors, and its making in another thread."""

from __future__ import annotations

import math
from collections.abc import Callable

from confluent_kafka import KafkaError, Producer

from pixy.kafka.errors import INCURABLE_CODES
from pixy.kafka.settings import Settings

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
"""Seconds between the second fatal error in a row and a new producer, doubled for each further one; the most seconds. The longest pause
follows an error that every producer has until a person changes something."""
_SOUND = 60.0
"""Seconds after which a fatal error is the first in a row again."""


class FatalErrors:
    """Counts the fatal errors in a row of a client's producers. Pure."""

    def __init__(self) -> None:
        self._count, self._at = 0, -math.inf

    def pause(self, code: int, now: float) -> float:
        """Count an error; return the seconds to wait before a new producer is made.

        Args:
            code: of the error.
            now: seconds, of a monotonic clock.
        """
        if now >= self._at + _SOUND:
            self._count = 0
        pause = _FIRST_PAUSE * 2 ** min(self._count - 1, 30) if self._count else 0.0
        self._count += 1
        return _LONGEST_PAUSE if code in INCURABLE_CODES else min(pause, _LONGEST_PAUSE)

    def paused(self, now: float) -> None:
        """Note that the pause is over: the new producer begins."""
        self._at = now


class ReadyProducer:
    """A librdkafka producer that is made before its client, in another thread: reading certificates takes up to 50 ms.

    Args:
        settings: of the producer. Making it may raise KafkaException.
    """

    def __init__(self, settings: Settings) -> None:
        self._error: Callable[[KafkaError], None]
        self._producer = [Producer({**settings, "error_cb": self._report})]

    def _report(self, error: KafkaError) -> None:
        self._error(error)  # only a poll calls this, so not before `take`

    def take(self, error: Callable[[KafkaError], None]) -> Producer:
        """Return the producer, once, and keep no reference.

        Args:
            error: librdkafka's ``error_cb``.
        """
        self._error = error
        return self._producer.pop()


__all__ = ["FatalErrors", "ReadyProducer"]
