"""A consumer instance of the REST API: the reader's place in a group, its waiting reads, its commits.

Nothing here waits: a read is parked with a deadline, what takes Kafka's time is a command to the
session that is answered by an event. So a delete, a commit or a seek is answered while a read waits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from actors import Actor, ActorRef, Future
from pixy.config.model import Proxy
from pixy.engine.instances.assignment import Consuming, TopicChecked, Unsubscribed
from pixy.engine.instances.context import Catalogue, Memory, Parts
from pixy.engine.instances.messages import (
    AssignPartitions,
    BatchSettled,
    CommitOffsets,
    CommitPositions,
    DeleteInstance,
    GetAssignment,
    GetCommitted,
    GetSubscription,
    InstanceLeaving,
    InstanceSpec,
    InstanceState,
    ReadRecords,
    SeekTo,
    SubscribeTo,
    Unsubscribe,
)
from pixy.engine.instances.offsets import Offsets, OffsetsFound
from pixy.engine.instances.operations import JoinDue, OperationAgain, OperationDue, Operations
from pixy.engine.instances.reads import Reads
from pixy.errors import FormatMismatch, IllegalState, PixyError, ShuttingDown, UnknownInstance
from pixy.kafka.consumer import Commit
from pixy.membership.instances import (
    Done,
    Failed,
    Gone,
    InstanceEvent,
    InstanceSession,
    Joined,
    Leaving,
    Ready,
    Trouble,
)
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")

SessionFactory = Callable[[Mapping[TopicPartition, int], Callable[[InstanceEvent], None]], InstanceSession]
"""From the offsets at which to resume and what to call with events."""
_Handlers = dict[type, Callable[[Any], Any]]


@dataclass(frozen=True, slots=True)
class CloseInstance:
    """From the registry: the service stops. The reply comes when the group is left."""


@dataclass(frozen=True, slots=True)
class _Event:
    life: object
    event: InstanceEvent


class _ReadsDue:
    pass


class _CommitDue:
    pass


class _CheckIdle:
    pass


class _Closed:
    pass


class Instance(Actor):
    """Child of :class:`pixy.engine.instances.registry.Instances`.

    Args:
        catalogue: what is there.
        memory: see :class:`Memory`; a new one for a new instance.
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
        memory: Memory,
    ) -> None:
        super().__init__()
        self._group, self._name, self._spec = group, name, spec
        self._conf = proxy.instances
        self._registry = registry
        self._make_session = make_session
        self._memory = memory
        self._resume = memory.book.begin_again()
        self._session: InstanceSession | None = None
        self._life: object = None
        self._last_used = 0.0
        self._closing = False
        self._waiting_for_end: list[Future[Any]] = []
        self._reads = Reads(self.actor_ref, spec, self._conf, memory.book, self._want)
        self._operations = Operations(self, self._conf)
        parts = Parts(
            self,
            spec,
            self._conf,
            memory,
            self._reads,
            self._operations,
            self._open,
            lambda: self._session,
            self._leave_group,
            self._serve,
            catalogue,
        )
        self._offsets = Offsets(parts)
        self._consuming = Consuming(parts)
        self._requests, self._others, self._events = self._handlers()

    def _handlers(self) -> tuple[_Handlers, _Handlers, _Handlers]:
        consuming, offsets, operations = self._consuming, self._offsets, self._operations
        requests: _Handlers = {
            ReadRecords: self._read,
            SubscribeTo: consuming.subscribe,
            Unsubscribe: consuming.unsubscribe,
            GetSubscription: consuming.get_subscription,
            AssignPartitions: consuming.assign,
            CommitPositions: offsets.commit_positions,
            GetAssignment: lambda _query: self._memory.book.partitions,
            CommitOffsets: offsets.commit_offsets,
            GetCommitted: offsets.get_committed,
            SeekTo: offsets.seek,
            DeleteInstance: self._delete,
        }
        others: _Handlers = {
            _Event: self._event,
            BatchSettled: self._settled,
            _ReadsDue: lambda _due: self._serve(),
            TopicChecked: consuming.topic_checked,
            Unsubscribed: consuming.unsubscribed,
            OffsetsFound: offsets.found,
            OperationDue: operations.due,
            OperationAgain: operations.again,
            JoinDue: operations.joined,
            _CommitDue: lambda _due: offsets.commit_by_itself(),
            _CheckIdle: self._check_idle,
            InstanceState: self._state,
            CloseInstance: self._close_for_good,
            _Closed: self._end,
        }
        events: _Handlers = {
            Ready: self._ready,
            Done: operations.done,
            Joined: consuming.joined,
            Leaving: consuming.leaving,
            Gone: consuming.gone,
            Trouble: consuming.trouble,
            Failed: self._failed,
        }
        return requests, others, events

    # -- life -------------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Begin to be idle; after a restart, consume what the life before did."""
        self._last_used = self._now()
        self.set_timer("idle", self._conf.idle_timeout, _CheckIdle())
        if self._spec.auto_commit:
            interval = self._conf.auto_commit_interval
            self.set_timer("commit", interval, _CommitDue(), every=interval)
        self._consuming.resume()

    async def on_stop(self) -> None:  # type: ignore[override]
        """Whatever the reason, the group is left."""
        self._refuse(ShuttingDown())
        await self._leave_group()

    async def on_failure(self, *_exc_info: Any) -> None:  # type: ignore[override]
        """The next life joins anew."""
        await self._leave_group()

    def on_receive(self, message: Any) -> Any:
        """See :mod:`pixy.engine.instances.messages`."""
        kind = type(message)
        handler = self._others.get(kind)
        if handler is not None:
            return handler(message)
        handler = self._requests.get(kind)
        if handler is None:
            return super().on_receive(message)
        self._last_used = self._now()
        try:
            if self._closing and kind is not DeleteInstance:
                raise UnknownInstance
            return handler(message)
        except PixyError as error:  # an answer, and nothing to log
            self.take_reply().try_fail(error)
            return None

    def _open(self) -> InstanceSession:
        # Only who consumes or commits has a session: it costs threads, connections and memory.
        if self._session is None:
            ref = self.actor_ref
            self._life = life = object()

            def post(event: InstanceEvent) -> None:
                ref.notify(_Event(life, event), urgent=True)

            self._session = self._make_session(self._resume, post)
        return self._session

    def _event(self, message: _Event) -> None:
        # Not what is left over from an earlier session, but for the outcome of a command.
        if message.life is self._life or type(message.event) is Done:
            self._events[type(message.event)](message.event)

    def _failed(self, event: Failed) -> None:
        raise event.error

    def _now(self) -> float:
        return self.system.loop.time()

    # -- reads ------------------------------------------------------------------------------------

    def _read(self, request: ReadRecords) -> None:
        if request.format is not None and request.format != self._spec.format:
            raise FormatMismatch
        if request.topic is not None:
            self._consuming.want_topic(request.topic)
        elif not self._memory.subscription:
            raise IllegalState("Consumer is not subscribed to any topics or assigned any partitions")
        reply = self.take_reply()
        try:
            self._reads.park(request, reply, self._now())
        except PixyError as error:
            reply.try_fail(error)
        self._serve()

    def _want(self, most: int, max_bytes: int, wait: bool) -> None:
        if self._session is not None:
            self._session.want(most, max_bytes, wait=wait)

    def _serve(self) -> None:
        if self._closing:
            return
        self._reads.serve(self._now())
        deadline = self._reads.next_deadline()
        if deadline is None:
            self.cancel_timer("reads")
        else:
            self.set_timer("reads", max(0.0, deadline - self._now()), _ReadsDue())

    def _settled(self, message: BatchSettled) -> None:
        self._last_used = self._now()
        self._reads.settled(message.batch, message.sent)
        self._serve()

    def _ready(self, event: Ready) -> None:
        self._reads.fetched(event.records, event.size)
        self._serve()

    # -- the end ----------------------------------------------------------------------------------

    def _state(self, _query: InstanceState) -> str:
        return "unused" if self._session is None else "waiting" if self._reads.busy else "idle"

    def _check_idle(self, _timer: _CheckIdle) -> None:
        busy = self._reads.busy or len(self._operations) > 0
        left = self._conf.idle_timeout - (0.0 if busy else self._now() - self._last_used)
        if left <= 0 and not self._closing:
            logger.info("%s: not used for %g s, it ends", self.path, self._conf.idle_timeout)
            self._close(UnknownInstance())
        else:
            self.set_timer("idle", max(left, 0.001), _CheckIdle())

    def _delete(self, _request: DeleteInstance) -> None:
        self._waiting_for_end.append(self.take_reply())
        self._close(UnknownInstance())

    def _close_for_good(self, _request: CloseInstance) -> None:
        self._waiting_for_end.append(self.take_reply())
        self._close(ShuttingDown())

    def _close(self, error: PixyError) -> None:
        if self._closing:
            return
        self._closing = True
        self._registry.notify(InstanceLeaving(self._group, self._name, self.actor_ref), urgent=True)
        self._refuse(error)
        self.pipe_to_self(self._leave_group(), on_value=lambda _left: _Closed())

    def _leave_group(self) -> Coroutine[Any, Any, None]:
        session, self._session = self._session, None
        self._life, self._resume = None, {}
        commits = self._memory.book.uncommitted() if self._spec.auto_commit else ()
        return _close(session, commits, self._conf.close_timeout)

    def _end(self, _closed: _Closed) -> None:
        for reply in self._waiting_for_end:
            reply.try_set(None)
        self._waiting_for_end.clear()
        self.stop()

    def _refuse(self, error: PixyError) -> None:
        self._reads.refuse(error)
        self._operations.refuse(error)


async def _close(session: InstanceSession | None, commits: tuple[Commit, ...], timeout: float) -> None:
    if session is not None:
        await session.close(commits, timeout)


__all__ = ["CloseInstance", "Instance", "Memory", "SessionFactory"]
