"""A consumer instance of the REST API: a reader's membership of a group, its reads, its commits.

The actor never waits: a read waits in a queue with a deadline, and a command to Kafka is answered by
an event of the session. So a delete, a commit or a seek is answered while a read waits.

The parts, each of which calls only those below it; events and results come back as messages::

    Instance       receives messages, decides when the instance ends
    Assignment     subscriptions, manual assignments, the group's rebalances
    Changes        what is in effect, and changes of it that are under way
    Offsets        commits, committed offsets, seeks
    Reads          waiting reads and fetched records
    Operations     the commands that wait for Kafka
    Context        the session, the settings, and the state that survives a restart
"""

from __future__ import annotations

import logging
from typing import Any

from actors import Actor, ActorRef, Future, handles
from pixy.config.model import Proxy
from pixy.engine.instances.assignment import (
    Assignment,
    PatternDue,
    PatternMatched,
    TopicChecked,
    Unsubscribed,
)
from pixy.engine.instances.changes import RepeatDue
from pixy.engine.instances.context import (
    Catalogue,
    Context,
    ReaderState,
    SessionEvent,
    SessionFactory,
)
from pixy.engine.instances.messages import (
    AssignPartitions,
    BatchSettled,
    CloseInstance,
    CommitOffsets,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetCommitted,
    GetInstanceState,
    GetSubscription,
    InstanceClosing,
    InstanceRequest,
    InstanceSpec,
    ReadRecords,
    SeekTo,
    SubscribeTo,
    Unsubscribe,
)
from pixy.engine.instances.offsets import Offsets, OffsetsFound
from pixy.engine.instances.operations import AssignmentDue, OperationDue, OperationRetry, Operations
from pixy.engine.instances.reads import Reads, ReadsDue
from pixy.errors import FormatMismatch, IllegalState, PixyError, ShuttingDown, UnknownInstance
from pixy.membership.instances import Assigned, Done, Fetched, Lost, Met, Refused, Revoked, SessionFailed
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


class _CommitDue:
    pass


class _CheckIdle:
    pass


class _GroupLeft:
    pass


class Instance(Actor):
    """Child of :class:`pixy.engine.instances.registry.Instances`.

    Args:
        group: the id of its group.
        name: unique in the group.
        spec: how it was created.
        proxy: the configuration of the cluster.
        registry: hears when the instance stops taking requests.
        make_session: called when a session is first needed.
        catalogue: looks up topics and offsets.
        state: a new one for a new instance; a restarted one gets it back.
    """

    def __init__(
        self,
        group: str,
        name: str,
        spec: InstanceSpec,
        proxy: Proxy,
        registry: ActorRef[Any],
        make_session: SessionFactory,
        catalogue: Catalogue,
        state: ReaderState,
    ) -> None:
        super().__init__()
        self._group, self._name, self._spec = group, name, spec
        self._conf = proxy.instances
        self._registry = registry
        self._last_used = 0.0
        self._waiting_for_end: list[Future[Any]] = []
        self._context = Context(self, spec, self._conf, state, catalogue, make_session)
        self._operations = Operations(self._context)
        self._reads = Reads(self._context)
        self._offsets = Offsets(self._context, self._operations, self._reads)
        self._assignment = Assignment(self._context, self._operations, self._reads, self._offsets)

    def on_start(self) -> None:
        """Start the timers. After a restart, consume the same topics or partitions again."""
        self._last_used = self._context.now()
        self.set_timer("idle", self._conf.idle_timeout, _CheckIdle())
        if self._spec.auto_commit:
            interval = self._conf.auto_commit_interval
            self.set_timer("commit", interval, _CommitDue(), every=interval)
        self._assignment.resume()

    async def on_stop(self) -> None:  # type: ignore[override]
        """Leave the group, whatever the reason of the stop."""
        self._context.closing = True
        self._fail_all(ShuttingDown())
        await self._context.leave_group()

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """Leave the group; the restarted actor joins it anew."""
        await self._context.leave_group()

    def on_receive(self, message: Any) -> Any:
        """Unwrap events of the session, and answer requests with the PixyError that they raise."""
        if isinstance(message, SessionEvent):
            # An earlier session's events are stale, except the results of commands.
            if self._context.is_current(message) or type(message.event) is Done:
                return super().on_receive(message.event)
            return None
        if not isinstance(message, InstanceRequest):
            return super().on_receive(message)
        self._last_used = self._context.now()
        try:
            if self._context.closing and not isinstance(message, DeleteInstance):
                raise UnknownInstance
            return super().on_receive(message)
        except PixyError as error:  # an answer, so nothing is logged
            self.take_reply().try_fail(error)
            return None

    # -- reads ------------------------------------------------------------------------------------

    @handles(ReadRecords)
    def _read(self, request: ReadRecords) -> None:
        if request.format is not None and request.format != self._spec.format:
            raise FormatMismatch
        if request.topic is not None:
            self._assignment.want_topic(request.topic)
        elif not self._context.state.subscription:
            raise IllegalState("Consumer is not subscribed to any topics or assigned any partitions")
        self._context.positions.confirm()
        reply = self.take_reply()
        try:
            self._reads.add(request, reply)
        except PixyError as error:
            reply.try_fail(error)
        self._reads.serve()

    @handles(BatchSettled)
    def _batch_settled(self, message: BatchSettled) -> None:
        self._last_used = self._context.now()
        self._reads.settle(message.batch, message.sent)
        self._reads.serve()

    @handles(ReadsDue)
    def _reads_due(self, _timer: ReadsDue) -> None:
        self._reads.serve()

    @handles(Fetched)
    def _fetched(self, event: Fetched) -> None:
        self._reads.add_fetched(event.records, event.size)
        self._reads.serve()

    # -- subscriptions and assignments ------------------------------------------------------------

    @handles(SubscribeTo)
    def _subscribe(self, request: SubscribeTo) -> None:
        self._assignment.subscribe(request)

    @handles(TopicChecked)
    def _topic_checked(self, message: TopicChecked) -> None:
        self._assignment.topic_checked(message)

    @handles(PatternMatched)
    def _pattern_matched(self, message: PatternMatched) -> None:
        self._assignment.pattern_matched(message)

    @handles(PatternDue)
    def _pattern_due(self, _timer: PatternDue) -> None:
        self._assignment.pattern_due()

    @handles(RepeatDue)
    def _repeat_due(self, _timer: RepeatDue) -> None:
        self._assignment.repeat()

    @handles(GetSubscription)
    def _get_subscription(self, _query: GetSubscription) -> list[str]:
        return self._assignment.get_subscription()

    @handles(Unsubscribe)
    def _unsubscribe(self, _request: Unsubscribe) -> None:
        self._assignment.unsubscribe()

    @handles(Unsubscribed)
    def _unsubscribed(self, message: Unsubscribed) -> None:
        self._operations.session_ended()
        message.reply.try_set(None)

    @handles(AssignPartitions)
    def _assign(self, request: AssignPartitions) -> None:
        self._assignment.assign(request)

    @handles(GetAssignment)
    def _get_assignment(self, _query: GetAssignment) -> list[TopicPartition]:
        return self._context.positions.partitions

    @handles(Assigned)
    def _assigned(self, event: Assigned) -> None:
        self._assignment.assigned(event)

    @handles(Revoked)
    def _revoked(self, event: Revoked) -> None:
        self._assignment.revoked(event)

    @handles(Met)
    def _met(self, event: Met) -> None:
        self._assignment.met(event)

    @handles(Lost)
    def _lost(self, event: Lost) -> None:
        self._assignment.lost(event)

    @handles(Refused)
    def _refused(self, event: Refused) -> None:
        self._assignment.refused(event)

    # -- offsets ----------------------------------------------------------------------------------

    @handles(CommitPositions)
    def _commit_positions(self, _request: CommitPositions) -> None:
        self._offsets.commit_positions()

    @handles(CommitOffsets)
    def _commit_offsets(self, request: CommitOffsets) -> None:
        self._offsets.commit_offsets(request)

    @handles(_CommitDue)
    def _commit_due(self, _timer: _CommitDue) -> None:
        self._offsets.auto_commit()

    @handles(GetCommitted)
    def _get_committed(self, request: GetCommitted) -> None:
        self._offsets.get_committed(request)

    @handles(SeekTo)
    def _seek(self, request: SeekTo) -> None:
        self._offsets.seek(request)

    @handles(AssignmentDue)
    def _assignment_due(self, _timer: AssignmentDue) -> None:
        self._offsets.assignment_due()

    @handles(OffsetsFound)
    def _offsets_found(self, message: OffsetsFound) -> None:
        self._offsets.offsets_found(message)

    # -- commands ---------------------------------------------------------------------------------

    @handles(Done)
    def _done(self, event: Done) -> None:
        self._operations.done(event)

    @handles(OperationRetry)
    def _operation_retry(self, timer: OperationRetry) -> None:
        self._operations.retry(timer.token)

    @handles(OperationDue)
    def _operation_due(self, timer: OperationDue) -> None:
        self._operations.due(timer.token)

    # -- the end ----------------------------------------------------------------------------------

    @handles(GetInstanceState)
    def _get_state(self, _query: GetInstanceState) -> str:
        return "unused" if self._context.session is None else "waiting" if self._reads.busy else "idle"

    @handles(SessionFailed)
    def _session_failed(self, event: SessionFailed) -> None:
        raise event.error

    @handles(_CheckIdle)
    def _check_idle(self, _timer: _CheckIdle) -> None:
        busy = self._reads.busy or len(self._operations) > 0
        left = self._conf.idle_timeout - (0.0 if busy else self._context.now() - self._last_used)
        if left <= 0 and not self._context.closing:
            logger.info("%s: unused for %g s, closing", self.path, self._conf.idle_timeout)
            self._close(UnknownInstance())
        else:
            self.set_timer("idle", max(left, 0.001), _CheckIdle())

    @handles(DeleteInstance)
    def _delete(self, _request: DeleteInstance) -> None:
        context, reply = self._context, self.take_reply()
        if self._spec.auto_commit and context.positions.resuming and not context.closing:
            self._offsets.after_resuming(lambda _error: self._end(reply))
        else:
            self._end(reply)

    def _end(self, reply: Future[Any]) -> None:
        self._waiting_for_end.append(reply)
        if not self._context.closing:
            self._context.positions.confirm()
        self._close(UnknownInstance())

    @handles(CloseInstance)
    def _close_instance(self, _request: CloseInstance) -> None:
        self._waiting_for_end.append(self.take_reply())
        self._close(ShuttingDown())

    def _close(self, error: PixyError) -> None:
        if self._context.closing:
            return
        self._context.closing = True
        self._registry.notify(InstanceClosing(self._group, self._name, self.actor_ref), urgent=True)
        self._fail_all(error)
        self.pipe_to_self(self._context.leave_group(), on_value=lambda _left: _GroupLeft())

    @handles(_GroupLeft)
    def _group_left(self, _message: _GroupLeft) -> None:
        for reply in self._waiting_for_end:
            reply.try_set(None)
        self._waiting_for_end.clear()
        self.stop()

    def _fail_all(self, error: PixyError) -> None:
        self._reads.fail_all(error)
        self._operations.carry_out_postponed(error)  # seeks fail: the instance has no assignment
        self._operations.fail_all(error)


__all__ = ["Instance"]
