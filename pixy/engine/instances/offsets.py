"""An instance's offsets: commits, committed offsets, seeks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from actors import Future
from pixy.engine.instances.context import Context
from pixy.engine.instances.messages import CommitOffsets, GetCommitted, Progress, SeekTo
from pixy.engine.instances.operations import Operation, Operations, Postponed, given_up
from pixy.engine.instances.positions import Positions
from pixy.engine.instances.reads import Reads
from pixy.errors import PixyError, Unavailable, UnknownInstance
from pixy.kafka.consumer import Commit
from pixy.membership.instances import InstanceSession, not_assigned
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


@dataclass(frozen=True, slots=True)
class OffsetsFound:
    """To the instance: the offsets at the times of a seek, or why they could not be looked up."""

    request: SeekTo
    reply: Future[Any]
    offsets: Mapping[TopicPartition, int]
    error: BaseException | None


@dataclass(slots=True)
class _CommitOffsets(Operation):
    """Commits what a client has named, whosever the partitions are."""

    what = "commit"
    outlives_session = True
    positions: Positions
    commits: tuple[Commit, ...]

    def send(self, session: InstanceSession, token: int) -> None:
        session.commit(token, self.commits)

    def succeed(self, value: tuple[Commit, ...]) -> Any:
        self.positions.committed(value)


@dataclass(slots=True)
class _CommitPositions(Operation):
    """Commits what was handed out before the request. What is left of it then: see :meth:`Positions.still_valid`."""

    what = "commit"
    outlives_session = True
    positions: Positions
    commits: tuple[Commit, ...]
    epochs: Mapping[TopicPartition, int]

    @property
    def left(self) -> tuple[Commit, ...]:
        return self.positions.still_valid(self.commits, self.epochs)

    def send(self, session: InstanceSession, token: int) -> None:
        session.commit(token, self.commits, assigned_only=True)

    def again(self) -> bool:
        self.commits = self.left
        return bool(self.commits)

    def succeed(self, value: tuple[Commit, ...]) -> Progress:
        self.positions.committed(value)
        return self.positions.progress()


@dataclass(slots=True)
class _AutoCommit(Operation):
    """Commits the confirmed positions, in each attempt the present ones."""

    what = "commit"
    outlives_session = True
    positions: Positions
    path: str
    repeat: Callable[[], None]
    asked_again: bool = False
    """True if another automatic commit was due meanwhile."""

    def send(self, session: InstanceSession, token: int) -> None:
        session.commit(token, self.positions.confirmed(), assigned_only=True)

    def again(self) -> bool:
        self.asked_again = False
        return bool(self.positions.confirmed())

    def succeed(self, value: tuple[Commit, ...]) -> None:
        self.positions.committed(value)
        self._repeat()

    def fail(self, error: PixyError) -> None:
        logger.warning("%s: commit failed, will retry: %s", self.path, error)
        self._repeat()

    def _repeat(self) -> None:
        if self.asked_again:
            self.repeat()


@dataclass(slots=True)
class _GetCommitted(Operation):
    what = "the committed offsets"
    outlives_session = True
    partitions: tuple[TopicPartition, ...]

    def send(self, session: InstanceSession, token: int) -> None:
        session.committed(token, self.partitions)

    def succeed(self, value: Any) -> Any:
        return value


@dataclass(slots=True)
class Seek(Operation):
    """Moves the reader's positions once the session has moved its own."""

    what = "seek"
    positions: Positions
    reads: Reads
    offsets: Mapping[TopicPartition, int]

    def send(self, session: InstanceSession, token: int) -> None:
        session.seek(token, self.offsets)

    def succeed(self, _value: Any) -> None:
        self.positions.seek(self.offsets)
        self.reads.fetched.drop(self.offsets)
        self.reads.serve()


class Offsets:
    """Answers the requests about offsets."""

    def __init__(self, context: Context, operations: Operations, reads: Reads) -> None:
        self._context = context
        self._operations = operations
        self._reads = reads

    # -- commits ----------------------------------------------------------------------------------

    def commit_positions(self) -> None:
        """See :class:`CommitPositions`."""
        context = self._context
        if context.positions.resuming:
            self._operations.check_room()
            self.after_resuming(partial(self._commit_late, context.take_reply()))
        else:
            self._commit_positions(context.take_reply(), None)

    def _commit_late(self, reply: Future[Any], error: PixyError | None) -> None:
        """Carry out what has waited, unless a DELETE of the subscription, which has waited as well, commits the positions now."""
        if error is None and self._context.session is None and not self._context.closing:
            error = given_up()
        self._commit_positions(reply, error)

    def _commit_positions(self, reply: Future[Any], error: PixyError | None) -> None:
        positions = self._context.positions
        if self._context.closing:
            error = error or UnknownInstance()  # no session is opened any more
        if error is not None:
            reply.try_fail(error)
        elif commits := positions.uncommitted():
            self._operations.begin(_CommitPositions(positions, commits, positions.epochs()), reply)
        else:
            reply.try_set(positions.progress())

    def after_resuming(self, carry_out: Callable[[PixyError | None], None]) -> None:
        """Let a request wait until the reader's positions of before a restart can be committed.

        Args:
            carry_out: see :class:`Postponed`.
        """
        positions = self._context.positions
        self._operations.postpone(Postponed(carry_out, lambda: not positions.resuming))

    def auto_commit(self) -> None:
        """Commit the confirmed positions; if this fails, the next automatic commit repeats it.

        One at a time: one that is due while another is under way follows it.
        """
        context = self._context
        if under_way := self._operations.under_way(_AutoCommit):
            under_way[0].asked_again = True
        elif context.positions.confirmed() and context.session is not None:
            self._operations.begin(_AutoCommit(context.positions, context.actor.path, self.auto_commit))

    def last_commits(self, partitions: Collection[TopicPartition]) -> tuple[Commit, ...]:
        """Return the commits to make before partitions are given back: those that are still under way, and, with
        automatic commits, the confirmed positions.

        Args:
            partitions: those that are about to go.
        """
        positions = self._context.positions
        asked = [
            each for operation in self._operations.under_way(_CommitPositions) for each in operation.left
        ]
        found: dict[TopicPartition, Commit] = {}
        for each in (*asked, *(positions.confirmed() if self._context.spec.auto_commit else ())):
            partition = each.topic, each.partition
            # All are of the same assignment and of the time since the last seek, so the highest is the latest.
            if partition in partitions and (partition not in found or found[partition].offset < each.offset):
                found[partition] = each
        return tuple(found[partition] for partition in sorted(found))

    def commit_offsets(self, request: CommitOffsets) -> None:
        """See :class:`CommitOffsets`."""
        context = self._context
        self._operations.begin(_CommitOffsets(context.positions, request.commits), context.take_reply())

    def get_committed(self, request: GetCommitted) -> None:
        """See :class:`GetCommitted`."""
        self._operations.begin(_GetCommitted(request.partitions), self._context.take_reply())

    # -- seeks ------------------------------------------------------------------------------------

    def seek(self, request: SeekTo) -> None:
        """See :class:`SeekTo`. Raises IllegalState."""
        if not self._context.state.subscription:
            raise not_assigned(next(iter((*request.offsets, *request.times))))
        reply = self._context.take_reply()
        if self._reads.assigned:
            self._look_up(request, reply)
        else:
            waiting = Postponed(lambda _error: self._look_up(request, reply), lambda: True)
            self._operations.postpone(waiting)

    def assignment_due(self) -> None:
        """See :class:`AssignmentDue`."""
        self._operations.carry_out_postponed(Unavailable("the consumer instance is restarting, try again"))
        if self._reads.assigned:
            self._context.positions.resuming = False  # others have its partitions now

    def _look_up(self, request: SeekTo, reply: Future[Any]) -> None:
        if self._fail_unassigned((*request.offsets, *request.times), reply):
            return
        if not request.times:
            self.offsets_found(OffsetsFound(request, reply, {}, None))
            return
        # A broker answers the requests of a connection in order, and the session's connections hold a
        # fetch that waits for records. So the catalogue looks the times up over its own.
        self._context.actor.pipe_to_self(
            self._context.catalogue.find(request.times),
            on_value=lambda offsets: OffsetsFound(request, reply, offsets, None),
            on_error=lambda error: OffsetsFound(request, reply, {}, error),
        )

    def offsets_found(self, message: OffsetsFound) -> None:
        """Tell the session to seek. See :class:`OffsetsFound`."""
        if message.error is not None:
            message.reply.try_fail(message.error)
            return
        if self._context.closing:
            message.reply.try_fail(UnknownInstance())
            return
        offsets = {**message.request.offsets, **message.offsets}
        if not self._fail_unassigned(offsets, message.reply):
            seek = Seek(self._context.positions, self._reads, offsets)
            self._operations.begin(seek, message.reply)

    def _fail_unassigned(self, partitions: Iterable[TopicPartition], reply: Future[Any]) -> bool:
        missing = [partition for partition in partitions if partition not in self._context.positions]
        if missing:
            reply.try_fail(not_assigned(missing[0]))
        return bool(missing)
