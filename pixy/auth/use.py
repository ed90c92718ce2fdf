"""What one principal uses at present, measured by a limit that may change while he uses it. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pixy.auth.buckets import TokenBucket
from pixy.auth.principal import Principal
from pixy.auth.rules import MAX_NAME, Access
from pixy.config.security import Limit
from pixy.errors import Limited

MAX_TOPICS: Final = 2_000
"""Topics that are remembered of each principal."""
GROUP_KEPT: Final = 60.0
"""Seconds that a group counts after its last request; a group without requests ends sooner."""


class Use:
    """The present use of one principal.

    Attributes:
        principal: who has made his last request; a token may name others of his groups with each.
        active: his requests under way.
        polls: those of them that wait for messages.
        heir: counts in the place of this one since two limits of one name became one; None: it counts itself.
    """

    __slots__ = (
        "_groups",
        "_topics",
        "active",
        "bytes",
        "heir",
        "limit",
        "name",
        "new_topics",
        "polls",
        "principal",
        "requests",
    )

    def __init__(self, principal: Principal, limit: Limit, now: float) -> None:
        self.principal = principal
        self.name = principal.name
        self.active = 0
        self.polls = 0
        self.heir: Use | None = None
        self.requests: TokenBucket | None = None
        self.bytes: TokenBucket | None = None
        self.new_topics: TokenBucket | None = None
        self._topics: dict[tuple[str, str], None] = {}
        self._groups: dict[tuple[str, str], float] = {}
        self.use_limit(limit, now)

    def use_limit(self, limit: Limit, now: float) -> None:
        """Measure by a limit from now on. What is used stays used: a bucket whose rate changes is as full as before, in proportion.

        Args:
            limit: the limit.
            now: seconds of the limiter's clock.
        """
        per_minute = limit.new_topics_per_minute
        self.limit = limit
        self.requests = _rate(self.requests, limit.requests_per_second, limit.burst, now)
        self.bytes = _rate(self.bytes, limit.bytes_per_second, limit.burst, now)
        self.new_topics = _bucket(self.new_topics, per_minute / 60, per_minute, now)

    def absorb(self, other: Use, now: float) -> None:
        """Count what another use of the same name and limit has counted; it counts no longer.

        Args:
            other: the other one.
            now: seconds of the limiter's clock.
        """
        self.active += other.active
        self.polls += other.polls
        for mine, theirs in (
            (self.requests, other.requests),
            (self.bytes, other.bytes),
            (self.new_topics, other.new_topics),
        ):
            if mine is not None and theirs is not None:
                mine.lower(theirs, now)
        self._topics |= other._topics
        for group, at in other._groups.items():
            self._groups[group] = max(at, self._groups.get(group, at))
        other.heir, other.bytes = self, self.bytes  # bytes of what is under way still come

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


def _rate(earlier: TokenBucket | None, rate: float, burst: float, now: float) -> TokenBucket | None:
    return _bucket(earlier, rate, max(1.0, rate * burst), now)


def _bucket(earlier: TokenBucket | None, rate: float, size: float, now: float) -> TokenBucket | None:
    """Return the bucket that follows an earlier one, if there was one; None: there is no limit."""
    if not rate:
        return None
    return TokenBucket(rate, size, now) if earlier is None else earlier.resized(rate, size, now)


__all__ = ["GROUP_KEPT", "MAX_TOPICS", "Use"]
