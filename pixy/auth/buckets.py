"""Token buckets, and which refusals a log keeps. The time is an argument, or comes from a clock that is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

REFUSALS: Final = 100.0
"""Records a second that a log keeps of strangers who are refused, and as many of known callers."""


class TokenBucket:
    """Allows a rate on average, and more for a moment.

    Args:
        rate: tokens a second, above 0.
        size: the most that may be there at once.
        now: seconds.
    """

    __slots__ = ("_at", "_level", "_rate", "_size")

    def __init__(self, rate: float, size: float, now: float) -> None:
        self._rate = rate
        self._size = size
        self._level = size
        self._at = now

    def wait(self, wanted: float, now: float) -> float:
        """Return the seconds until there are enough tokens; 0: now.

        Args:
            wanted: tokens; more than ``size`` count as ``size``.
            now: seconds.
        """
        self._refill(now)
        missing = min(wanted, self._size) - self._level
        return missing / self._rate if missing > 0 else 0.0

    def spend(self, tokens: float, now: float) -> None:
        """Take tokens, also more than there are: what is missing has to come before anything else is allowed.

        Args:
            tokens: how many.
            now: seconds.
        """
        self._refill(now)
        self._level -= tokens

    def resized(self, rate: float, size: float, now: float) -> TokenBucket:
        """Return a bucket of another rate and size that is as full as this one, in proportion; this one, if they are the same.

        Args:
            rate: tokens a second, above 0.
            size: the most that may be there at once.
            now: seconds.
        """
        if (rate, size) == (self._rate, self._size):
            return self
        self._refill(now)
        made = TokenBucket(rate, size, now)
        made._level = size * self._level / self._size
        return made

    def lower(self, other: TokenBucket, now: float) -> None:
        """Have no more tokens than another bucket has.

        Args:
            other: the other one.
            now: seconds.
        """
        for each in (self, other):
            each._refill(now)
        self._level = min(self._level, other._level)

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._level = min(self._size, self._level + (now - self._at) * self._rate)
            self._at = now


class RefusalBound:
    """Bounds the records of refusals in one log: those of strangers cannot hide those of known callers.

    Args:
        clock: seconds.
    """

    __slots__ = ("_clock", "_known", "_strangers")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._strangers, self._known = (TokenBucket(REFUSALS, REFUSALS, clock()) for _ in range(2))

    def keeps(self, *, known: bool) -> bool:
        """Return whether the record of one more refusal is kept.

        Args:
            known: whether the caller has shown a valid credential.
        """
        bucket, now = self._known if known else self._strangers, self._clock()
        if bucket.wait(1, now):
            return False
        bucket.spend(1, now)
        return True


__all__ = ["REFUSALS", "RefusalBound", "TokenBucket"]
