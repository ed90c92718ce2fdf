"""What an instance consumes: subscriptions, assignments, and what the group gives and takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors import Future
from pixy.engine.instances.context import Parts, Subscription
from pixy.engine.instances.messages import (
    AssignPartitions,
    GetSubscription,
    SubscribeTo,
    Unsubscribe,
)
from pixy.errors import IllegalState, OtherSubscription, PixyError, UnknownTopic
from pixy.kafka.errors import AUTH_CODES
from pixy.membership.instances import Gone, Joined, Leaving, Trouble
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class TopicChecked:
    """Whether the topic of a v1 read is there (no error) or not."""

    topic: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The group was left."""

    reply: Future[Any]


class Consuming:
    """A part of :class:`pixy.engine.instances.actor.Instance`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._checking = ""

    def resume(self) -> None:
        """A new life consumes what the one before did, from where the reader is."""
        subscription = self._parts.memory.subscription
        if subscription.partitions:
            self._start_assigned(subscription, {}, None)
        elif subscription:
            session = self._parts.open()
            self._parts.operations.begin(
                lambda token: session.subscribe(token, subscription.wanted), "subscribe"
            )

    # -- subscribing ------------------------------------------------------------------------------

    def want_topic(self, topic: str) -> None:
        """v1: the first read subscribes, and later ones are of the same topic.

        Raises:
            OtherSubscription: something else is consumed.
        """
        subscription = self._parts.memory.subscription
        if self._checking == topic or subscription.topics == (topic,):
            return
        if self._checking or subscription:
            raise OtherSubscription
        self._checking = topic
        self._parts.actor.pipe_to_self(
            self._parts.catalogue.check(topic),
            on_value=lambda _found: TopicChecked(topic, None),
            on_error=lambda error: TopicChecked(topic, error),
        )

    def topic_checked(self, message: TopicChecked) -> None:
        """See :class:`TopicChecked`."""
        if message.topic != self._checking:
            return
        self._checking = ""
        if message.error is not None:
            self._parts.reads.refuse(message.error)
        elif not self._parts.memory.subscription:
            self._start_subscribed(Subscription(topics=(message.topic,)), None)

    def subscribe(self, request: SubscribeTo) -> None:
        """See :class:`SubscribeTo`. Raises IllegalState."""
        wanted = Subscription(topics=tuple(sorted(set(request.topics))), pattern=request.pattern)
        memory = self._parts.memory
        memory.subscription.check_change(wanted)
        self._checking = ""
        if wanted != memory.subscription:
            self._start_subscribed(wanted, self._parts.actor.take_reply())

    def _start_subscribed(self, wanted: Subscription, reply: Future[Any] | None) -> None:
        parts = self._parts
        before, parts.memory.subscription = parts.memory.subscription, wanted
        if set(wanted.wanted) - set(before.wanted):
            parts.reads.joined = False
        session = parts.open()

        def failed(error: PixyError) -> None:
            parts.memory.subscription = before
            parts.reads.refuse(error)

        parts.operations.begin(
            lambda token: session.subscribe(token, wanted.wanted),
            "subscribe",
            reply=reply,
            failed=failed,
        )
        parts.reads.look_again()
        parts.serve()

    def unsubscribe(self, _request: Unsubscribe) -> None:
        """See :class:`Unsubscribe`."""
        parts = self._parts
        self._checking = ""
        parts.memory.subscription = Subscription()
        parts.reads.refuse(IllegalState("the subscription was deleted"))
        if parts.session() is None:
            return
        # The client goes with it: one that has left a group can not take partitions of its own.
        leaving, reply = parts.leave(), parts.actor.take_reply()
        everything = parts.book.partitions
        parts.book.drop(everything)
        parts.reads.shelf.drop(everything)
        parts.reads.joined = False
        parts.reads.look_again()
        parts.actor.pipe_to_self(leaving, on_value=lambda _left: Unsubscribed(reply))

    def unsubscribed(self, message: Unsubscribed) -> None:
        """See :class:`Unsubscribed`."""
        message.reply.try_set(None)

    def get_subscription(self, _query: GetSubscription) -> list[str]:
        """See :class:`GetSubscription`."""
        subscription = self._parts.memory.subscription
        if subscription.pattern:
            return sorted({topic for topic, _ in self._parts.book.partitions})
        return list(subscription.topics)

    # -- assigning --------------------------------------------------------------------------------

    def assign(self, request: AssignPartitions) -> None:
        """See :class:`AssignPartitions`. Raises IllegalState."""
        wanted = Subscription(partitions=tuple(sorted(set(request.partitions))))
        if not wanted:
            self.unsubscribe(Unsubscribe())
            return
        self._parts.memory.subscription.check_change(wanted)
        keep = self._parts.book.positions
        self._start_assigned(wanted, keep, self._parts.actor.take_reply())

    def _start_assigned(
        self, wanted: Subscription, keep: Mapping[TopicPartition, int], reply: Future[Any] | None
    ) -> None:
        parts = self._parts
        before, parts.memory.subscription = parts.memory.subscription, wanted
        kept = {partition: keep[partition] for partition in wanted.partitions if partition in keep}
        session = parts.open()

        def finish(starts: Mapping[TopicPartition, int]) -> None:
            # What waits on the shelf is fetched again: kept partitions go on where the reader is.
            before = parts.book.partitions
            parts.reads.shelf.drop(before)
            parts.book.drop(partition for partition in before if partition not in starts)
            self.joined(Joined(starts))

        def failed(_error: PixyError) -> None:
            parts.memory.subscription = before

        parts.operations.begin(
            lambda token: session.assign(token, wanted.partitions, kept),
            "assign",
            reply=reply,
            finish=finish,
            failed=failed,
        )
        parts.reads.look_again()

    # -- what the group does ----------------------------------------------------------------------

    def joined(self, event: Joined) -> None:
        """See :class:`pixy.membership.instances.Joined`."""
        parts = self._parts
        parts.book.assign(event.starts)
        parts.reads.trouble = None
        parts.reads.start_clocks(parts.now())
        parts.operations.joined()
        parts.serve()

    def leaving(self, event: Leaving) -> None:
        """What was handed out of the partitions is committed before they go, if that is wanted."""
        commits = [
            commit
            for commit in self._parts.book.uncommitted()
            if (commit.topic, commit.partition) in event.partitions
        ]
        self.gone(Gone(event.partitions))
        session = self._parts.session()
        if session is not None:
            session.release(commits if self._parts.spec.auto_commit else ())

    def gone(self, event: Gone) -> None:
        """See :class:`pixy.membership.instances.Gone`."""
        self._parts.book.drop(event.partitions)
        self._parts.reads.shelf.drop(event.partitions)

    def trouble(self, event: Trouble) -> None:
        """See :class:`pixy.membership.instances.Trouble`."""
        parts, error = self._parts, event.error
        if getattr(error, "code", None) in AUTH_CODES:
            parts.reads.trouble = error
            parts.reads.refuse_first(error)
        elif isinstance(error, UnknownTopic) and not parts.book.partitions:
            parts.reads.start_clocks(parts.now())  # nobody can say when it will be there
        parts.serve()
