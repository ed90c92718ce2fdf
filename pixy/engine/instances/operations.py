"""Commands of an instance that are under way at Kafka, each with its reply and its deadline."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors import Actor, Future
from pixy.config.model import Instances
from pixy.errors import KafkaError, PixyError, TooManyRequests
from pixy.kafka.errors import REBALANCE_IN_PROGRESS, timed_out
from pixy.membership.instances import Done

_AGAIN = 0.1
_tokens = itertools.count(1)  # of all instances: no life sees the outcome of another's command


@dataclass(frozen=True, slots=True)
class OperationDue:
    """To the instance, from its timer: an operation takes too long."""

    token: int


@dataclass(frozen=True, slots=True)
class OperationAgain:
    """To the instance, from its timer: an operation that met a rebalance is tried again."""

    token: int


@dataclass(frozen=True, slots=True)
class JoinDue:
    """To the instance, from its timer: what waits for the join waits no longer."""


@dataclass(slots=True)
class _Operation:
    begin: Callable[[int], None]
    what: str
    reply: Future[Any] | None
    finish: Callable[[Any], Any] | None
    failed: Callable[[PixyError], None] | None
    until: float


class Operations:
    """At most ``instances.max_waiting_requests`` at once."""

    def __init__(self, actor: Actor, conf: Instances) -> None:
        self._actor = actor
        self._conf = conf
        self._under_way: dict[int, _Operation] = {}
        self._joining: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._under_way) + len(self._joining)

    def begin(
        self,
        begin: Callable[[int], None],
        what: str,
        *,
        reply: Future[Any] | None = None,
        finish: Callable[[Any], Any] | None = None,
        failed: Callable[[PixyError], None] | None = None,
    ) -> None:
        """Give a command to the session.

        Args:
            begin: called with the token that the outcome will carry.
            what: names it in an error.
            reply: gets what ``finish`` returns, or the error.
            finish: called with the outcome, even when the reply has timed out.
            failed: called with the error.
        """
        if reply is not None and len(self) >= self._conf.max_waiting_requests:
            reply.try_fail(TooManyRequests("instances.max_waiting_requests"))
            return
        token = next(_tokens)
        until = self._actor.system.loop.time() + self._conf.operation_timeout
        self._under_way[token] = _Operation(begin, what, reply, finish, failed, until)
        self._actor.set_timer(("operation", token), self._conf.operation_timeout, OperationDue(token))
        begin(token)

    def done(self, event: Done) -> None:
        """The session has answered."""
        operation = self._under_way.get(event.token)
        if operation is None:
            return
        error = event.error
        if (
            isinstance(error, KafkaError)
            and error.code == REBALANCE_IN_PROGRESS
            and self._actor.system.loop.time() + _AGAIN < operation.until
        ):
            # The broker takes no commits for the moment in which it waits for the new assignment.
            self._actor.set_timer(("again", event.token), _AGAIN, OperationAgain(event.token))
            return
        del self._under_way[event.token]
        self._actor.cancel_timer(("operation", event.token))
        if error is not None:
            if operation.failed is not None:
                operation.failed(error)
            if operation.reply is not None:
                operation.reply.try_fail(error)
            return
        value = operation.finish(event.value) if operation.finish is not None else None
        if operation.reply is not None:
            operation.reply.try_set(value)

    def again(self, message: OperationAgain) -> None:
        """See :class:`OperationAgain`."""
        operation = self._under_way.get(message.token)
        if operation is not None:
            operation.begin(message.token)

    def due(self, message: OperationDue) -> None:
        """See :class:`OperationDue`."""
        operation = self._under_way.get(message.token)
        if operation is not None and operation.reply is not None:
            operation.reply.try_fail(timed_out(operation.what))
            operation.reply = None

    # -- what needs an assignment -----------------------------------------------------------------

    def when_joined(self, act: Callable[[], None]) -> None:
        """Do it when the group has been joined, or when that takes longer than ``join_timeout``."""
        if not self._joining:
            self._actor.set_timer("join", self._conf.join_timeout, JoinDue())
        self._joining.append(act)

    def joined(self, _message: JoinDue | None = None) -> None:
        """Do what has waited for the join."""
        self._actor.cancel_timer("join")
        acts, self._joining = self._joining, []
        for act in acts:
            act()

    def refuse(self, error: PixyError) -> None:
        """The instance ends: nobody gets an answer any more."""
        self.joined()
        for operation in self._under_way.values():
            if operation.reply is not None:
                operation.reply.try_fail(error)
                operation.reply = None
