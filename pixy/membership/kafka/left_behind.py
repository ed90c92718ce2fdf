"""Finds a member that waits for an assignment which its coordinator has sent already. Pure; told the time.

With KIP-848 an assignment is in the answer to one heartbeat. If that comes after librdkafka (2.16) has given the request
up, nobody sends it again: librdkafka's next heartbeats name no partitions, so the coordinator takes them for those of a
member that is still revoking, and other members wait for its partitions until the group changes for another reason
(67 s in one run). Java's client says everything again after a heartbeat that failed; librdkafka cannot be told to.

So after a heartbeat without an answer the coordinator is asked in which epoch it sees this member. One that stays behind
its group for longer than a heartbeat takes, while the client was told to revoke nothing, is replaced by a new one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

LOOK_EVERY: Final = 2.0
"""Seconds from a heartbeat without an answer to the first look, and between two looks; up to twice as many, by chance."""
LOOK_FOR: Final = 30.0
"""Seconds after such a heartbeat in which its answer may still take effect at the coordinator."""
PATIENCE: Final = 6.0
"""Seconds that a member may be behind: longer than brokers' default time between two heartbeats, 5 s."""


class LeftBehind:
    """For one session, in its thread.

    Args:
        chance: returns a number from 0 to 1, so that a thousand groups of one coordinator do not look at the same time.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._unanswered = 0
        self._look_at: float | None = None
        self._until = 0.0
        self._since: float | None = None
        self._epoch: int | None = None
        self.unnoticed = 0.0
        """Seconds that the member has been behind, once they are too many; 0 before."""

    def due(self, unanswered: int, now: float) -> bool:
        """Return whether to look now.

        Args:
            unanswered: heartbeats of the client so far that were not answered in time.
            now: seconds.
        """
        if unanswered > self._unanswered:
            self._unanswered = unanswered
            self._until = now + LOOK_FOR
            if self._look_at is None:
                self._look_at = self._next(now)
        if self._look_at is None or now < self._look_at:
            return False
        self._look_at = self._next(now) if now < self._until or self._since is not None else None
        return True

    def _next(self, now: float) -> float:
        return now + LOOK_EVERY * (1 + self._chance())

    def looked(self, behind: int | None, now: float) -> None:
        """Take what a look has found.

        Args:
            behind: the member's epoch if it is an earlier one than its group's, as the coordinator sees it; else None. A
                member whose epoch has grown since the last look goes with its group, if slowly.
            now: seconds.
        """
        grown = behind is not None and self._epoch is not None and behind > self._epoch
        self._epoch = behind
        if behind is None or grown:
            self._since = None
        if behind is None:
            return
        if self._look_at is None:
            self._look_at = self._next(now)
        if self._since is None:
            self._since = now
        elif now - self._since > PATIENCE:
            self.unnoticed = now - self._since

    def rebalanced(self) -> None:
        """Note that the client has assigned, revoked or lost partitions: it has heard of an assignment."""
        self._since = None
        self.unnoticed = 0.0


__all__ = ["LOOK_EVERY", "LOOK_FOR", "PATIENCE", "LeftBehind"]
