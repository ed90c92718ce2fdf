"""The topics of a group: look-ups, the subscription, long polls that time out, idle topics.

A part of the group's actor, not an actor: it runs inside the actor's handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from actors import Actor
from pixy.config.model import Consumer
from pixy.engine.consume.long_polls import Poll, TopicPolls
from pixy.engine.consume.views import TopicView
from pixy.errors import LongPollTimeout, PixyError, Unavailable
from pixy.membership import Session
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")

_EXPIRY_CHECK = 0.1
_AT_ONCE = 200
"""Long polls that time out in one turn of the loop: answering them takes some 10 ms. Those that a group kept waiting while it joined end together."""
_FROZEN = 1.0
"""Seconds by which a timer is late if the process did not run: clients' requests wait in its sockets."""

TopicLookup = Callable[[str], Awaitable[int | None]]
"""Finds a topic's number of partitions; None if there is no such topic. Raises PixyError."""


# The group's actor gets these messages from timers and look-ups that Subscriptions starts.


@dataclass(frozen=True, slots=True)
class TopicFound:
    """A look-up has ended. ``partitions`` is None without such a topic, and after an error."""

    topic: str
    partitions: int | None
    error: PixyError | None = None


@dataclass(frozen=True, slots=True)
class Recheck:
    """Look a missing topic up again."""

    topic: str


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Subscribe to the topics that were found so far."""


@dataclass(frozen=True, slots=True)
class PollsDue:
    """The first long poll of a topic times out."""

    topic: str


@dataclass(frozen=True, slots=True)
class SubscriptionDue:
    """A topic may have been idle for too long."""

    topic: str


class Group(Protocol):
    """The part of the group's actor that :class:`Subscriptions` calls."""

    def count_pending(self, topic: str) -> int:
        """Count the messages of the topic that are offered and not acknowledged."""

    def topic_expired(self, topic: str) -> None:
        """Hear that nobody asks for a topic any more."""

    def last_topic_expired(self) -> None:
        """Hear that the group has no topic any more."""


class Subscriptions:
    """The topics that the group's clients asked for lately, each with its long polls.

    Args:
        actor: the group's actor; timers and tasks are its own.
        group: the same actor.
        session: gets the subscription.
        conf: the limits and timeouts.
        lookup: finds a topic's number of partitions.
    """

    def __init__(
        self, actor: Actor, group: Group, session: Session, conf: Consumer, lookup: TopicLookup
    ) -> None:
        self._actor = actor
        self._group = group
        self._session = session
        self._conf = conf
        self._lookup = lookup
        self._topics: dict[str, TopicPolls] = {}
        self._subscribed: dict[str, int] = {}
        self._member = False
        """True if the group has answered with an assignment, for whatever topics."""
        self.closed = False
        """Set when the group leaves: no topic is subscribed to or expires any more."""
        self.failure: PixyError | None = None
        """The reason why the group consumes nothing until it joins again: the answer to the requests that time out."""

    def __len__(self) -> int:
        return len(self._topics)

    def get(self, topic: str) -> TopicPolls | None:
        """Return the long polls of a topic, if the group is interested in it."""
        return self._topics.get(topic)

    def open(self, topic: str, *, joined: bool = False) -> TopicPolls:
        """Return the long polls of a topic; a new topic is looked up and subscribed to.

        Args:
            topic: which.
            joined: the group has partitions of it: it had expired, and was not unsubscribed from yet.
        """
        polls = self._topics.get(topic)
        if polls is None:
            polls = TopicPolls(self._conf.long_polling_timeout, self._conf.join_timeout)
            polls.joined = joined
            self._topics[topic] = polls
            self._look_up(topic)
            self._check_idle_after(topic, self._conf.subscription_timeout)
        return polls

    def joined(self) -> None:
        """Start the wait of the first long polls: the group has answered with an assignment."""
        self._member = True
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

    def withdraw(self, partition: TopicPartition) -> None:
        """Give a partition no more requests."""
        polls = self._topics.get(partition[0])
        if polls is not None:
            polls.ready.remove(partition[1])
            polls.ready.restart()

    def watch(self, topic: str, polls: TopicPolls) -> None:
        """Make sure that the first request of the queue times out in time."""
        key = ("polls", topic)
        deadline = polls.next_deadline()
        if deadline is not None and not self._actor.has_timer(key):
            self._actor.set_timer(key, max(0.0, deadline - self._now()), PollsDue(topic))

    def views(self) -> tuple[TopicView, ...]:
        """Return the state of each topic, sorted."""
        return tuple(
            TopicView(topic, *polls.waiting(), polls.last_request, polls.joined, polls.missing)
            for topic, polls in sorted(self._topics.items())
        )

    def drain(self) -> Iterator[Poll]:
        """Take out all requests."""
        for polls in self._topics.values():
            yield from polls.drain()

    def expire_polls(self, topic: str) -> None:
        """Answer the requests whose time is up."""
        polls = self._topics.get(topic)
        if polls is None:
            return
        expired = list(islice(polls.expire(self._now()), _AT_ONCE))
        for poll in expired:
            poll.reply.try_fail(self._timeout_error())
        if expired and self._member and not polls.joined and not polls.missing:
            # It has had its time to join for this topic, too. With KIP-848 a member hears nothing if that changes none of its
            # partitions.
            polls.joined = True
            polls.start_waiting(self._now())
        self.watch(topic, polls)

    def _timeout_error(self) -> PixyError:
        return (
            LongPollTimeout() if self.failure is None else Unavailable(f"cannot consume now: {self.failure}")
        )

    # -- look-up and subscription -----------------------------------------------------------------

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
            # All partitions of a topic that did not exist when it was first asked for count as added.
            self._subscribed[topic] = 0 if polls.missing else found.partitions
            polls.found()
            if not self._actor.has_timer("subscribe"):
                # The first topic joins at once. A change is a rebalance, so later topics are gathered.
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

    def recheck(self, topic: str) -> None:
        """Look a missing topic up again."""
        if topic in self._topics:
            self._look_up(topic)

    def subscribe(self) -> None:
        """Tell the session which topics were found."""
        self._session.subscribe(self._subscribed)

    # -- idle topics ------------------------------------------------------------------------------

    def _check_idle_after(self, topic: str, delay: float) -> None:
        self._topics[topic].check_at = self._now() + delay
        self._actor.set_timer(("subscription", topic), delay, SubscriptionDue(topic))

    def check_idle(self, topic: str) -> None:
        """Unsubscribe from a topic that nobody asks for, once none of its messages waits for an ack."""
        polls = self._topics.get(topic)
        if polls is None or self.closed:
            return
        late = self._now() - polls.check_at
        if late > _FROZEN:
            polls.last_request = min(self._now(), polls.last_request + late)
        idle = self._now() - polls.last_request
        left = self._conf.subscription_timeout - idle
        if len(polls):
            left = max(left, _EXPIRY_CHECK)
        elif left <= 0:
            pending = self._group.count_pending(topic)
            if pending and idle > self._conf.ack_timeout:
                logger.warning(
                    "%s: Stopping unsafely, some messages can be consumed more than once: %s, %d "
                    "not acknowledged",
                    self._actor.path,
                    topic,
                    pending,
                )
                pending = 0
            if not pending and not len(polls):
                self._unsubscribe(topic)
                return
            left = _EXPIRY_CHECK
        self._check_idle_after(topic, left)

    def _unsubscribe(self, topic: str) -> None:
        logger.info("%s: subscription to %s expired", self._actor.path, topic)
        self._group.topic_expired(topic)
        del self._topics[topic]
        self._subscribed.pop(topic, None)
        self._actor.cancel_timer(("recheck", topic))
        self._actor.cancel_timer(("polls", topic))
        if self._topics:
            self._session.subscribe(self._subscribed)
        else:
            self._group.last_topic_expired()

    def _now(self) -> float:
        return self._actor.system.loop.time()
