"""The partitions that an instance consumes: subscriptions, manual assignments, the group's rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors import Future
from pixy.engine.instances.changes import Changes
from pixy.engine.instances.context import Context, Subscription
from pixy.engine.instances.messages import AssignPartitions, SubscribeTo
from pixy.engine.instances.offsets import Offsets
from pixy.engine.instances.operations import Operations, given_up
from pixy.engine.instances.reads import Reads
from pixy.engine.instances.topic_patterns import TopicPattern
from pixy.errors import IllegalState, OtherSubscription, PixyError, Unavailable, UnknownInstance, UnknownTopic
from pixy.kafka.errors import AUTH_CODES
from pixy.membership.instances import Assigned, Lost, Met, Refused, Revoked
from pixy.wire.types import TopicPartition

_LOOK_EVERY = 10.0
"""Seconds between two looks for topics that match a pattern."""
_NOWHERE = -1_000_000
"""Below every position."""


@dataclass(frozen=True, slots=True)
class TopicChecked:
    """To the instance: the topic of a v1 read exists (no error) or not."""

    topic: str
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class PatternMatched:
    """To the instance: the topics that match the pattern of a subscription.

    Attributes:
        subscription: to the pattern.
        topics: sorted.
        error: why they could not be found.
        before: the subscription that it replaces; None if the one to the pattern stands.
        reply: to the request, if it still waits.
    """

    subscription: Subscription
    topics: tuple[str, ...]
    error: BaseException | None
    before: Subscription | None
    reply: Future[Any] | None


class PatternDue:
    """To the instance, from a timer: look which topics match the pattern now."""


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """To the instance: an :class:`Unsubscribe` has left the group."""

    reply: Future[Any]


def _allowed(subscription: Subscription, topics: tuple[str, ...]) -> tuple[str, ...]:
    return topics if subscription.allowed is None else tuple(filter(subscription.allowed, topics))


class Assignment:
    """Answers the requests about subscriptions and assignments, and follows the group's events."""

    def __init__(self, context: Context, operations: Operations, reads: Reads, offsets: Offsets) -> None:
        self._context = context
        self._operations = operations
        self._reads = reads
        self._offsets = offsets
        self._checking = ""
        """The topic of a v1 read whose existence is being checked."""
        self._changes = Changes(context, operations, reads, self._replace)
        self._matched: tuple[Subscription, tuple[str, ...]] | None = None
        """The topics of the last look for those that match the pattern of a subscription."""
        self._asked: list[Subscription] = []
        """What clients have asked for while a DELETE may wait, in order."""

    def resume(self) -> None:
        """Consume the same topics or partitions after a restart, from the reader's positions on."""
        self._changes.resume()
        self.repeat()

    def repeat(self) -> None:
        """Consume again what is in effect. See :class:`RepeatDue`."""
        subscription = self._changes.to_repeat()
        if subscription is None:
            return
        if subscription.partitions:
            self._changes.assign_again(subscription.partitions)
        elif subscription.pattern:
            self._matched = None
            self._find_topics(subscription, None, None)
        else:
            self._changes.subscribe(subscription.topics, None)
        self._reads.look_again()

    # -- subscriptions ----------------------------------------------------------------------------

    def want_topic(self, topic: str) -> None:
        """Subscribe a v1 instance with its first read; later reads must name the same topic.

        Raises:
            OtherSubscription: the instance consumes something else.
        """
        subscription = self._context.state.subscription
        if self._checking == topic or subscription.topics == (topic,):
            return
        if self._checking or subscription:
            raise OtherSubscription
        self._checking = topic
        self._context.actor.pipe_to_self(
            self._context.catalogue.check(topic),
            on_value=lambda _found: TopicChecked(topic, None),
            on_error=lambda error: TopicChecked(topic, error),
        )

    def topic_checked(self, message: TopicChecked) -> None:
        """Subscribe to the topic, or fail the reads that wait for it. See :class:`TopicChecked`."""
        if message.topic != self._checking or self._context.closing:
            return
        self._checking = ""
        if message.error is not None:
            self._reads.fail_all(message.error)
        elif not self._context.state.subscription:
            self._start_subscribed(Subscription(topics=(message.topic,)), None)

    def subscribe(self, request: SubscribeTo) -> None:
        """See :class:`SubscribeTo`. Raises IllegalState."""
        wanted = Subscription(
            topics=tuple(sorted(set(request.topics))), pattern=request.pattern, allowed=request.allowed
        )
        state = self._context.state
        state.subscription.check_change(wanted)
        self._checking = ""
        if wanted == state.subscription:
            self._note_asked(state.subscription)
            return
        self._operations.check_room()
        self._note_asked(wanted)
        if wanted.pattern:
            before, state.subscription = state.subscription, wanted
            self._find_topics(wanted, before, self._context.take_reply())
        else:
            self._start_subscribed(wanted, self._context.take_reply())

    def _find_topics(
        self, wanted: Subscription, before: Subscription | None, reply: Future[Any] | None
    ) -> None:
        self._context.actor.pipe_to_self(
            self._context.catalogue.matching(TopicPattern(wanted.pattern)),
            on_value=lambda topics: PatternMatched(wanted, _allowed(wanted, topics), None, before, reply),
            on_error=lambda error: PatternMatched(wanted, (), error, before, reply),
        )

    def pattern_due(self) -> None:
        """See :class:`PatternDue`."""
        if self._context.state.subscription.pattern:
            self._find_topics(self._context.state.subscription, None, None)

    def pattern_matched(self, found: PatternMatched) -> None:
        """Subscribe to the topics that match, if they are not those of the last look. See :class:`PatternMatched`."""
        state, reply, error = self._context.state, found.reply, found.error
        if found.subscription is not state.subscription or self._context.closing:
            if reply is not None:
                reply.try_set(None)  # another request has replaced the subscription
            return
        if error is not None and self._changes.to_repeat() is found.subscription:
            why = error if isinstance(error, PixyError) else Unavailable(f"cannot look for topics: {error}")
            self._changes.failed(None, why)  # the next attempt looks again
            return
        self._context.actor.set_timer("pattern", _LOOK_EVERY, PatternDue())
        if error is None and reply is not None:
            try:
                self._operations.check_room()
            except PixyError as refused:
                error = refused
        if error is not None:
            if found.before is not None:
                self._changes.give_up(found.subscription)
            if reply is not None:
                reply.try_fail(error)
            return
        self._subscribe_matching(found)

    def _subscribe_matching(self, found: PatternMatched) -> None:
        subscription, topics, reads = found.subscription, found.topics, self._reads
        before, self._matched = self._matched, (subscription, topics)
        if found.before is None and before == self._matched:
            return
        if found.before is not None and set(topics) - set(found.before.topics):
            reads.assigned = False
        wanted = None if found.before is None else subscription
        self._changes.subscribe(topics, wanted, self._made_later(subscription, topics), found.reply)
        if not topics:
            reads.start_clocks()  # such a topic may never exist, so the reads do not wait for an assignment
        reads.look_again()
        reads.serve()

    def _made_later(self, subscription: Subscription, topics: tuple[str, ...]) -> tuple[str, ...]:
        """Return those of the topics that were made after the reader had subscribed to the pattern, be it during a restart."""
        state = self._context.state
        if subscription is not state.in_effect:
            return ()
        state.matched_first &= frozenset(topics)  # one that was missing and is there again was made again
        return tuple(topic for topic in topics if topic not in state.matched_first)

    def _start_subscribed(self, wanted: Subscription, reply: Future[Any] | None) -> None:
        state, reads = self._context.state, self._reads
        before, state.subscription = state.subscription, wanted
        if set(wanted.topics) - set(before.topics):
            reads.assigned = False
        self._changes.subscribe(wanted.topics, wanted, reply=reply)
        reads.look_again()
        reads.serve()

    def unsubscribe(self) -> None:
        """See :class:`Unsubscribe`."""
        context, reply = self._context, self._context.take_reply()
        if context.spec.auto_commit and context.positions.resuming:
            before = len(self._asked)
            self._offsets.after_resuming(lambda _error: self._unsubscribe_late(before, reply))
        else:
            self._unsubscribe(reply)

    def _note_asked(self, wanted: Subscription) -> None:
        if self._context.positions.resuming:
            self._asked.append(wanted)

    def _unsubscribe_late(self, before: int, reply: Future[Any]) -> None:
        """Carry out what has waited, unless its client has gone or a later request has asked for the present subscription.

        Args:
            before: the number of requests that came before.
            reply: to the request.
        """
        subscription = self._context.state.subscription
        if reply.done() or any(each is subscription for each in self._asked[before:]):
            reply.try_set(None)
        else:
            self._unsubscribe(reply)

    def _unsubscribe(self, reply: Future[Any]) -> None:
        context, reads = self._context, self._reads
        if context.closing:
            reply.try_fail(UnknownInstance())
            return
        self._operations.carry_out_postponed(given_up())
        self._checking = ""
        context.positions.confirm()
        context.positions.forget_earlier()
        context.state.met.clear()
        self._changes.clear()
        reads.fail_all(IllegalState("the subscription was deleted"))
        if context.session is None:
            reply.try_set(None)
            return
        # The Kafka client goes as well: one that has left a group cannot take partitions of its own.
        leaving = context.leave_group()
        self._drop(context.positions.partitions)
        reads.assigned = False
        reads.look_again()
        context.actor.pipe_to_self(leaving, on_value=lambda _left: Unsubscribed(reply))

    def get_subscription(self) -> list[str]:
        """See :class:`GetSubscription`."""
        subscription = self._context.state.subscription
        if subscription.pattern:
            return sorted({topic for topic, _ in self._context.positions.partitions})
        return list(subscription.topics)

    # -- manual assignments -----------------------------------------------------------------------

    def assign(self, request: AssignPartitions) -> None:
        """See :class:`AssignPartitions`. Raises IllegalState."""
        wanted = Subscription(partitions=tuple(sorted(set(request.partitions))))
        if not wanted:
            self.unsubscribe()
            return
        self._context.state.subscription.check_change(wanted)
        self._operations.check_room()
        self._note_asked(wanted)
        self._changes.assign(wanted, self._context.take_reply())
        self._reads.look_again()

    def _replace(self, starts: Mapping[TopicPartition, int], keep: Mapping[TopicPartition, int]) -> None:
        """Replace the assignment: exactly these partitions are assigned now, each from the given offset on.

        Those that the reader keeps are left alone: it may have read on since the session was told of its position.
        """
        positions, fetched = self._context.positions, self._reads.fetched
        before = positions.offsets
        kept = {each: starts[each] for each in keep if before.get(each, _NOWHERE) >= starts[each]}
        self._reads.keep(kept)
        fetched.drop(partition for partition in before if partition not in kept)
        positions.drop(partition for partition in before if partition not in starts)
        self.assigned(Assigned({each: start for each, start in starts.items() if each not in kept}))
        positions.forget_earlier()

    # -- the group's events -----------------------------------------------------------------------

    def assigned(self, event: Assigned) -> None:
        """See :class:`pixy.membership.instances.Assigned`."""
        if self._context.session is not None:
            self._context.session.heard(event)
        self._context.positions.assign(event.starts, event.new)
        self._reads.refusal = None
        self._reads.start_clocks()
        self._operations.carry_out_postponed()
        if event.new and self._context.spec.auto_commit:
            # At once: what is written from now on is the reader's, even if the instance ends before its next commit.
            self._offsets.auto_commit()
        self._reads.serve()

    def revoked(self, event: Revoked) -> None:
        """Give partitions up, after the commits that :meth:`Offsets.last_commits` finds."""
        commits = self._offsets.last_commits(event.partitions)
        self._drop(event.partitions)
        if self._context.session is not None:
            self._context.session.release(event, commits)

    def met(self, event: Met) -> None:
        """See :class:`pixy.membership.instances.Met`."""
        self._context.state.met.update(event.topics)
        self._context.positions.wait(event.late)

    def lost(self, event: Lost) -> None:
        """See :class:`pixy.membership.instances.Lost`."""
        self._drop(event.partitions)

    def refused(self, event: Refused) -> None:
        """See :class:`pixy.membership.instances.Refused`."""
        reads, error = self._reads, event.error
        if getattr(error, "code", None) in AUTH_CODES:
            reads.refusal = error
            reads.fail_first(error)
        elif isinstance(error, UnknownTopic) and not self._context.positions.partitions:
            reads.start_clocks()  # the topic may never exist, so the reads do not wait for an assignment
        reads.serve()

    def _drop(self, partitions: tuple[TopicPartition, ...] | list[TopicPartition]) -> None:
        self._context.positions.drop(partitions)
        self._reads.fetched.drop(partitions)
