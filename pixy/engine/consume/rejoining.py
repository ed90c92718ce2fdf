"""A group's sessions, one after another, as one :class:`~pixy.membership.Session`.

A session that fails (Kafka refuses the group, an answer is unreadable, a client library gives up) ends for good.
The group's actor then commits, closes it, and opens the next one after a pause, as often as it takes. The actor itself
is not restarted, so its long polls go on waiting, and time out with the reason.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

from actors import Backoff
from pixy.kafka.consumer import Commit
from pixy.membership import Event, Revoked, Session
from pixy.wire.types import TopicPartition

SessionFactory = Callable[[str, Callable[[Event], None]], Session]
"""Opens the session of a group; the second argument takes its events."""

BACKOFF = Backoff(first=0.5, most=30.0)
"""The pauses before the next session. A session that fails again within ``reset`` seconds has a longer one:
every join is a rebalance for the group's other members."""


class RejoiningSession:
    """The present session of a group. See :class:`pixy.membership.Session` for its methods.

    Args:
        factory: opens a session.
        group: the group's name.
        post: gets the events of the present session only.
    """

    def __init__(self, factory: SessionFactory, group: str, post: Callable[[Event], None]) -> None:
        self._factory = factory
        self._group = group
        self._post = post
        self._topics: Mapping[str, int] = {}
        self._number = 0
        self._failures = 0
        self._failed_at = float("-inf")
        self._session: Session = _NoSession()

    def _begin(self) -> Session:
        self._number += 1
        number = self._number

        def post(event: Event) -> None:
            if number == self._number:
                self._post(event)

        return self._factory(self._group, post)

    @property
    def present(self) -> Session:
        """The present session itself: for what belongs to it alone, such as a partition's owner."""
        return self._session

    def failed(self, now: float, rng: random.Random) -> float:
        """Note that the present session has failed; return the seconds to wait before :meth:`reopen`.

        Args:
            now: the time in seconds.
            rng: takes a random share off the pause.
        """
        if now - self._failed_at >= BACKOFF.reset:
            self._failures = 0
        self._failed_at = now
        self._failures += 1
        return BACKOFF.delay(self._failures, rng)

    def mute(self) -> None:
        """Take no more events of the present session: the actor's life ends, and its next one has another session."""
        self._number += 1

    def reopen(self) -> None:
        """Open the first or next session, with the subscription of the one before. Call it after :meth:`close`.

        Raises:
            PixyError: it cannot be opened now.
        """
        self._session = _NoSession()
        self._session = self._begin()
        if self._topics:
            self._session.subscribe(self._topics)

    # -- Session ----------------------------------------------------------------------------------

    def subscribe(self, topics: Mapping[str, int]) -> None:
        """See :class:`pixy.membership.Session`."""
        self._topics = dict(topics)
        self._session.subscribe(self._topics)

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None:
        """See :class:`pixy.membership.Session`."""
        self._session.credit(partition, messages, size)

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """See :class:`pixy.membership.Session`."""
        self._session.seek(partition, offset, epoch)

    def next_epoch(self) -> int:
        """See :class:`pixy.membership.Session`."""
        return self._session.next_epoch()

    def commit(self, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        self._session.commit(commits)

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None:
        """See :class:`pixy.membership.Session`."""
        self._session.release(revoked, commits)

    async def close(self, commits: Iterable[Commit], timeout: float) -> None:
        """See :class:`pixy.membership.Session`."""
        await self._session.close(commits, timeout)


class _NoSession:
    """In place of a session that could not be opened. See :class:`pixy.membership.Session`."""

    def subscribe(self, topics: Mapping[str, int]) -> None: ...

    def credit(self, partition: TopicPartition, messages: int, size: int) -> None: ...

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None: ...

    def next_epoch(self) -> int:
        return 0

    def commit(self, commits: Iterable[Commit]) -> None: ...

    def release(self, revoked: Revoked, commits: Iterable[Commit]) -> None: ...

    async def close(self, commits: Iterable[Commit], timeout: float) -> None: ...


__all__ = ["BACKOFF", "RejoiningSession", "SessionFactory"]
