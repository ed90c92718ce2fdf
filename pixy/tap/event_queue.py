"""A bounded queue from the event loop, which forwards, to the observer, which runs in a thread. It never waits.

The loop gathers events and delivers them in batches. Events beyond the limits (bytes of captured frames, events in
a batch that the observer refuses) are dropped and counted; the bytes of their frames have been forwarded already.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from pixy.tap import events
from pixy.tap.config import Bounds
from pixy.tap.conversation import Conversation

MAX_BATCH: Final = 5_000
"""Events in a batch, at most."""
_INTERVAL: Final = 0.02
"""Seconds between batches: waking the observer's thread costs the loop some 20 us."""


class EventBatch(NamedTuple):
    """Events in the order in which they happened."""

    events: tuple[events.Event, ...]
    size: int
    """Bytes of the captured frames."""


class EventQueue:
    """The :class:`~pixy.tap.conversation.Sink` of all connections.

    Args:
        bounds: ``backlog`` limits the bytes of captured frames that wait.
        deliver: hands a batch to the observer; returns whether the observer accepted it.
        clock: tells the time in seconds since the epoch.
    """

    def __init__(
        self,
        bounds: Bounds,
        deliver: Callable[[EventBatch], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.conversations: dict[int, Conversation] = {}
        self.open: set[int] = set()
        """Numbers of connections that have reported Opened and not yet Closed."""
        self.connections = 0
        """Number of connection actors, including those that are still connecting."""
        self.numbers = 0
        self._bounds, self._deliver = bounds, deliver
        self._events: list[events.Event] = []
        self._size = 0
        self._reserved = 0  # bytes of frames reserved so far; only the loop writes it
        self._released = 0  # bytes of frames processed so far; only the observer's thread writes it
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def backlog(self) -> int:
        """Bytes of captured frames that wait for the observer."""
        return self._reserved - self._released

    def next_number(self) -> int:
        """Number a new connection."""
        self.numbers += 1
        return self.numbers

    def put(self, event: events.Event) -> None:
        """See :class:`pixy.tap.conversation.Sink`."""
        if isinstance(event, events.Opened):
            self.open.add(event.connection)
        elif isinstance(event, events.Closed):
            self.open.discard(event.connection)
        size = len(event.frame) if isinstance(event, events.RequestCaptured | events.ResponseCaptured) else 0
        if len(self._events) >= MAX_BATCH and not self._flush():
            self._reserved -= size
            self._lost += 1
            return
        self._events.append(event)
        self._size += size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._on_timer)

    def reserve(self, size: int) -> bool:
        """See :class:`pixy.tap.conversation.Sink`."""
        if self.backlog + size > self._bounds.backlog:
            return False
        self._reserved += size
        return True

    def unreserve(self, size: int) -> None:
        """See :class:`pixy.tap.conversation.Sink`."""
        self._reserved -= size

    def done(self, batch: EventBatch) -> None:
        """Release the room of a processed batch. The observer's thread calls this."""
        self._released += batch.size

    def tally(self) -> None:
        """Put the counters of every connection into the queue."""
        for conversation in self.conversations.values():
            found = conversation.tally()
            if found is not None:
                self.put(found)

    def flush(self) -> None:
        """Deliver the gathered events now."""
        self._flush()

    def _on_timer(self) -> None:
        self._timer = None
        self._flush()

    def _flush(self) -> bool:
        if not self._events:
            return True
        if self._lost:
            self._events.insert(0, events.EventsLost(self.clock(), self._lost, frozenset(self.open)))
        batch = EventBatch(tuple(self._events), self._size)
        if self._deliver(batch):
            self._lost = 0
        else:
            self._reserved -= self._size
            self._lost += len(self._events) - (1 if self._lost else 0)
        accepted = not self._lost
        self._events, self._size = [], 0
        return accepted
