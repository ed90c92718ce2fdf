"""The topics of a group: looking them up, subscribing, long polls that time out, expiry.

A part of the group's actor, not an actor: it runs inside the actor's handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from actors import Actor
from pixy.config.model import Consumer
from pixy.engine.consume.long_polls import Poll, TopicPolls
from pixy.errors import LongPollTimeout, PixyError
from pixy.membership import Session

logger = logging.getLogger("pixy.engine")

_EXPIRY_CHECK = 0.1

TopicLookup = Callable[[str], Awaitable[int | None]]
"""The number of a topic's partitions; None if there is no such topic; raises PixyError."""


# What the group's actor gets and passes on to :meth:`Subscriptions.handle`.


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A look-up has ended."""

    topic: str
    partitions: int | None
    error: PixyError | None = None


@dataclass(frozen=True, slots=True)
class Recheck:
    """A missing topic may exist by now."""

    topic: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The topics that were gathered become the subscription."""


@dataclass(frozen=True, slots=True)
class PollsDue:
    """The first long poll of a topic times out."""

    topic: str


@dataclass(frozen=True, slots=True)
class SubscriptionDue:
    """A topic may have been idle for too long."""

    topic: str


class Owner(Protocol):
    """What the group's actor answers."""

    async def count_pending(self, topic: str) -> int:
        """Messages of the topic that are offered and not acknowledged."""

    def nothing_left(self) -> None:
        """The last topic has expired."""


class Subscriptions:
    """See the module."""

    def __init__(
        self, actor: Actor, owner: Owner, session: Session, conf: Consumer, lookup: TopicLookup
    ) -> None:
        self._actor = actor
        self._owner = owner
        self._session = session
        self._conf = conf
        self._lookup = lookup
        self._topics: dict[str, TopicPolls] = {}
        self._subscribed: dict[str, int] = {}
        self.closed = False

    def get(self, topic: str) -> TopicPolls | None:
        """The long polls of a topic, if the group is interested in it."""
        return self._topics.get(topic)

    def open(self, topic: str) -> TopicPolls:
        """The same; a topic that is new is looked up and subscribed to."""
        polls = self._topics.get(topic)
        if polls is None:
            polls = TopicPolls(self._conf.long_polling_timeout, self._conf.join_timeout)
            self._topics[topic] = polls
            self._look_up(topic)
            self._actor.set_timer(
                ("subscription", topic), self._conf.subscription_timeout, SubscriptionDue(topic)
            )
        return polls

    def joined(self) -> None:
        """The group has answered with an assignment: the wait of the first long polls begins."""
        for topic in self._subscribed:
            polls = self._topics.get(topic)
            if polls is None:
                continue
            polls.ready.restart()
            if not polls.joined:
                polls.joined = True
                polls.start_waiting(self._now())
                self._actor.cancel_timer(("polls", topic))
                self.watch(topic, polls)

    def watch(self, topic: str, polls: TopicPolls) -> None:
        """See to it that the first request of the queue times out in time."""
        key = ("polls", topic)
        deadline = polls.next_deadline()
        if deadline is not None and not self._actor.has_timer(key):
            self._actor.set_timer(key, max(0.0, deadline - self._now()), PollsDue(topic))

    def drain(self) -> Iterator[Poll]:
        """Take out all requests."""
        for polls in self._topics.values():
            yield from polls.drain()

    # -- messages -------------------------------------------------------------------------------

    def polls_due(self, due: PollsDue) -> None:
        """Answer the requests whose time is up."""
        polls = self._topics.get(due.topic)
        if polls is None:
            return
        for poll in polls.expire(self._now()):
            poll.reply.try_fail(LongPollTimeout())
        self.watch(due.topic, polls)

    def _look_up(self, topic: str) -> None:
        def failed(error: BaseException) -> TopicFound:
            if not isinstance(error, PixyError):
                raise error
            return TopicFound(topic, None, error)

        self._actor.pipe_to_self(
            self._lookup(topic), on_value=lambda found: TopicFound(topic, found), on_error=failed
        )

    def found(self, found: TopicFound) -> None:
        """Subscribe to a topic that exists; look again later for one that does not."""
        topic = found.topic
        polls = self._topics.get(topic)
        if polls is None or self.closed:
            return
        if found.partitions:
            polls.found()
            self._subscribed[topic] = found.partitions
            if not self._actor.has_timer("subscribe"):
                # The first topic joins at once; a change is a rebalance, so others are gathered.
                delay = 0.0 if len(self._subscribed) == 1 else self._conf.rebalance_delay
                self._actor.set_timer("subscribe", delay, Subscribe())
            return
        if found.error is not None:
            logger.warning("%s: looking up topic %s: %s", self._actor.path, topic, found.error)
        else:
            polls.missing = True
            polls.start_waiting(self._now())
            self._actor.cancel_timer(("polls", topic))
            self.watch(topic, polls)
        self._actor.set_timer(("recheck", topic), self._conf.retry_backoff, Recheck(topic))

    def recheck(self, check: Recheck) -> None:
        """Look a missing topic up again."""
        if check.topic in self._topics:
            self._look_up(check.topic)

    def subscribe(self, _message: Subscribe) -> None:
        """Tell the session."""
        self._session.subscribe(self._subscribed)

    async def due(self, due: SubscriptionDue) -> None:
        """Give a topic up that nobody has asked for, once nothing of it waits for an ack."""
        polls = self._topics.get(due.topic)
        if polls is None or self.closed:
            return
        idle = self._now() - polls.last_request
        left = self._conf.subscription_timeout - idle
        if len(polls):
            left = max(left, _EXPIRY_CHECK)
        elif left <= 0:
            pending = await self._owner.count_pending(due.topic)
            if pending and idle > self._conf.ack_timeout:
                logger.warning(
                    "%s: Stopping unsafely, some messages can be consumed more than once: %s, %d "
                    "not acknowledged",
                    self._actor.path,
                    due.topic,
                    pending,
                )
                pending = 0
            if not pending and not len(polls):
                self._unsubscribe(due.topic)
                return
            left = _EXPIRY_CHECK
        self._actor.set_timer(("subscription", due.topic), left, due)

    def _unsubscribe(self, topic: str) -> None:
        logger.info("%s: subscription to %s expired", self._actor.path, topic)
        del self._topics[topic]
        self._subscribed.pop(topic, None)
        self._actor.cancel_timer(("recheck", topic))
        self._actor.cancel_timer(("polls", topic))
        if self._topics:
            self._session.subscribe(self._subscribed)
        else:
            self._owner.nothing_left()

    def _now(self) -> float:
        return self._actor.system.loop.time()
