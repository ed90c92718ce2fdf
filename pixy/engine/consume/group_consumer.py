"""A consumer group on this instance: its subscription, its partitions, its waiting long polls."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import ESCALATE, Actor, ActorDeadError, ActorRef, Supervision
from pixy.config.model import Proxy
from pixy.engine.consume.group_messages import AckMessage, Consume, GroupLeaving, Leave, Owned
from pixy.engine.consume.long_polls import Poll, TopicPolls
from pixy.engine.consume.offset_committer import Forget, OffsetCommitter, to_commit
from pixy.engine.consume.offset_tracker import Position
from pixy.engine.consume.partition_owner import (
    Ack,
    Assignment,
    CountPending,
    DrainPartition,
    PartitionDrained,
    PartitionOwner,
    Ready,
    Records,
    Serve,
    Unserved,
)
from pixy.engine.consume.subscriptions import (
    PollsDue,
    Recheck,
    Subscribe,
    SubscriptionDue,
    Subscriptions,
    TopicFound,
    TopicLookup,
)
from pixy.engine.journal.buffer import Journal, Kind, Refusal, Stream
from pixy.errors import (
    NotConsumed,
    PartitionLost,
    PixyError,
    ShuttingDown,
    TooManyRequests,
)
from pixy.membership import (
    Assigned,
    Committed,
    Event,
    Fetched,
    Lost,
    Revoked,
    Session,
    SessionFailed,
)
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")

_LEAVE_TIMEOUT = 10.0

SessionFactory = Callable[[str, Callable[[Event], None]], Session]


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
        self,
        group: str,
        proxy: Proxy,
        cluster: ActorRef[Any],
        session_factory: SessionFactory,
        lookup: TopicLookup,
        journal: Journal | None = None,
    ) -> None:
        super().__init__()
        self._group = group
        self._journal = journal
        self._conf = proxy.consumer
        self._cluster = cluster
        self._session_factory = session_factory
        self._lookup = lookup
        self._subscriptions: Subscriptions
        self._session: Session
        self._committer: ActorRef[OffsetCommitter]
        self._owners: dict[TopicPartition, _Owner] = {}
        self._lost: set[TopicPartition] = set()
        self._draining: dict[TopicPartition, int] = {}
        self._drained: dict[TopicPartition, Position] = {}
        self._revoking = False
        self._leaving = False
        self._leave_error: PixyError | None = None
        self._leave_reply: list[Any] = []
        self._handlers = {
            Consume: self._consume,
            Fetched: self._fetched,
            Ready: self._ready,
            AckMessage: self._ack,
            Unserved: self._unserved,
            Assigned: self._assigned,
            Revoked: self._revoke,
            PartitionDrained: self._owner_drained,
            Lost: self._lose,
            Committed: self._committed,
            SessionFailed: self._failed,
            Owned: self._owned,
            Leave: self._leave,
            _Left: self._left,
        }

    def on_start(self) -> None:
        """Open the session; it joins with the first topic."""
        self._session = self._session_factory(self._group, self._post)
        topics = self._subscriptions = Subscriptions(self, self, self._session, self._conf, self._lookup)
        self._handlers.update(
            {
                TopicFound: topics.found,
                Recheck: topics.recheck,
                Subscribe: topics.subscribe,
                PollsDue: topics.polls_due,
                SubscriptionDue: topics.due,
            }
        )
        self._committer = self.spawn(
            OffsetCommitter,
            self._session,
            self._conf.offsets_commit_interval,
            name="committer",
            supervision=ESCALATE,
        )

    async def on_stop(self) -> None:  # type: ignore[override]
        """Whatever the reason, the group is left."""
        self._refuse(tuple(self._subscriptions.drain()), ShuttingDown())
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
        self.actor_ref.notify(event, urgent=True)

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
        polls = self._subscriptions.open(request.topic)
        if len(polls) >= self._conf.channel_buffer_size:
            polls.prune()
            if len(polls) >= self._conf.channel_buffer_size:
                reply.try_fail(TooManyRequests())
                return
        polls.add(reply, request.auto_ack, self._now())
        if polls.ready:
            self._dispatch(request.topic, polls)
        if len(polls):
            self._subscriptions.watch(request.topic, polls)

    def _ack(self, request: AckMessage) -> None:
        partition = (request.topic, request.partition)
        reply = self.take_reply()
        owner = self._owners.get(partition)
        if owner is not None:
            owner.ref.forward(Ack(request.offset), reply, urgent=True)
            return
        if self._journal is not None and request.topic != self._journal.topic:
            self._journal.add(
                int(Kind.ACK_REFUSED),
                self._now(),
                Stream(*partition, self._group),
                request.offset,
                code=int(Refusal.NOT_OWNED),
            )
        if partition in self._lost:
            reply.try_fail(PartitionLost(self._group, *partition))
        else:
            reply.try_fail(NotConsumed(self._group, *partition))

    def _dispatch(self, topic: str, polls: TopicPolls) -> None:
        for partition, served in polls.assign(self._now()).items():
            self._owners[topic, partition].ref.tell(Serve(tuple(served)), urgent=True)

    def _ready(self, message: Ready) -> None:
        topic, partition = message.partition
        owner = self._owners.get(message.partition)
        polls = self._subscriptions.get(topic)
        if owner is not None and message.reborn and message.partition in self._draining:
            # The life that was to drain is over; without this its group would wait for ever.
            owner.ref.tell(DrainPartition(self._conf.drain_timeout), urgent=True)
        if (
            owner is None
            or polls is None
            or message.partition in self._draining
            or owner.assignment.start.epoch != message.epoch
        ):
            return
        if message.reborn:
            polls.ready.remove(partition)
        polls.ready.announce(partition, message.messages)
        if len(polls):
            self._dispatch(topic, polls)

    def _unserved(self, message: Unserved) -> None:
        topic = message.partition[0]
        polls = self._subscriptions.get(topic)
        if polls is None or self._leaving:
            self._refuse(message.polls, ShuttingDown())
            return
        polls.put_back(message.polls)
        if polls.ready:
            self._dispatch(topic, polls)
        if len(polls):
            self._subscriptions.watch(topic, polls)

    @staticmethod
    def _refuse(polls: tuple[Poll, ...], error: Exception) -> None:
        for poll in polls:
            poll.reply.try_fail(error)

    # -- partitions -----------------------------------------------------------------------------

    def _assigned(self, event: Assigned) -> None:
        for start in event.partitions:
            assignment = Assignment(start)
            partition = assignment.partition
            self._lost.discard(partition)
            ref = self.spawn(
                PartitionOwner,
                assignment,
                self._group,
                self.actor_ref,
                self._committer,
                self._session,
                self._conf,
                self._journal_of(start.topic),
                name=self.free_name(f"{start.topic}.{start.partition}"),
            )
            self._owners[partition] = _Owner(ref, assignment)
            logger.info("%s: got %s/%d at %d", self.path, *partition, start.position)
        self._subscriptions.joined()

    def _journal_of(self, topic: str) -> Journal | None:
        # Whoever reads the journal through the proxy would make more of it to read.
        return None if self._journal is None or topic == self._journal.topic else self._journal

    def _fetched(self, event: Fetched) -> None:
        for partition, (epoch, records) in event.batches.items():
            owner = self._owners.get(partition)
            if owner is not None:
                owner.ref.tell(Records(epoch, records), urgent=True)

    def _revoke(self, event: Revoked) -> None:
        self._revoking = True
        if not self._leaving:
            self._drain(event.partitions)

    def _drain(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            owner = self._owners.get(partition)
            if owner is None or partition in self._draining or partition in self._drained:
                continue
            self._stop_serving(partition)
            self._draining[partition] = owner.assignment.start.epoch
            owner.ref.tell(DrainPartition(self._conf.drain_timeout), urgent=True)
        if not self._draining:
            self._all_drained()

    def _stop_serving(self, partition: TopicPartition) -> None:
        polls = self._subscriptions.get(partition[0])
        if polls is not None:
            polls.ready.remove(partition[1])
            polls.ready.restart()

    def _owner_drained(self, message: PartitionDrained) -> None:
        if self._draining.get(message.partition) != message.epoch:
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
            self.pipe_to_self(
                self._session.close(commits, _LEAVE_TIMEOUT),
                on_value=lambda _closed: _Left(),
                on_error=_raise,
            )

    def _lose(self, event: Lost) -> None:
        logger.warning("%s: lost %s", self.path, list(event.partitions))
        for partition in event.partitions:
            self._draining.pop(partition, None)
        self._let_go(event.partitions)

    def _let_go(self, partitions: tuple[TopicPartition, ...]) -> None:
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

    async def count_pending(self, topic: str) -> int:
        """See :class:`pixy.engine.consume.subscriptions.Owner`."""
        pending = 0
        for partition, owner in tuple(self._owners.items()):
            if partition[0] == topic:
                with contextlib.suppress(ActorDeadError):
                    pending += await owner.ref.ask(CountPending(), block=False)
        return pending

    def nothing_left(self) -> None:
        """See :class:`pixy.engine.consume.subscriptions.Owner`."""
        self._begin_leaving(None)

    def _leave(self, _request: Leave) -> None:
        self._leave_reply.append(self.take_reply())
        self._begin_leaving(ShuttingDown())

    def _begin_leaving(self, error: PixyError | None) -> None:
        self._leave_error = self._leave_error or error
        if self._leaving:
            return
        self._leaving = True
        self._cluster.notify(GroupLeaving(self._group), urgent=True)
        self._subscriptions.closed = True
        self._refuse(
            tuple(self._subscriptions.drain()),
            error or ActorDeadError(f"{self.path} is leaving"),
        )
        self._drain(tuple(self._owners))

    def _left(self, _message: _Left) -> None:
        for reply in self._leave_reply:
            reply.try_set(None)
        self._leave_reply.clear()
        self.stop()

    def _now(self) -> float:
        return self.system.loop.time()


def _raise(error: BaseException) -> Any:
    raise error


__all__ = [
    "AckMessage",
    "Consume",
    "GroupConsumer",
    "GroupLeaving",
    "Leave",
    "Owned",
]
