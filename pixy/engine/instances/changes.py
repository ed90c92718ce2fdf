"""Changes of what an instance consumes: the session carries them out, and one that fails leaves what was in effect.

After a restart the new session has to carry out again what was in effect. That fails while the coordinator does not answer, say, and
nobody waits for an answer who would ask again. So it is repeated, with growing pauses, until it succeeds or a client's
change takes its place.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from actors import Backoff, Future
from pixy.engine.instances.context import END, Context, Subscription
from pixy.engine.instances.offsets import Seek
from pixy.engine.instances.operations import Operation, Operations
from pixy.engine.instances.reads import Reads
from pixy.errors import PixyError
from pixy.membership.instances import InstanceSession
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")

_BACKOFF = Backoff(first=0.5, most=30.0)
"""The pauses before what was in effect is repeated."""


class RepeatDue:
    """To the instance, from a timer: repeat what was in effect, which the session has failed to carry out."""


@dataclass(slots=True)
class _Change(Operation):
    changes: Changes
    wanted: Subscription | None
    """The subscription that takes effect if the command succeeds and is given up if it fails. None: the one in effect stands."""


@dataclass(slots=True)
class _Subscribe(_Change):
    what = "subscribe"
    topics: tuple[str, ...]
    added: tuple[str, ...]

    def send(self, session: InstanceSession, token: int) -> None:
        session.subscribe(token, self.topics, self.added)

    def succeed(self, _value: Any) -> None:
        self.changes.succeeded(self.wanted, self.topics)

    def fail(self, error: PixyError) -> None:
        if self.changes.failed(self.wanted, error):
            self.changes.reads.fail_all(error)


@dataclass(slots=True)
class _Assign(_Change):
    what = "assign"
    partitions: tuple[TopicPartition, ...]
    keep: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The reader's positions at the time of the command."""

    def send(self, session: InstanceSession, token: int) -> None:
        self.changes.in_turn(self, partial(self._send, session, token))

    def _send(self, session: InstanceSession, token: int) -> None:
        self.keep = self.changes.positions_in(self.partitions)
        session.assign(token, self.partitions, self.keep, repeated=self.wanted is None)

    def succeed(self, value: Mapping[TopicPartition, int]) -> None:
        self.changes.succeeded(self.wanted)
        self.changes.replace(value, self.keep)
        self.changes.next_in_turn()

    def fail(self, error: PixyError) -> None:
        self.changes.failed(self.wanted, error)
        self.changes.next_in_turn()


class Changes:
    """Keeps :attr:`ReaderState.subscription` and :attr:`ReaderState.in_effect`.

    Args:
        context: of the instance.
        operations: carries changes out.
        reads: those that wait for the changed partitions.
        replace: called with the partitions that are chosen from now on, where each begins, and those of these positions that
            are the reader's, of when the session was told.
    """

    def __init__(
        self,
        context: Context,
        operations: Operations,
        reads: Reads,
        replace: Callable[[Mapping[TopicPartition, int], Mapping[TopicPartition, int]], None],
    ) -> None:
        self._context = context
        self._operations = operations
        self.reads = reads
        self.replace = replace
        self._to_repeat: Subscription | None = None
        """The subscription in effect, until the session has carried it out (again)."""
        self._failures = 0
        self._assigning: _Assign | None = None
        self._next: deque[tuple[_Assign, Callable[[], None]]] = deque()
        """Assignments that wait until the session has carried out :attr:`_assigning`, and what tells the session then."""

    def resume(self) -> Subscription:
        """Return what was in effect before a restart. A change that was under way is given up: its client has got an error."""
        state = self._context.state
        state.subscription = state.in_effect
        self._to_repeat = state.in_effect if state.in_effect else None
        return state.in_effect

    def to_repeat(self) -> Subscription | None:
        """Return the subscription to carry out again now; None if there is none, or while a client's change is under way."""
        state = self._context.state
        due = not self._context.closing and self._to_repeat is state.subscription
        return self._to_repeat if due else None

    def clear(self) -> None:
        """Consume nothing any more."""
        state = self._context.state
        state.subscription = state.in_effect = Subscription()
        state.matched_first = frozenset()
        self._assigning = None
        self._next.clear()
        self._repeated()

    def subscribe(
        self,
        topics: tuple[str, ...],
        wanted: Subscription | None,
        added: tuple[str, ...] = (),
        reply: Future[Any] | None = None,
    ) -> None:
        """Tell the session to subscribe.

        Args:
            topics: to which.
            wanted: what takes effect then; None: what is in effect stands.
            added: see :meth:`pixy.membership.instances.InstanceSession.subscribe`.
            reply: to the request, if there is one.
        """
        self._operations.begin(_Subscribe(self, wanted, topics, added), reply)

    def assign(self, wanted: Subscription, reply: Future[Any] | None) -> None:
        """Tell the session which partitions a client has chosen. The reader keeps its positions in them.

        Args:
            wanted: the partitions.
            reply: to the request.
        """
        self._context.state.subscription = wanted
        self._operations.begin(_Assign(self, wanted, wanted.partitions), reply)

    def assign_again(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Tell a new session which partitions are chosen."""
        self._operations.begin(_Assign(self, None, partitions))

    def positions_in(self, partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        """Return the reader's positions in those of the partitions that are assigned, or where seeks under way go back to.

        END for those whose end is not known yet, unless a seek is under way.
        """
        offsets = self._context.positions.offsets
        found = {partition: offsets[partition] for partition in partitions if partition in offsets}
        for seek in self._operations.under_way(Seek):
            for partition, offset in seek.offsets.items():
                if partition in found and (found[partition] == END or offset < found[partition]):
                    found[partition] = offset
        return found

    # -- one assignment at a time -------------------------------------------------------------------

    def in_turn(self, assign: _Assign, tell: Callable[[], None]) -> None:
        """Tell the session of an assignment once it has carried out those before: the reader keeps the positions that they find.

        Args:
            assign: which.
            tell: tells the session.
        """
        if self._assigning is None or self._assigning is assign:
            self._assigning = assign
            tell()
        else:
            self._next.append((assign, tell))

    def next_in_turn(self) -> None:
        """Tell the session of the next assignment: it has carried out one, or failed to."""
        self._assigning = None
        if self._next:
            self.in_turn(*self._next.popleft())

    # -- the outcome of a change ------------------------------------------------------------------

    def succeeded(self, wanted: Subscription | None, topics: tuple[str, ...] = ()) -> None:
        """Note that the session has carried out a change, or what is in effect.

        Args:
            wanted: see :class:`_Change`.
            topics: that were subscribed to.
        """
        state = self._context.state
        if wanted is not None:
            state.in_effect = wanted
            state.matched_first = frozenset(topics)
        if self._failures:
            self.reads.refusal = None
        self._repeated()

    def failed(self, wanted: Subscription | None, error: PixyError) -> bool:
        """Go back to what is in effect. Returns whether the failed change was the latest.

        Args:
            wanted: see :class:`_Change`.
            error: why it failed.
        """
        if wanted is not None:
            return self.give_up(wanted)
        self._to_repeat = self._context.state.in_effect
        self._failures += 1
        self.reads.refusal = error
        pause = self._wait()
        path = self._context.actor.path
        logger.warning("%s: cannot resume, next attempt in %.1f s: %s", path, pause, error)
        return False

    def give_up(self, wanted: Subscription) -> bool:
        """Go back to what is in effect. Return False if nothing changes, because a later change has replaced the failed one."""
        state = self._context.state
        if state.subscription is not wanted:
            return False
        state.subscription = state.in_effect
        if self._to_repeat is not None:
            self._wait()
        return True

    def _wait(self) -> float:
        actor = self._context.actor
        pause = _BACKOFF.delay(max(1, self._failures), actor.system.rng)
        actor.set_timer("repeat", pause, RepeatDue())
        return pause

    def _repeated(self) -> None:
        self._to_repeat, self._failures = None, 0
        self._context.actor.cancel_timer("repeat")


__all__ = ["Changes", "RepeatDue"]
