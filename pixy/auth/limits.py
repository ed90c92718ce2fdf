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

from pixy.auth.buckets import TokenBucket
from pixy.auth.patterns import Who
from pixy.auth.principal import Principal
from pixy.auth.rules import MAX_NAME, Access
from pixy.config.security import Limit
from pixy.errors import ConfigError, Limited

SHARE: Final = 4
"""One principal may have fewer requests under way than this many times those that are free."""
MAX_PRINCIPALS: Final = 10_000
"""Principals that are remembered; the one that was idle the longest is forgotten first."""
MAX_TOPICS: Final = 2_000
"""Topics that are remembered of each principal."""
GROUP_KEPT: Final = 60.0
"""Seconds that a group counts after its last request; a group without requests ends sooner."""
_UNLIMITED = Limit()


class Use:
    """The present use of one principal.

    Attributes:
        active: his requests under way.
        polls: those of them that wait for messages.
    """

    __slots__ = ("_groups", "_topics", "active", "bytes", "limit", "name", "new_topics", "polls", "requests")

    def __init__(self, name: str, limit: Limit, now: float) -> None:
        def bucket(rate: float) -> TokenBucket | None:
            return TokenBucket(rate, max(1.0, rate * limit.burst), now) if rate else None

        per_minute = limit.new_topics_per_minute
        self.name = name
        self.limit = limit
        self.active = 0
        self.polls = 0
        self.requests = bucket(limit.requests_per_second)
        self.bytes = bucket(limit.bytes_per_second)
        self.new_topics = TokenBucket(per_minute / 60, per_minute, now) if per_minute else None
        self._topics: dict[tuple[str, str], None] = {}
        self._groups: dict[tuple[str, str], float] = {}

    def check_rates(self, now: float) -> None:
        """Count a request. Raises Limited."""
        if self.requests is not None:
            wait = self.requests.wait(1, now)
            if wait:
                self._refuse(f"{self.limit.requests_per_second:g} requests a second", wait)
        if self.bytes is not None and (wait := self.bytes.wait(1, now)):
            self._refuse(f"{self.limit.bytes_per_second:g} bytes a second", wait)
        if self.requests is not None:
            self.requests.spend(1, now)

    def check_names(self, accesses: Sequence[Access], creates: bool, now: float) -> None:
        """Count the groups and topics of a request. Raises Limited.

        Args:
            accesses: what the request does: groups that it consumes as count, and topics that it writes or consumes.
            creates: whether it makes the topic that it names, or sets offsets of the group, which makes that.
            now: seconds of the limiter's clock.
        """
        for access in accesses:
            if creates and access.group is not None:
                self.check_group((access.cluster, access.group), now)
            elif creates and access.topic is not None:
                self.check_topic((access.cluster, access.topic), now)
            if access.verb == "consume" and access.group is not None:
                self.check_group((access.cluster, access.group), now)
            if access.verb in ("produce", "consume") and access.topic is not None:
                self.check_topic((access.cluster, access.topic), now)

    def check_topic(self, key: tuple[str, str], now: float) -> None:
        """Count a topic that the principal has not used before. Raises Limited.

        Args:
            key: cluster and topic.
            now: seconds of the limiter's clock.
        """
        if self.new_topics is None or key in self._topics or len(key[1]) > MAX_NAME:
            return  # the engine refuses a longer name
        wait = self.new_topics.wait(1, now)
        if wait:
            self._refuse(f"{self.limit.new_topics_per_minute} new topics a minute", wait)
        self.new_topics.spend(1, now)
        if len(self._topics) >= MAX_TOPICS:
            del self._topics[next(iter(self._topics))]
        self._topics[key] = None

    def check_group(self, key: tuple[str, str], now: float) -> None:
        """Count a group that the principal consumes as, or sets offsets of. Raises Limited.

        Args:
            key: cluster and group; the group counts for :data:`GROUP_KEPT` from now on.
            now: seconds of the limiter's clock.
        """
        most = self.limit.groups
        if not most:
            return
        if key not in self._groups and len(self._groups) >= most:
            self._groups = {name: at for name, at in self._groups.items() if now - at < GROUP_KEPT}
            if len(self._groups) >= most:
                self._refuse(f"{most} groups", GROUP_KEPT - (now - min(self._groups.values())))
        self._groups[key] = now

    def _refuse(self, what: str, wait: float) -> None:
        raise Limited(f"{self.name} may have {what} (`limits`)", wait)


class Limiter:
    """Counts what each principal uses.

    Args:
        limits: the section ``limits``; the first element that names a principal counts for him.
        groups: ``auth.groups``.
        most: ``max_concurrent_requests``.
        clock: seconds.

    Raises:
        ConfigError: a pattern is wrong.
    """

    def __init__(
        self,
        limits: Sequence[Limit],
        groups: Mapping[str, Sequence[str]],
        most: int,
        clock: Callable[[], float] = time.monotonic,
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
        self._active = 0

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
        if use.active >= SHARE * (self._most - self._active):
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
        self._active += 1
        return use

    def end(self, use: Use, *, polls: bool) -> None:
        """Count a request no longer: it is over.

        Args:
            use: as returned by :meth:`begin`.
            polls: as told there.
        """
        use.active -= 1
        use.polls -= polls
        self._active -= 1

    def spend(self, use: Use, size: Callable[[], int]) -> None:
        """Count bytes that a principal has sent or got.

        Args:
            use: his.
            size: tells how many; not asked if nobody limits them.
        """
        if use.bytes is not None:
            use.bytes.spend(size(), self._clock())

    def _use(self, principal: Principal) -> Use:
        key = principal.name, self._number(principal)
        use = self._uses.pop(key, None)
        if use is None:
            if len(self._uses) >= MAX_PRINCIPALS:
                idle = next((each for each, found in self._uses.items() if not found.active), None)
                if idle is not None:
                    del self._uses[idle]
            use = Use(principal.name, self.limit_of(principal), self._clock())
        self._uses[key] = use  # the last one of the dictionary has just been active
        self._last = principal, use
        return use


def whole_seconds(error: Limited) -> str:
    """Return the value of Retry-After (RFC 9110, section 10.2.3)."""
    return str(max(1, math.ceil(error.retry_after)))


__all__ = ["GROUP_KEPT", "SHARE", "Limiter", "Use", "whole_seconds"]
