"""Count heartbeats without an answer, which librdkafka reports only in its log."""

from __future__ import annotations

import logging

_TIMED_OUT = "REQTMOUT"
_HEARTBEAT = "ConsumerGroupHeartbeatRequest"


class HeartbeatLog:
    """The ``logger`` of one client: passes everything on, and counts heartbeats that were not answered in time.

    Args:
        logger: where the lines go.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self.unanswered = 0
        """KIP-848's heartbeats that a coordinator has not answered within ``socket.timeout.ms``."""

    def log(self, level: int, text: str, *args: object) -> None:
        """Take a line.

        Args:
            level: of :mod:`logging`.
            text: a format.
            args: the facility, the client's name, and what happened.
        """
        if args and args[0] == _TIMED_OUT and _HEARTBEAT in str(args[-1]):
            self.unanswered += 1
        self._logger.log(level, text, *args, stacklevel=2)


__all__ = ["HeartbeatLog"]
