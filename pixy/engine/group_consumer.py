"""A consumer group on this instance: its subscription, its partitions, its waiting long polls."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from actors import ESCALATE, Actor, ActorDeadError, ActorRef, Supervision
from pixy.config.model import Proxy
from pixy.engine.offset_committer import Forget, OffsetCommitter, to_commit
from pixy.engine.partition_owner import (
    Ack,
    Assignment,
    CountPending,
    Drain,
    Drained,
    PartitionOwner,
    Ready,
    Records,
    Serve,
    Unserved,
)
from pixy.engine.polls import Poll, TopicPolls
from pixy.engine.tracker import Position
from pixy.errors import (
    LongPollTimeout,
    NotConsumed,
    PartitionLost,
    PixyError,
    ShuttingDown,
    TooManyRequests,
)
from pixy.kafka.consumer import Partition
from pixy.membership import (
    Assigned,
    Committed,
    Event,
    Fetched,
    Lost,
    Revoking,
    Session,
    SessionFailed,
)

logger = logging.getLogger("pixy.engine")

_EXPIRY_CHECK = 0.1
_LEAVE_TIMEOUT = 10.0

SessionFactory = Callable[[str, Callable[[Event], None]], Session]
TopicLookup = Callable[[str], Awaitable[int | None]]
"""The number of a topic's partitions; None if there is no such topic; raises PixyError."""


@dataclass(frozen=True, slots=True)
class Consume:
    """A long poll. The reply is a :class:`pixy.engine.polls.Delivery`, or the error to answer.

    ``ack`` is a message consumed earlier, as (partition, offset); whether it could be acknowledged
    never changes the reply.
    """

    topic: str
    auto_ack: bool = False
    ack: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class AckMessage:
    """Acknowledge one message. The reply is None, or the reason why not."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Owned:
    """Ask which partitions this instance owns: topic to sorted partitions."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Drain, commit, leave the group; the reply comes when that is done."""


@dataclass(frozen=True, slots=True)
class GroupLeaving:
    """To the cluster: this group takes no more requests and will stop."""

    group: str


@dataclass(frozen=True, slots=True)
class _TopicFound:
    topic: str
    partitions: int | None
    error: PixyError | None = None


@dataclass(frozen=True, slots=True)
class _Recheck:
    topic: str


@dataclass(frozen=True, slots=True)
class _Subscribe:
    pass


@dataclass(frozen=True, slots=True)
class _PollsDue:
    topic: str


@dataclass(frozen=True, slots=True)
class _SubscriptionDue:
    topic: str


@dataclass(frozen=True, slots=True)
class _Left:
    pass


class _Owner:
    __slots__ = ("assignment", "ref")

    def __init__(self, ref: ActorRef[PartitionOwner], assignment: Assignment) -> None:
        self.ref = ref
        self.assignment = assignment


class GroupConsumer(Actor):
    """Child of the cluster; parent of the committer and of one owner per partition."""

    supervision = Supervision()

    def __init__(
        self, group: str, proxy: Proxy, cluster: ActorRef[Any], session_factory: SessionFactory,
        lookup: TopicLookup,
    ) -> None:
        super().__init__()
        self._group = group
        self._conf = proxy.consumer
        self._cluster = cluster
        self._session_factory = session_factory
        self._lookup = lookup
        self._session: Session
        self._committer: ActorRef[OffsetCommitter]
        self._topics: dict[str, TopicPolls] = {}
        self._subscribed: dict[str, int] = {}
        self._owners: dict[Partition, _Owner] = {}
        self._lost: set[Partition] = set()
        self._draining: dict[Partition, int] = {}
        self._drained: dict[Partition, Position] = {}
        self._revoking = False
        self._leaving = False
        self._leave_error: PixyError | None = None
        self._leave_reply: list[Any] = []
        self._handlers = {
            Consume: self._consume, Fetched: self._fetched, Ready: self._ready,
            AckMessage: self._ack, Unserved: self._unserved, Assigned: self._assigned,
            Revoking: self._revoke, Drained: self._owner_drained, Lost: self._lose,
            Committed: self._committed, SessionFailed: self._failed, _TopicFound: self._found,
            _Recheck: self._recheck, _Subscribe: self._subscribe, _PollsDue: self._polls_due,
            _SubscriptionDue: self._subscription_due, Owned: self._owned, Leave: self._leave,
            _Left: self._left,
        }

    def on_start(self) -> None:
        """Open the session; it joins with the first topic."""
        self._session = self._session_factory(self._group, self._post)
        self._committer = self.spawn(
            OffsetCommitter, self._session, self._conf.offsets_commit_interval,
            name="committer", supervision=ESCALATE,
        )

    async def on_stop(self) -> None:  # type: ignore[override]
        """Whatever the reason, the group is left."""
        self._refuse_waiting(ShuttingDown())
        await self._session.close((), _LEAVE_TIMEOUT)

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """The next life joins anew."""
        if hasattr(self, "_session"):
            await self._session.close((), _LEAVE_TIMEOUT)

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module, of the owners and of the session."""
        handler = self._handlers.get(type(message))
        return handler(message) if handler is not None else super().on_receive(message)  # type: ignore[operator]

    def _post(self, event: Event) -> None:
        with contextlib.suppress(ActorDeadError):
            self.actor_ref.tell(event, urgent=True)

    # -- requests -------------------------------------------------------------------------------

    def _consume(self, request: Consume) -> None:
        if request.ack is not None:
            owner = self._owners.get((request.topic, request.ack[0]))
            if owner is not None:
                owner.ref.tell(Ack(request.ack[1]), urgent=True)
        reply = self.take_reply()
        if self._leaving:
            reply.try_fail(self._leave_error or ActorDeadError(f"{self.path} is leaving"))
            return
        polls = self._topics.get(request.topic)
        if polls is None:
            polls = self._open(request.topic)
        if len(polls) >= self._conf.channel_buffer_size:
            polls.prune()
            if len(polls) >= self._conf.channel_buffer_size:
                reply.try_fail(TooManyRequests())
                return
        polls.add(reply, request.auto_ack, self._now())
        if polls.ready:
            self._dispatch(request.topic, polls)
        if len(polls):
            self._watch_polls(request.topic, polls)

    def _ack(self, request: AckMessage) -> None:
        partition = (request.topic, request.partition)
        reply = self.take_reply()
        owner = self._owners.get(partition)
        if owner is not None:
            owner.ref.forward(Ack(request.offset), reply, urgent=True)
        elif partition in self._lost:
            reply.try_fail(PartitionLost(self._group, *partition))
        else:
            reply.try_fail(NotConsumed(self._group, *partition))

    def _dispatch(self, topic: str, polls: TopicPolls) -> None:
        for partition, served in polls.assign(self._now()).items():
            self._owners[topic, partition].ref.tell(Serve(tuple(served)), urgent=True)

    def _ready(self, message: Ready) -> None:
        topic, partition = message.partition
        owner = self._owners.get(message.partition)
        polls = self._topics.get(topic)
        if (
            owner is None or polls is None or message.partition in self._draining
            or owner.assignment.start.fence != message.fence
        ):
            return
        if message.reborn:
            polls.ready.remove(partition)
        polls.ready.announce(partition, message.messages)
        if len(polls):
            self._dispatch(topic, polls)

    def _unserved(self, message: Unserved) -> None:
        topic = message.partition[0]
        polls = self._topics.get(topic)
        if polls is None or self._leaving:
            self._refuse(message.polls, ShuttingDown())
            return
        polls.put_back(message.polls)
        if polls.ready:
            self._dispatch(topic, polls)
        if len(polls):
            self._watch_polls(topic, polls)

    def _watch_polls(self, topic: str, polls: TopicPolls) -> None:
        key = ("polls", topic)
        deadline = polls.next_deadline()
        if deadline is not None and not self.has_timer(key):
            self.set_timer(key, max(0.0, deadline - self._now()), _PollsDue(topic))

    def _polls_due(self, due: _PollsDue) -> None:
        polls = self._topics.get(due.topic)
        if polls is None:
            return
        for poll in polls.expire(self._now()):
            poll.reply.try_fail(LongPollTimeout())
        self._watch_polls(due.topic, polls)

    def _refuse_waiting(self, error: Exception) -> None:
        for polls in self._topics.values():
            self._refuse(tuple(polls.drain()), error)

    @staticmethod
    def _refuse(polls: tuple[Poll, ...], error: Exception) -> None:
        for poll in polls:
            poll.reply.try_fail(error)

    # -- subscription ---------------------------------------------------------------------------

    def _open(self, topic: str) -> TopicPolls:
        polls = TopicPolls(self._conf.long_polling_timeout, self._conf.join_timeout)
        self._topics[topic] = polls
        self.start_task(self._look_up(topic))
        self.set_timer(
            ("subscription", topic), self._conf.subscription_timeout, _SubscriptionDue(topic)
        )
        return polls

    async def _look_up(self, topic: str) -> None:
        try:
            found = _TopicFound(topic, await self._lookup(topic))
        except PixyError as error:
            found = _TopicFound(topic, None, error)
        self._tell_self(found)

    def _found(self, found: _TopicFound) -> None:
        polls = self._topics.get(found.topic)
        if polls is None or self._leaving:
            return
        if found.partitions:
            polls.found()
            self._subscribed[found.topic] = found.partitions
            if not self.has_timer("subscribe"):
                # The first topic joins at once; a change is a rebalance, so others are gathered.
                delay = 0.0 if len(self._subscribed) == 1 else self._conf.rebalance_delay
                self.set_timer("subscribe", delay, _Subscribe())
            return
        if found.error is not None:
            logger.warning("%s: looking up topic %s: %s", self.path, found.topic, found.error)
        else:
            polls.missing = True
            polls.start_waiting(self._now())
            self.cancel_timer(("polls", found.topic))
            self._watch_polls(found.topic, polls)
        self.set_timer(
            ("recheck", found.topic), self._conf.retry_backoff, _Recheck(found.topic)
        )

    def _recheck(self, check: _Recheck) -> None:
        if check.topic in self._topics:
            self.start_task(self._look_up(check.topic))

    def _subscribe(self, _message: _Subscribe) -> None:
        self._session.subscribe(self._subscribed)

    async def _subscription_due(self, due: _SubscriptionDue) -> None:
        polls = self._topics.get(due.topic)
        if polls is None or self._leaving:
            return
        idle = self._now() - polls.last_request
        left = self._conf.subscription_timeout - idle
        if len(polls):
            left = max(left, _EXPIRY_CHECK)
        elif left <= 0:
            pending = 0
            for partition, owner in tuple(self._owners.items()):
                if partition[0] == due.topic:
                    pending += await owner.ref.ask(CountPending(), block=False)
            if pending and idle > self._conf.ack_timeout:
                logger.warning(
                    "%s: Stopping unsafely, some messages can be consumed more than once: %s, %d "
                    "not acknowledged", self.path, due.topic, pending,
                )
                pending = 0
            if not pending and not len(polls):
                self._unsubscribe(due.topic)
                return
            left = _EXPIRY_CHECK
        self.set_timer(("subscription", due.topic), left, due)

    def _unsubscribe(self, topic: str) -> None:
        logger.info("%s: subscription to %s expired", self.path, topic)
        del self._topics[topic]
        self._subscribed.pop(topic, None)
        self.cancel_timer(("recheck", topic))
        self.cancel_timer(("polls", topic))
        if self._topics:
            self._session.subscribe(self._subscribed)
        else:
            self._begin_leaving(None)

    # -- partitions -----------------------------------------------------------------------------

    def _assigned(self, event: Assigned) -> None:
        for start in event.starts:
            assignment = Assignment(start)
            partition = assignment.partition
            self._lost.discard(partition)
            ref = self.spawn(
                PartitionOwner, assignment, self._group, self.actor_ref, self._committer,
                self._session, self._conf, name=self.free_name(f"{start.topic}.{start.partition}"),
            )
            self._owners[partition] = _Owner(ref, assignment)
            logger.info("%s: got %s/%d at %d", self.path, *partition, start.position)
        now = self._now()
        for topic in self._subscribed:
            polls = self._topics.get(topic)
            if polls is None:
                continue
            polls.ready.restart()
            if not polls.joined:
                polls.joined = True
                polls.start_waiting(now)
                self.cancel_timer(("polls", topic))
                self._watch_polls(topic, polls)

    def _fetched(self, event: Fetched) -> None:
        for partition, (fence, records) in event.batches.items():
            owner = self._owners.get(partition)
            if owner is not None:
                owner.ref.tell(Records(fence, records), urgent=True)

    def _revoke(self, event: Revoking) -> None:
        self._revoking = True
        if not self._leaving:
            self._drain(event.partitions)

    def _drain(self, partitions: tuple[Partition, ...]) -> None:
        for partition in partitions:
            owner = self._owners.get(partition)
            if owner is None or partition in self._draining or partition in self._drained:
                continue
            self._stop_serving(partition)
            self._draining[partition] = owner.assignment.start.fence
            owner.ref.tell(Drain(self._conf.drain_timeout), urgent=True)
        if not self._draining:
            self._all_drained()

    def _stop_serving(self, partition: Partition) -> None:
        polls = self._topics.get(partition[0])
        if polls is not None:
            polls.ready.remove(partition[1])
            polls.ready.restart()

    def _owner_drained(self, message: Drained) -> None:
        if self._draining.get(message.partition) != message.fence:
            return
        del self._draining[message.partition]
        self._drained[message.partition] = message.position
        if not self._draining:
            self._all_drained()

    def _all_drained(self) -> None:
        commits = [to_commit(*item) for item in self._drained.items()]
        partitions = tuple(self._drained)
        self._drained.clear()
        self._let_go(partitions)
        if self._revoking:
            self._revoking = False
            self._session.release(commits)
        if self._leaving:
            self.start_task(self._close(commits))

    async def _close(self, commits: list[Any]) -> None:
        await self._session.close(commits, _LEAVE_TIMEOUT)
        self._tell_self(_Left())

    def _lose(self, event: Lost) -> None:
        logger.warning("%s: lost %s", self.path, list(event.partitions))
        for partition in event.partitions:
            self._draining.pop(partition, None)
        self._let_go(event.partitions)

    def _let_go(self, partitions: tuple[Partition, ...]) -> None:
        if not partitions:
            return
        self._committer.tell(Forget(partitions), urgent=True)
        for partition in partitions:
            self._stop_serving(partition)
            owner = self._owners.pop(partition, None)
            if owner is not None:
                self._lost.add(partition)
                # Normal lane: what was sent before is still handled.
                owner.ref.stop(block=False)

    def _committed(self, event: Committed) -> None:
        self._committer.tell(event, urgent=True)

    def _failed(self, event: SessionFailed) -> None:
        raise event.error

    # -- the end --------------------------------------------------------------------------------

    def _owned(self, _query: Owned) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._owners):
            owned.setdefault(topic, []).append(partition)
        return owned

    def _leave(self, _request: Leave) -> None:
        self._leave_reply.append(self.take_reply())
        self._begin_leaving(ShuttingDown())

    def _begin_leaving(self, error: PixyError | None) -> None:
        self._leave_error = self._leave_error or error
        if self._leaving:
            return
        self._leaving = True
        with contextlib.suppress(ActorDeadError):
            self._cluster.tell(GroupLeaving(self._group), urgent=True)
        self._refuse_waiting(error or ActorDeadError(f"{self.path} is leaving"))
        self._drain(tuple(self._owners))

    def _left(self, _message: _Left) -> None:
        for reply in self._leave_reply:
            reply.try_set(None)
        self._leave_reply.clear()
        self.stop()

    def _tell_self(self, message: Any) -> None:
        with contextlib.suppress(ActorDeadError):
            self.actor_ref.tell(message, urgent=True)

    def _now(self) -> float:
        return self.system.loop.time()


__all__ = [
    "AckMessage", "Consume", "GroupConsumer", "GroupLeaving", "Leave", "Owned",
]
