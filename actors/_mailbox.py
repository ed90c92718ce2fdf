"""A bounded mailbox with a lane of its own for what must work when it is full.

The normal lane holds at most ``capacity`` messages. The urgent lane is served first: stop and
supervision use it always, senders through ``urgent=True`` (acks, events whose number is bounded by
what the actor itself asked for). It is bounded too, ``URGENT_FACTOR`` times higher, so that nothing
grows for ever; only the runtime's own messages pass that bound.

Closing and putting exclude each other under one lock: an ask can not slip into a mailbox that
nobody will ever read again (pykka 4.5 loses such asks).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from pykka import ActorDeadError

from actors._errors import MailboxFull
from actors._future import Future

DEFAULT_CAPACITY = 10_000
URGENT_FACTOR = 16


class Envelope:
    """A message and the future that waits for its reply, if any."""

    __slots__ = ("message", "reply_to")

    def __init__(self, message: Any, reply_to: Future[Any] | None = None) -> None:
        self.message = message
        self.reply_to = reply_to


class Mailbox:
    """Two FIFO lanes; any thread puts, the actor's loop takes."""

    __slots__ = ("_lock", "_normal", "_on_first", "_urgent", "capacity", "closed", "name")

    def __init__(self, name: str, capacity: int, on_first: Callable[[], None]) -> None:
        self.name = name
        self.capacity = capacity
        self.closed = False
        self._on_first = on_first
        self._lock = threading.Lock()
        self._normal: deque[Envelope] = deque()
        self._urgent: deque[Envelope] = deque()

    def __len__(self) -> int:
        return len(self._normal) + len(self._urgent)

    def empty(self) -> bool:
        """Whether nothing waits in either lane."""
        return not self._normal and not self._urgent

    def put(self, envelope: Envelope, *, urgent: bool = False, force: bool = False) -> None:
        """Add a message.

        Raises:
            ActorDeadError: the actor has stopped.
            MailboxFull: the lane is at its bound (never with ``force``).
        """
        with self._lock:
            if self.closed:
                raise ActorDeadError(f"{self.name} not found")
            lane, bound = (
                (self._urgent, self.capacity * URGENT_FACTOR)
                if urgent
                else (self._normal, self.capacity)
            )
            if len(lane) >= bound and not force:
                raise MailboxFull(f"mailbox of {self.name} is full ({bound} messages)")
            lane.append(envelope)
        self._on_first()

    def get(self) -> Envelope | None:
        """Take the next message, urgent ones first; None if there is none. Never blocks."""
        if self._urgent:
            return self._urgent.popleft()
        if self._normal:
            return self._normal.popleft()
        return None

    def get_urgent(self) -> Envelope | None:
        """Take the next urgent message only (for an actor that is between two lives)."""
        return self._urgent.popleft() if self._urgent else None

    def close(self) -> list[Envelope]:
        """Accept nothing more; return what was left, in order."""
        with self._lock:
            self.closed = True
            left = [*self._urgent, *self._normal]
            self._urgent.clear()
            self._normal.clear()
        return left
