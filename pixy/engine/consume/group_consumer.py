"""This member of a consumer group: its subscription, its partitions, its waiting long polls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from actors import ESCALATE, ActorDeadError, ActorRef, Supervision, handles
from pixy.config.model import Proxy
from pixy.engine.consume.assignment import Assignment
from pixy.engine.consume.group_messages import (
    AckMessage,
    Consume,
    DrainOverdue,
    GroupLeaving,
    GroupStarted,
    Leave,
    Owned,
    PausesChanged,
    Rejoin,
    SessionClosed,
    Unused,
)
from pixy.engine.consume.long_polls import Poll, TopicPolls
from pixy.engine.consume.offset_committer import OffsetCommitter
from pixy.engine.consume.owned_partitions import OwnedPartitions
from pixy.engine.consume.owner_spawner import OwnerSpawner
from pixy.engine.consume.partition_messages import (
    Ack,
    PartitionDrained,
    Ready,
    Serve,
    TakeBack,
    Unserved,
)
from pixy.engine.consume.rejoining import RejoiningSession, SessionFactory
from pixy.engine.consume.releases import Releases
from pixy.engine.consume.subscriptions import (
    PollsDue,
    Recheck,
    Subscribe,
    SubscriptionDue,
    Subscriptions,
    TopicFound,
    TopicLookup,
)
from pixy.engine.consume.views import GroupView, ViewGroup, ViewMessage, ViewOffers, ViewPartition
from pixy.engine.counters import GroupCounters
from pixy.engine.journal.buffer import Journal
from pixy.engine.restarting import Restartable
from pixy.errors import NotConsumed, PartitionLost, PixyError, ShuttingDown, TooManyRequests
from pixy.kafka.consumer import Commit
from pixy.membership import Assigned, Committed, Event, Fetched, Lost, Revoked, SessionFailed
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")

_LEAVE_TIMEOUT = 10.0
"""Seconds for the last commit and the departure; a coordinator that does not answer must not hold up a stop."""
_DRAIN_GRACE = 0.25
"""Seconds beyond ``drain_timeout`` for an owner's report. A session waits for longer: half a second."""


class _Begin:
    """The first message of a life: an event that is handled before it comes from an earlier life."""


_EVENTS = (Assigned, Committed, Fetched, Lost, Revoked, SessionFailed)


class GroupConsumer(Restartable):
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
        counters: of the group; they outlive this actor.
        paused: whether an operator has paused one of the group's partitions.
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
        counters: GroupCounters | None = None,
        paused: Callable[[TopicPartition], bool] = lambda _partition: False,
    ) -> None:
        super().__init__()
        self._paused = paused
        self._counters = counters or GroupCounters()
        self._group = group
        self._journal = journal
        self._conf = proxy.consumer
        self._cluster = cluster
        self._session_factory = session_factory
        self._lookup = lookup
        self._session: RejoiningSession
        self._committer: ActorRef[OffsetCommitter]
        self._spawner: OwnerSpawner
        self._subscriptions: Subscriptions
        self._partitions: OwnedPartitions
        self._releases: Releases
        self._leaving = False
        self._closings = 0
        """Calls of the session's ``close`` that have not returned: one more may come, with further positions."""
        self._leave_error: PixyError | None = None
        self._leave_replies: list[Any] = []

    def on_start(self) -> None:
        """Open the session; it joins the group with the first topic."""
        self.become(self._before_begin)
        self.actor_ref.tell(_Begin(), urgent=True)
        self._session = RejoiningSession(self._session_factory, self._group, self._post)
        self._committer = self.spawn(
            OffsetCommitter,
            self._session,
            self._conf.offsets_commit_interval,
            self._conf.offsets_refresh_interval if self._conf.membership == "zookeeper" else None,
            self._counters,
            name="committer",
            supervision=ESCALATE,
        )
        self._subscriptions = Subscriptions(self, self, self._session, self._conf, self._lookup)
        self._spawner = OwnerSpawner(
            self,
            self._group,
            self._conf,
            lambda: self._session.present,
            self._committer,
            self._journal,
            self._counters,
        )
        self._partitions = OwnedPartitions(
            self._spawner.spawn,
            self._subscriptions.withdraw,
            self._committer,
            self._all_drained,
            self._paused,
        )
        self._releases = Releases(self._session, self._partitions, lambda: self.cancel_timer("release"))
        self._cluster.notify(GroupStarted(self._group), urgent=True)
        self.set_timer("unused", self._conf.subscription_timeout, Unused())
        try:
            self._session.reopen()
        except PixyError as error:
            self._post(SessionFailed(error))

    async def on_stop(self) -> None:  # type: ignore[override]
        """Commit and leave the group, whatever the reason of the stop."""
        self._refuse(tuple(self._subscriptions.drain()), ShuttingDown())
        self._session.mute()
        await self._session.close(self._partitions.positions(), _LEAVE_TIMEOUT)

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """Commit what was acknowledged, because the next life begins there, and leave the group."""
        if hasattr(self, "_session"):
            commits = self._partitions.positions() if hasattr(self, "_partitions") else ()
            self._session.mute()
            await self._session.close(commits, _LEAVE_TIMEOUT)

    def _post(self, event: Event) -> None:
        self.actor_ref.notify(event, urgent=True)

    def _before_begin(self, message: Any) -> Any:
        """Ignore what an earlier life's session had posted: its partitions are not this life's."""
        if isinstance(message, _Begin):
            self.unbecome()
        elif not isinstance(message, _EVENTS):
            return self.on_receive(message)
        return None

    # -- requests ---------------------------------------------------------------------------------

    @handles(Consume)
    def _consume(self, request: Consume) -> None:
        if request.ack is not None:
            owner = self._partitions.get((request.topic, request.ack[0]))
            if owner is not None:
                owner.tell(Ack(request.ack[1]), urgent=True)
            elif request.stray is not None:
                request.stray()
        reply = self.take_reply()
        if self._leaving:
            reply.try_fail(self._leave_error or ActorDeadError(f"{self.path} is leaving"))
            return
        full = len(self._subscriptions) >= self._conf.max_topics
        if full and self._subscriptions.get(request.topic) is None:
            reply.try_fail(TooManyRequests("consumer.max_topics"))
            return
        if self._subscriptions.get(request.topic) is None:
            self._subscriptions.open(request.topic, joined=self._partitions.announce_again(request.topic))
        polls = self._subscriptions.open(request.topic)
        if len(polls) >= self._conf.channel_buffer_size:
            polls.prune()
            if len(polls) >= self._conf.channel_buffer_size:
                reply.try_fail(TooManyRequests())
                return
        polls.add(reply, request.auto_ack, self._now(), request.client)
        self._dispatch(request.topic, polls)

    @handles(AckMessage)
    def _ack(self, request: AckMessage) -> None:
        partition = (request.topic, request.partition)
        reply = self.take_reply()
        owner = self._partitions.get(partition)
        if owner is not None:
            owner.forward(Ack(request.offset), reply, urgent=True)
            return
        self._spawner.note_refused(partition, request.offset)
        if self._partitions.was_released(partition):
            reply.try_fail(PartitionLost(self._group, *partition))
        else:
            reply.try_fail(NotConsumed(self._group, *partition))

    @handles(Owned)
    def _owned(self, _query: Owned) -> dict[str, list[int]]:
        return self._partitions.by_topic()

    @handles(ViewGroup)
    def _view(self, _query: ViewGroup) -> GroupView:
        failure = self._subscriptions.failure
        return GroupView(
            self._group,
            self._subscriptions.views(),
            self._partitions.views(),
            "" if failure is None else str(failure),
            self._leaving,
        )

    @handles(ViewPartition)
    def _view_partition(self, query: ViewPartition) -> None:
        self._forward(query, ViewOffers(query.after, query.limit))

    @handles(ViewMessage)
    def _view_message(self, query: ViewMessage) -> None:
        self._forward(query, query)

    @handles(PausesChanged)
    def _pauses_changed(self, _message: PausesChanged) -> tuple[TopicPartition, ...]:
        return self._partitions.pause_or_resume()

    @handles(TakeBack)
    def _take_back(self, request: TakeBack) -> None:
        self._forward(request, request)

    def _forward(
        self, query: ViewPartition | ViewMessage | TakeBack, message: ViewOffers | ViewMessage | TakeBack
    ) -> None:
        """Let the owner of a partition reply."""
        reply = self.take_reply()
        owner = self._partitions.get((query.topic, query.partition))
        if owner is None:
            reply.try_fail(NotConsumed(self._group, query.topic, query.partition))
        else:
            owner.forward(message, reply, urgent=True)

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
        self._partitions.fetched(event)

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
            # Without an error of our own the client asks again, and gets the group's next life.
            self._refuse(message.polls, self._leave_error or ActorDeadError(f"{self.path} is leaving"))
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
        # In ZooKeeper some partitions come while the hand-over of others is under way.
        self._releases.give_up((start.topic, start.partition) for start in event.partitions)
        for start in event.partitions:
            self._partitions.add(Assignment(start, self._now()))
            logger.info("%s: got %s/%d at %d", self.path, start.topic, start.partition, start.position)
        self._counters.assigned += len(event.partitions)
        self._counters.rebalanced(self._now())
        self._subscriptions.joined()

    @handles(Revoked)
    def _revoked(self, event: Revoked) -> None:
        self._counters.revoked += len(event.partitions)
        self._releases.begin(event)
        self._drain(event.partitions, self._conf.drain_timeout, "release")

    def _drain(self, partitions: tuple[TopicPartition, ...], timeout: float, why: str = "drain") -> None:
        self.set_timer(why, timeout + _DRAIN_GRACE, DrainOverdue(partitions))
        self._partitions.drain(partitions, timeout)
        self._releases.release_drained()

    @handles(DrainOverdue)
    def _drain_overdue(self, message: DrainOverdue) -> None:
        self._partitions.end_drains(message.partitions)
        self._releases.release_drained()

    @handles(Lost)
    def _lost(self, event: Lost) -> None:
        logger.warning("%s: lost %s", self.path, list(event.partitions))
        self._counters.lost += len(event.partitions)
        self._partitions.lose(event.partitions)
        self._releases.release_drained()

    @handles(PartitionDrained)
    def _partition_drained(self, message: PartitionDrained) -> None:
        self._partitions.owner_drained(message)
        self._releases.release_drained()

    def _all_drained(self, commits: list[Commit]) -> None:
        self.cancel_timer("drain")
        self._releases.release(commits)
        if self._leaving or self._subscriptions.failure is not None:
            self._closings += 1
            closing = self._session.close(commits, _LEAVE_TIMEOUT)
            # Whoever cancels the wait for it: the session goes on closing.
            self.pipe_to_self(
                closing, on_value=lambda _closed: SessionClosed(), on_error=lambda _cancelled: SessionClosed()
            )

    @handles(Committed)
    def _committed(self, event: Committed) -> None:
        self._committer.tell(event, urgent=True)

    @handles(SessionFailed)
    def _session_failed(self, event: SessionFailed) -> None:
        """Commit and leave, then join again after a pause, until it succeeds."""
        logger.error("%s: cannot consume: %s", self.path, event.error)
        self._counters.session_failures += 1
        self._subscriptions.failure = event.error
        self._releases.forget()
        self._drain(tuple(self._partitions), 0.0)

    @handles(Rejoin)
    def _rejoin(self, _message: Rejoin) -> None:
        self._subscriptions.failure = None
        try:
            self._session.reopen()
        except PixyError as error:
            self._session_failed(SessionFailed(error))
            return
        # A session that fails, or is given up, may leave a commit without an answer.
        self._committer.tell(Committed(None, {}), urgent=True)

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
    def _subscription_due(self, message: SubscriptionDue) -> None:
        self._subscriptions.check_idle(message.topic)

    def count_pending(self, topic: str) -> int:
        """See :class:`pixy.engine.consume.subscriptions.Group`."""
        return self._partitions.count_pending(topic)

    def topic_expired(self, topic: str) -> None:
        """See :class:`pixy.engine.consume.subscriptions.Group`."""
        self._counters.subscription_expired(topic, self._partitions.count_pending(topic), self._now())

    def last_topic_expired(self) -> None:
        """See :class:`pixy.engine.consume.subscriptions.Group`."""
        self._begin_leaving(None)

    # -- leaving ----------------------------------------------------------------------------------

    @handles(Unused)
    def _unused(self, _message: Unused) -> None:
        """Stop if nobody has asked for a topic: a group that was restarted has lost its topics."""
        if not len(self._subscriptions):
            self._begin_leaving(None)

    @handles(Leave)
    def _leave(self, request: Leave) -> None:
        self._leave_replies.append(self.take_reply())
        self._begin_leaving(ShuttingDown() if request.stopping else None)

    def _begin_leaving(self, error: PixyError | None) -> None:
        self._leave_error = self._leave_error or error
        if self._leaving:
            return
        self._leaving = True
        self.cancel_timer("rejoin")
        self._cluster.notify(GroupLeaving(self._group), urgent=True)
        self._subscriptions.closed = True
        why = error or ActorDeadError(f"{self.path} is leaving")
        self._refuse(tuple(self._subscriptions.drain()), why)
        self._drain(tuple(self._partitions), self._conf.drain_timeout)

    @handles(SessionClosed)
    def _closed(self, _message: SessionClosed) -> None:
        self._closings = max(0, self._closings - 1)
        if self._closings:
            return
        if not self._leaving:
            pause = self._session.failed(self._now(), self.system.rng)
            logger.warning("%s: joins again in %.1f s", self.path, pause)
            self.set_timer("rejoin", pause, Rejoin())
            return
        for reply in self._leave_replies:
            reply.try_set(None)
        self._leave_replies.clear()
        self.stop()

    def _now(self) -> float:
        return self.system.loop.time()


__all__ = ["GroupConsumer", "SessionFactory"]
