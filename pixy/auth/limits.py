"""Limit what each principal uses. Pure: the clock is an argument.

Besides what ``limits`` give, all principals share ``max_concurrent_requests`` fairly: one may begin another request only
while he has fewer under way than four times those that are free. So whoever takes all he can gets four fifths, and the
others find room at any time (dynamic thresholds: Choudhury and Hahne, 1998).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pixy.auth.patterns import Who
from pixy.auth.principal import Principal
from pixy.auth.rules import Access
from pixy.auth.use import GROUP_KEPT, Use
from pixy.config.security import Limit
from pixy.errors import ConfigError, Limited

SHARE: Final = 4
"""One principal may have fewer requests under way than this many times those that are free."""
MAX_PRINCIPALS: Final = 10_000
"""Principals that are remembered; the one that was idle the longest is forgotten first."""
_UNLIMITED = Limit()


class _Total:
    """Requests under way of all principals; limiters that follow each other have one."""

    __slots__ = ("active",)

    def __init__(self) -> None:
        self.active = 0


class Limiter:
    """Counts what each principal uses.

    Args:
        limits: the section ``limits``; the first element that names a principal counts for him.
        groups: ``auth.groups``.
        most: ``max_concurrent_requests``.
        clock: seconds.
        earlier: what has counted until now, by other limits. What it has counted is taken over with the next request, in the
            thread of the requests: a reload gives nobody anything anew. Requests that it has counted still end there.

    Raises:
        ConfigError: a pattern is wrong.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        groups: Mapping[str, Sequence[str]],
        most: int,
        clock: Callable[[], float] = time.monotonic,
        earlier: Limiter | None = None,
    ) -> None:
        self._limits: list[tuple[Who, Limit]] = []
        self._uses: dict[tuple[str, int], Use] = {}
        """By name and the number of the limit: tokens of one caller may name some of his groups, and others."""
        for number, limit in enumerate(limits):
            try:
                self._limits.append((Who(limit.who, groups), limit))
            except ConfigError as error:
                raise ConfigError(f"limits[{number}]: {error}") from None
        self._numbers: dict[Principal, int] = {}
        self._last: tuple[Principal, Use] | None = None
        """The principal of the last request, and his use, which is the last of all."""
        self._most = most
        self._clock = clock
        self._earlier = earlier
        self._total: _Total = _Total() if earlier is None else earlier._total
        if earlier is not None:
            # Here, because a reload is in a thread of its own: with many callers and limits it takes a while.
            for principal in list(earlier._numbers):
                self._number(principal)

    @property
    def active(self) -> int:
        """Requests under way."""
        return self._total.active

    def limit_of(self, principal: Principal) -> Limit:
        """Return the limit of a principal."""
        number = self._number(principal)
        return _UNLIMITED if number < 0 else self._limits[number][1]

    def _number(self, principal: Principal) -> int:
        """Return the index of the limit that counts for a principal; -1: none."""
        if not self._limits:
            return -1
        known = self._numbers.get(principal)
        if known is None:
            known = next((at for at, (who, _) in enumerate(self._limits) if who(principal)), -1)
            if len(self._numbers) >= MAX_PRINCIPALS:
                self._numbers.clear()
            self._numbers[principal] = known
        return known

    def begin(
        self,
        principal: Principal,
        accesses: Sequence[Access],
        *,
        polls: bool,
        creates: bool = False,
        permit: Callable[[Principal, Sequence[Access]], None] | None = None,
    ) -> Use:
        """Count a request; :meth:`end` must follow.

        Args:
            principal: who makes it.
            accesses: what it does.
            polls: whether it waits for messages.
            creates: whether it makes the topic that it names, or sets offsets of the group.
            permit: called with ``principal`` and ``accesses``; raises an error if he may not do it. A refused request
                counts against his rates; its group and topic are not remembered.

        Raises:
            Limited: he has used up what he may.
        """
        last = self._last
        use = last[1] if last is not None and last[0] is principal else self._use(principal)
        if use.active >= SHARE * (self._most - self._total.active):
            raise Limited("this caller's share of `max_concurrent_requests` is in use")
        limited = use.limit is not _UNLIMITED
        if limited:
            use.check_rates(self._clock())
            if polls and use.limit.waiting_polls and use.polls >= use.limit.waiting_polls:
                raise Limited(f"{use.name} may have {use.limit.waiting_polls} waiting polls (`limits`)")
        if permit is not None:
            permit(principal, accesses)
        if limited:
            use.check_names(accesses, creates, self._clock())
        use.active += 1
        use.polls += polls
        self._total.active += 1
        return use

    def end(self, use: Use, *, polls: bool) -> None:
        """Count a request no longer: it is over.

        Args:
            use: as returned by :meth:`begin`.
            polls: as told there.
        """
        self._total.active -= 1
        while use.heir is not None:
            use = use.heir
        use.active -= 1
        use.polls -= polls

    def spend(self, use: Use, size: Callable[[], int]) -> None:
        """Count bytes that a principal has sent or got.

        Args:
            use: his.
            size: tells how many; not asked if nobody limits them.
        """
        if use.bytes is not None:
            use.bytes.spend(size(), self._clock())

    def _use(self, principal: Principal) -> Use:
        if self._earlier is not None:
            self._take_over()
        key = principal.name, self._number(principal)
        use = self._uses.pop(key, None)
        if use is None:
            if len(self._uses) >= MAX_PRINCIPALS:
                idle = next((each for each, found in self._uses.items() if not found.active), None)
                if idle is not None:
                    del self._uses[idle]
            use = Use(principal, self.limit_of(principal), self._clock())
        use.principal = principal
        self._uses[key] = use  # the last one of the dictionary has just been active
        self._last = principal, use
        return use

    def _take_over(self) -> None:
        """Go on with what earlier limiters have counted, from the first one on: there may have been no request between two reloads."""
        chain = [self]
        while (earlier := chain[-1]._earlier) is not None:
            chain.append(earlier)
        while len(chain) > 1:
            chain.pop()._hand_over(chain[-1])

    def _hand_over(self, heir: Limiter) -> None:
        now = self._clock()
        for use in self._uses.values():
            principal = use.principal
            use.use_limit(heir.limit_of(principal), now)
            first = heir._uses.setdefault((use.name, heir._number(principal)), use)
            if first is not use:
                first.absorb(use, now)
        self._uses = {}
        heir._earlier = None


def whole_seconds(error: Limited) -> str:
    """Return the value of Retry-After (RFC 9110, section 10.2.3)."""
    return str(max(1, math.ceil(error.retry_after)))


__all__ = ["GROUP_KEPT", "SHARE", "Limiter", "Use", "whole_seconds"]
