"""This member of a consumer group: its subscription, its partitions, its waiting long polls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import ESCALATE, Actor, ActorDeadError, ActorRef, Supervision, handles
from pixy.config.model import Proxy
from pixy.engine.consume.group_messages import AckMessage, Consume, GroupLeaving, Leave, Owned
from pixy.engine.consume.long_polls import Poll, TopicPolls
from pixy.engine.consume.offset_committer import OffsetCommitter
from pixy.engine.consume.owned_partitions import OwnedPartitions
from pixy.engine.consume.partition_messages import Ack, PartitionDrained, Ready, Records, Serve, Unserved
from pixy.engine.consume.partition_owner import Assignment, PartitionOwner
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
from pixy.errors import NotConsumed, PartitionLost, PixyError, ShuttingDown, TooManyRequests
from pixy.kafka.consumer import Commit
from pixy.membership import Assigned, Committed, Event, Fetched, Lost, Revoked, Session, SessionFailed

logger = logging.getLogger("pixy.engine")

_LEAVE_TIMEOUT = 10.0

SessionFactory = Callable[[str, Callable[[Event], None]], Session]
"""Opens the session of a group; the second argument takes its events."""


@dataclass(frozen=True, slots=True)
class _Left:
    """The session is closed."""


class GroupConsumer(Actor):
    """Child of the cluster; parent of the committer and of one owner per partition.

    :class:`~pixy.engine.consume.subscriptions.Subscriptions` keeps the topics and their long polls,
    :class:`~pixy.engine.consume.owned_partitions.OwnedPartitions` the owners; this actor brings the two
    together.

    Args:
        group: the group's name.
        proxy: the cluster's configuration.
        cluster: gets :class:`~pixy.engine.consume.group_messages.GroupLeaving`.
        session_factory: opens the session of a group.
        lookup: finds a topic's number of partitions.
        journal: notes what happens to each message; None for no journal.
    """

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
        self._session: Session
        self._committer: ActorRef[OffsetCommitter]
        self._subscriptions: Subscriptions
        self._partitions: OwnedPartitions
        self._revoking = False
        self._leaving = False
        self._leave_error: PixyError | None = None
        self._leave_replies: list[Any] = []

    def on_start(self) -> None:
        """Open the session; it joins the group with the first topic."""
        self._session = self._session_factory(self._group, self._post)
        self._committer = self.spawn(
            OffsetCommitter,
            self._session,
            self._conf.offsets_commit_interval,
            name="committer",
            supervision=ESCALATE,
        )
        self._subscriptions = Subscriptions(self, self, self._session, self._conf, self._lookup)
        self._partitions = OwnedPartitions(
            self._spawn_owner,
            self._subscriptions.withdraw,
            self._committer,
            self._conf.drain_timeout,
            self._all_drained,
        )

    async def on_stop(self) -> None:  # type: ignore[override]
        """Leave the group, whatever the reason of the stop."""
        self._refuse(tuple(self._subscriptions.drain()), ShuttingDown())
        await self._session.close((), _LEAVE_TIMEOUT)

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """Leave the group; the next life joins anew."""
        if hasattr(self, "_session"):
            await self._session.close((), _LEAVE_TIMEOUT)

    def _post(self, event: Event) -> None:
        self.actor_ref.notify(event, urgent=True)

    # -- requests ---------------------------------------------------------------------------------

    @handles(Consume)
    def _consume(self, request: Consume) -> None:
        if request.ack is not None:
            owner = self._partitions.get((request.topic, request.ack[0]))
            if owner is not None:
                owner.tell(Ack(request.ack[1]), urgent=True)
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
        self._dispatch(request.topic, polls)

    @handles(AckMessage)
    def _ack(self, request: AckMessage) -> None:
        partition = (request.topic, request.partition)
        reply = self.take_reply()
        owner = self._partitions.get(partition)
        if owner is not None:
            owner.forward(Ack(request.offset), reply, urgent=True)
            return
        journal = self._journal_of(request.topic)
        if journal is not None:
            stream = Stream(*partition, self._group)
            code = int(Refusal.NOT_OWNED)
            journal.add(int(Kind.ACK_REFUSED), self._now(), stream, request.offset, code=code)
        if self._partitions.was_released(partition):
            reply.try_fail(PartitionLost(self._group, *partition))
        else:
            reply.try_fail(NotConsumed(self._group, *partition))

    @handles(Owned)
    def _owned(self, _query: Owned) -> dict[str, list[int]]:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(self._partitions):
            owned.setdefault(topic, []).append(partition)
        return owned

    # -- dispatch ---------------------------------------------------------------------------------

    def _dispatch(self, topic: str, polls: TopicPolls) -> None:
        """Hand requests to owners that have messages; see to it that the others time out."""
        if polls.ready:
            for partition, served in polls.assign(self._now()).items():
                owner = self._partitions.get((topic, partition))
                assert owner is not None, f"{topic}/{partition} is ready and has no owner"
                owner.tell(Serve(tuple(served)), urgent=True)
        if len(polls):
            self._subscriptions.watch(topic, polls)

    @handles(Fetched)
    def _fetched(self, event: Fetched) -> None:
        for partition, (epoch, records) in event.batches.items():
            owner = self._partitions.get(partition)
            if owner is not None:
                owner.tell(Records(epoch, records), urgent=True)

    @handles(Ready)
    def _ready(self, message: Ready) -> None:
        topic, partition = message.partition
        if message.restarted:
            self._partitions.owner_restarted(message.partition)
        polls = self._subscriptions.get(topic)
        if polls is None or not self._partitions.serves(message.partition, message.epoch):
            return
        if message.restarted:
            polls.ready.remove(partition)
        polls.ready.announce(partition, message.messages)
        self._dispatch(topic, polls)

    @handles(Unserved)
    def _unserved(self, message: Unserved) -> None:
        topic = message.partition[0]
        polls = self._subscriptions.get(topic)
        if polls is None or self._leaving:
            self._refuse(message.polls, ShuttingDown())
            return
        polls.put_back(message.polls)
        self._dispatch(topic, polls)

    @staticmethod
    def _refuse(polls: tuple[Poll, ...], error: Exception) -> None:
        for poll in polls:
            poll.reply.try_fail(error)

    # -- partitions -------------------------------------------------------------------------------

    @handles(Assigned)
    def _assigned(self, event: Assigned) -> None:
        for start in event.partitions:
            self._partitions.add(Assignment(start))
            logger.info("%s: got %s/%d at %d", self.path, start.topic, start.partition, start.position)
        self._subscriptions.joined()

    def _spawn_owner(self, assignment: Assignment) -> ActorRef[PartitionOwner]:
        topic, partition = assignment.partition
        return self.spawn(
            PartitionOwner,
            assignment,
            self._group,
            self.actor_ref,
            self._committer,
            self._session,
            self._conf,
            self._journal_of(topic),
            name=self.free_name(f"{topic}.{partition}"),
        )

    def _journal_of(self, topic: str) -> Journal | None:
        # Journalling the reads of the journal topic would write to it, and so on for ever.
        return None if self._journal is None or topic == self._journal.topic else self._journal

    @handles(Revoked)
    def _revoked(self, event: Revoked) -> None:
        self._revoking = True
        if not self._leaving:  # else all partitions drain already
            self._partitions.drain(event.partitions)

    @handles(Lost)
    def _lost(self, event: Lost) -> None:
        logger.warning("%s: lost %s", self.path, list(event.partitions))
        self._partitions.lose(event.partitions)

    @handles(PartitionDrained)
    def _partition_drained(self, message: PartitionDrained) -> None:
        self._partitions.owner_drained(message)

    def _all_drained(self, commits: list[Commit]) -> None:
        if self._revoking:
            self._revoking = False
            self._session.release(commits)
        if self._leaving:
            self.pipe_to_self(
                self._session.close(commits, _LEAVE_TIMEOUT),
                on_value=lambda _closed: _Left(),
                on_error=_raise,
            )

    @handles(Committed)
    def _committed(self, event: Committed) -> None:
        self._committer.tell(event, urgent=True)

    @handles(SessionFailed)
    def _session_failed(self, event: SessionFailed) -> None:
        raise event.error

    # -- subscriptions ----------------------------------------------------------------------------

    @handles(TopicFound)
    def _topic_found(self, message: TopicFound) -> None:
        self._subscriptions.found(message)

    @handles(Recheck)
    def _recheck(self, message: Recheck) -> None:
        self._subscriptions.recheck(message.topic)

    @handles(Subscribe)
    def _subscribe(self, _message: Subscribe) -> None:
        self._subscriptions.subscribe()

    @handles(PollsDue)
    def _polls_due(self, message: PollsDue) -> None:
        self._subscriptions.expire_polls(message.topic)

    @handles(SubscriptionDue)
    async def _subscription_due(self, message: SubscriptionDue) -> None:
        await self._subscriptions.check_idle(message.topic)

    async def count_pending(self, topic: str) -> int:
        """See :class:`pixy.engine.consume.subscriptions.Group`."""
        return await self._partitions.count_pending(topic)

    def last_topic_expired(self) -> None:
        """See :class:`pixy.engine.consume.subscriptions.Group`."""
        self._begin_leaving(None)

    # -- leaving ----------------------------------------------------------------------------------

    @handles(Leave)
    def _leave(self, _request: Leave) -> None:
        self._leave_replies.append(self.take_reply())
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
        self._partitions.drain(tuple(self._partitions))

    @handles(_Left)
    def _left(self, _message: _Left) -> None:
        for reply in self._leave_replies:
            reply.try_set(None)
        self._leave_replies.clear()
        self.stop()

    def _now(self) -> float:
        return self.system.loop.time()


def _raise(error: BaseException) -> Any:
    raise error


__all__ = ["GroupConsumer", "SessionFactory"]
