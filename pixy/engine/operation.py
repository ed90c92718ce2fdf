"""An operation of a caller, from its permission to its record in the audit log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

from pixy.auth.audit import CANCELLED, UNKNOWN, AuditLog
from pixy.auth.limits import Limiter, Use
from pixy.auth.principal import Caller
from pixy.auth.rules import Access
from pixy.engine.unanswered import Unanswered

R = TypeVar("R")


class Operation:
    """Something that a caller does. A context manager."""

    __slots__ = (
        "_access",
        "_audit",
        "_began",
        "_caller",
        "_given_up",
        "_left",
        "_limiter",
        "_polls",
        "_unanswered",
        "_use",
    )

    def __init__(
        self,
        limiter: Limiter,
        use: Use,
        audit: AuditLog | None,
        caller: Caller,
        access: Access,
        polls: bool,
        unanswered: Unanswered,
    ) -> None:
        # The limiter that has counted the operation; the guard may have another one when it ends.
        self._limiter = limiter
        self._use = use
        self._caller = caller
        self._access = access
        self._polls = polls
        self._audit = audit if audit is not None and audit.wants(access.verb) else None
        self._began = 0.0 if self._audit is None else time.monotonic()
        self._unanswered = unanswered
        self._given_up = CANCELLED
        self._left = False

    def carries(self, size: Callable[[], int]) -> None:
        """Count the bytes that the operation has sent to Kafka or brought to the caller."""
        if self._use.bytes is not None:
            self._limiter.spend(self._use, size)

    def changes(self) -> None:
        """Note that the operation changes something from here on, at a moment that nobody knows of if its caller goes."""
        self._given_up = UNKNOWN

    def carry_out(self, doing: Coroutine[Any, Any, R]) -> Awaitable[R]:
        """Return what to await for a change. If the log has a record of it, the change is made also if its caller goes, and the
        record, made at its end, tells what came of it.

        No coroutine: of most operations there is no record, and one more frame would take its time of each.

        Args:
            doing: the change.
        """
        return doing if self._audit is None else self._carry_out(doing)

    async def _carry_out(self, doing: Coroutine[Any, Any, R]) -> R:
        self._given_up = UNKNOWN
        return await self._unanswered.carry_out(doing, self._leave)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._left = True
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._end(error, answered=False)

    def __enter__(self) -> Operation:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._left:
            self._end(error)

    def _end(self, error: BaseException | None, *, answered: bool = True) -> None:
        self._limiter.end(self._use, polls=self._polls)
        if self._audit is None:
            return
        seconds = time.monotonic() - self._began
        if isinstance(error, asyncio.CancelledError):
            self._audit.given_up(self._given_up, self._caller, self._access, seconds)
        else:
            self._audit.done(self._caller, self._access, seconds, error, answered=answered)


__all__ = ["Operation"]
