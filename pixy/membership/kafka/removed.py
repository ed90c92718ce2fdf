"""Finds a member that its group has removed and that does not notice. Pure; told the time.

A member whose heartbeats do not arrive in time is removed, and its partitions go to others. librdkafka learns it from
the answer to its next heartbeat, gives the partitions up and joins again. In one of some hundred such cases, after a
coordinator had stopped slowly, librdkafka 2.16 did not, with KIP-848: for 100 s the member delivered messages that others
delivered, too, and each of its commits was refused. The commits are the evidence, so a new client joins in its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pixy.errors import KafkaError, PixyError
from pixy.kafka.errors import REMOVED_CODES

LEAST_PATIENCE: Final = 5.0
"""Seconds; KIP-848's default time between two heartbeats."""


class Removed:
    """For one session. A commit's thread and the session's thread may call.

    Args:
        heartbeat: seconds between two heartbeats; twice that time, or :data:`LEAST_PATIENCE`, is left for the client
            to notice it.
    """

    def __init__(self, heartbeat: float) -> None:
        self._patience = max(LEAST_PATIENCE, 2 * heartbeat)
        self._first: float | None = None
        self._last = 0.0
        self.unnoticed = 0.0
        """Seconds for which commits have been refused, once they are too many; 0 before."""

    def answered(self, errors: Iterable[PixyError], now: float) -> None:
        """Take the errors of a commit, none if it was taken.

        Args:
            errors: of the commit, or of its partitions.
            now: seconds.
        """
        found = list(errors)
        if not found:
            self._first = None
        if not any(isinstance(each, KafkaError) and each.code in REMOVED_CODES for each in found):
            return
        first, last, self._last = self._first, self._last, now
        if first is None or now - last > self._patience:
            self._first = now
        elif now - first > self._patience:
            self.unnoticed = now - first

    def rebalanced(self) -> None:
        """Note that the client has assigned, revoked or lost partitions: it goes on as a member."""
        self._first = None
        self.unnoticed = 0.0


__all__ = ["LEAST_PATIENCE", "Removed"]
