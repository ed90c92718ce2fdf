"""The commands that wait for Kafka, each with its reply and its deadline."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from actors import Future
from pixy.engine.instances.context import Context
from pixy.errors import IllegalState, KafkaError, PixyError, TooManyRequests
from pixy.kafka.errors import REBALANCE_IN_PROGRESS, timed_out
from pixy.membership.instances import Done, InstanceSession

_RETRY_AFTER = 0.1
_tokens = itertools.count(1)  # shared by all instances: a restarted one never takes an old result for its own


class Operation:
    """A command to the session, and the changes that its result makes. Subclasses fill this in."""

    __slots__ = ()

    what: ClassVar[str]
    """Names the command in errors."""
    outlives_session: ClassVar[bool] = False
    """True if its result counts after its session was given up, because it is Kafka's and not the session's."""

    def send(self, session: InstanceSession, token: int) -> None:
        """Give the command to the session. Called again if the command meets a rebalance.

        Args:
            session: the one that was open when the operation began.
            token: identifies the result.
        """
        raise NotImplementedError

    def again(self) -> bool:
        """Prepare to be sent again. Returns whether there is anything left to do."""
        return True

    def succeed(self, value: Any) -> Any:
        """Apply the result, even if the reply has timed out. Returns the reply."""
        return None

    def fail(self, error: PixyError) -> None:
        """Undo what the command prepared."""


@dataclass(frozen=True, slots=True)
class OperationDue:
    """To the instance, from a timer: an operation has reached its deadline."""

    token: int


@dataclass(frozen=True, slots=True)
class OperationRetry:
    """To the instance, from a timer: repeat an operation that met a rebalance."""

    token: int


@dataclass(frozen=True, slots=True)
class AssignmentDue:
    """To the instance, from a timer: the group's assignment takes too long to wait for."""


OperationT = TypeVar("OperationT", bound=Operation)


@dataclass(frozen=True, slots=True)
class Postponed:
    """A request that waits for the group's assignment.

    Attributes:
        carry_out: called once, with the reason if the wait has ended without it.
        ready: whether the last assignment is what the request has waited for.
    """

    carry_out: Callable[[PixyError | None], None]
    ready: Callable[[], bool]


@dataclass(slots=True)
class _UnderWay:
    operation: Operation
    session: InstanceSession
    reply: Future[Any] | None
    deadline: float


class Operations:
    """The operations under way: at most ``instances.max_waiting_requests`` at once."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._under_way: dict[int, _UnderWay] = {}
        self._postponed: list[Postponed] = []

    def __len__(self) -> int:
        return len(self._under_way) + len(self._postponed)

    def under_way(self, kind: type[OperationT]) -> list[OperationT]:
        """Return the operations of one kind on the present session, the oldest first.

        Args:
            kind: the class.
        """
        return [
            each.operation
            for each in self._under_way.values()
            if isinstance(each.operation, kind) and not self._is_stale(each)
        ]

    def check_room(self) -> None:
        """Raise TooManyRequests if ``instances.max_waiting_requests`` operations are under way.

        A request that prepares a change calls this first, so that a refused one changes nothing.
        """
        if len(self) >= self._context.conf.max_waiting_requests:
            raise TooManyRequests("instances.max_waiting_requests")

    def begin(self, operation: Operation, reply: Future[Any] | None = None) -> None:
        """Send a command to the session, which is opened if need be.

        Args:
            operation: the command.
            reply: gets the value of :meth:`Operation.succeed`, or the error. None: nobody waits.
        """
        context = self._context
        session = context.open_session()
        if reply is not None:
            try:
                self.check_room()
            except TooManyRequests as error:
                reply.try_fail(error)
                return
        token = next(_tokens)
        timeout = context.conf.operation_timeout
        self._under_way[token] = _UnderWay(operation, session, reply, context.now() + timeout)
        context.actor.set_timer(("operation", token), timeout, OperationDue(token))
        operation.send(session, token)

    def done(self, event: Done) -> None:
        """Handle the session's result of a command."""
        found = self._under_way.get(event.token)
        if found is None:
            return
        context, error = self._context, event.error
        if (
            isinstance(error, KafkaError)
            and error.code == REBALANCE_IN_PROGRESS
            and not self._is_stale(found)
            and context.now() + _RETRY_AFTER < found.deadline
        ):
            # While the group waits for the new assignment, the broker accepts no commits.
            context.actor.set_timer(("retry", event.token), _RETRY_AFTER, OperationRetry(event.token))
            return
        self._end(event.token, event.value, error)

    def retry(self, token: int) -> None:
        """Send a command again. See :class:`OperationRetry`."""
        found = self._under_way.get(token)
        if found is None:
            return
        if self._is_stale(found):
            self._end(token, None, given_up())
        elif found.operation.again():
            found.operation.send(found.session, token)
        else:
            self._end(token, (), None)

    def due(self, token: int) -> None:
        """Answer with a timeout; a later result still takes effect. See :class:`OperationDue`."""
        found = self._under_way.get(token)
        if found is None:
            return
        if found.reply is not None:
            found.reply.try_fail(timed_out(found.operation.what))
            found.reply = None
        if self._is_stale(found):
            self._end(token, None, given_up())

    def session_ended(self) -> None:
        """Settle the operations of an earlier session, which has ended: no result of a command to it comes any more."""
        for token, found in tuple(self._under_way.items()):
            if self._is_stale(found):
                self._end(token, None, given_up())

    def _is_stale(self, found: _UnderWay) -> bool:
        return found.session is not self._context.session

    def _end(self, token: int, value: Any, error: PixyError | None) -> None:
        found, actor = self._under_way.pop(token), self._context.actor
        actor.cancel_timer(("operation", token))
        actor.cancel_timer(("retry", token))
        operation, stale = found.operation, self._is_stale(found)
        if error is None and stale and not operation.outlives_session:
            error = given_up()
        if error is not None:
            if not stale:
                operation.fail(error)
            if found.reply is not None:
                found.reply.try_fail(error)
            return
        answer = operation.succeed(value)
        if found.reply is not None:
            found.reply.try_set(answer)

    # -- requests before the assignment -------------------------------------------------------------

    def postpone(self, request: Postponed) -> None:
        """Keep a request until the group has assigned partitions, at most for ``join_timeout``."""
        if not self._postponed:
            self._context.actor.set_timer("assignment", self._context.conf.join_timeout, AssignmentDue())
        self._postponed.append(request)

    def carry_out_postponed(self, error: PixyError | None = None) -> None:
        """Carry out the requests that have waited.

        Args:
            error: why they wait no longer; None: for those that are ready.
        """
        waiting, self._postponed = self._postponed, []
        for each in waiting:
            if error is not None or each.ready():
                each.carry_out(error)
            else:
                self._postponed.append(each)
        if not self._postponed:
            self._context.actor.cancel_timer("assignment")

    # -- the end ----------------------------------------------------------------------------------

    def fail_all(self, error: PixyError) -> None:
        """Answer every request that waits with ``error``: the instance ends."""
        for found in self._under_way.values():
            if found.reply is not None:
                found.reply.try_fail(error)
                found.reply = None


def given_up() -> IllegalState:
    """Make the error of a command to a session that has no result: its client has ended the session."""
    return IllegalState("the subscription was deleted")
