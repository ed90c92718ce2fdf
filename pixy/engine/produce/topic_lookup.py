"""Looks up the topic of a producer: three times in a row, because a new topic is not known to every broker at once.

:class:`pixy.engine.topic_lookups.TopicLookups` makes each attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from pixy.errors import PixyError
from pixy.kafka.errors import timed_out, unknown_topic

LOOKUPS = 3
LOOKUP_PAUSE = 0.25
"""Seconds between look-ups."""
LOOKUP_AGAIN = 1.0
"""Seconds until the next look-ups, if no broker has answered, or the client refuses messages although the topic was found."""

Writable = Callable[[str], Awaitable[tuple[int, ...] | None]]
"""The partitions of a topic that have a leader, sorted; None if there is no such topic."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The partitions of a topic that have a leader; None if there is no such topic, or, with an error, no answer."""

    partitions: tuple[int, ...] | None
    error: PixyError | None = None


async def look_up(writable: Writable, topic: str, attempts: int = LOOKUPS) -> Resolved:
    """Look a topic up.

    Args:
        writable: asks a broker; a PixyError that it raises is part of the result.
        topic: which one.
        attempts: how often, until it is found.
    """
    found = Resolved(None)
    for attempt in range(attempts):
        if attempt:
            await asyncio.sleep(LOOKUP_PAUSE)
        try:
            found = Resolved(await writable(topic))
        except PixyError as error:
            found = Resolved(None, error)
        if found.partitions:
            break
    return found


class Search(Enum):
    """Whether the topic is being looked up; there is one look-up at a time."""

    NONE = auto()
    LATER = auto()
    """It will be, after :data:`LOOKUP_AGAIN`."""
    UNDER_WAY = auto()
    BLOCKED = auto()
    """It was found, and is looked up again once nothing is in flight: those messages come before those that the client has
    refused, or are refused as well.
    """


class Answer(Enum):
    """What the answer to a look-up means for the producer."""

    FOUND = auto()
    """The topic was not known; it may be another one than before."""
    REFRESHED = auto()
    """The topic is known, and its partitions are up to date again."""
    USELESS = auto()
    """What is known stays: no broker answers, or one does not know the topic yet. The client says what becomes of the messages
    in flight.
    """
    BLOCKED = auto()
    """See :attr:`Search.BLOCKED`."""
    MISSING = auto()
    UNREACHABLE = auto()


class KnownTopic:
    """A producer's knowledge of its topic, and of the look-ups for it. Whoever holds it makes them.

    Attributes:
        partitions: that have a leader, sorted; None while it is not known whether there is such a topic.
        search: whether it is being looked up.
        sought: the ``order`` of the newest message when the last look-up began: it may miss a topic that was made since.
        error: why messages fail whose time is over while they wait for the topic.
    """

    __slots__ = ("_refused_at", "error", "partitions", "search", "sought")

    def __init__(self) -> None:
        self.partitions: tuple[int, ...] | None = None
        self.search = Search.NONE
        self.sought = 0
        self.error: PixyError = unknown_topic()
        self._refused_at = float("-inf")

    def begin(self, newest: int) -> None:
        """Note that a look-up begins, and the ``order`` of the newest message."""
        self.search = Search.UNDER_WAY
        self.sought = newest

    def answered(self, found: Resolved, *, in_flight: bool, busy: bool) -> Answer:
        """Learn from a look-up.

        Args:
            found: its result.
            in_flight: whether messages are on their way.
            busy: whether some are besides those parts of batches whose rest waits.
        """
        self.search = Search.NONE
        known = self.partitions is not None
        if found.partitions is None:
            if known and (found.error is not None or in_flight):
                return Answer.USELESS
            if found.error is None:
                return Answer.MISSING
            self.error = found.error
            return Answer.UNREACHABLE
        if not known and busy:
            self.search = Search.BLOCKED
            self.error = timed_out("a message")
            return Answer.BLOCKED
        self.partitions = found.partitions
        return Answer.REFRESHED if known else Answer.FOUND

    def refused(self, now: float) -> Search:
        """Note that the client knows no such topic, at the event-loop time ``now``.

        Returns:
            The search to begin: one that is under way, or one later, because the client has not believed the last one. None if
            there is one already.
        """
        soon = now < self._refused_at + 2 * LOOKUP_AGAIN
        self._refused_at = now
        self.partitions = None
        self.error = timed_out("a message")
        if self.search is not Search.NONE:
            return Search.NONE
        return Search.LATER if soon else Search.UNDER_WAY

    def put_off(self) -> None:
        """Note that the next look-up is later."""
        self.search = Search.LATER

    def forget(self) -> None:
        """Note that nothing waits for the topic. A look-up that is under way goes on, and serves what comes meanwhile."""
        self.partitions = None
        if self.search is not Search.UNDER_WAY:
            self.search = Search.NONE
