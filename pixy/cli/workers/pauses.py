"""Decide when a worker that has ended is started again, and when no more. Pure."""

from __future__ import annotations

from typing import Final

FIRST: Final = 0.5
"""Seconds of the first pause; each further one is twice as long."""
LONGEST: Final = 30.0
STEADY: Final = 60.0
"""Seconds of serving after which earlier ends no longer count."""


class Pauses:
    """The ends of one worker.

    Args:
        most: ends in a row after which it is not started again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.ends = 0
        """Ends in a row."""

    def ended(self, served: float) -> float | None:
        """Note an end; return the seconds until the worker is started again, or None if it has ended too often.

        Args:
            served: seconds that it has served; 0: it has not.
        """
        self.ends = 1 if served >= STEADY else self.ends + 1
        if self.ends > self._most:
            return None
        return float(min(LONGEST, FIRST * 2 ** (self.ends - 1)))


__all__ = ["FIRST", "LONGEST", "STEADY", "Pauses"]
