"""Between the loop, which forwards, and the observer, which has a thread of its own: bounded, and never waiting.

The loop gathers events and sends them as batches. What does not fit any more, in bytes of frames or in number, is
dropped and counted; the bytes themselves were forwarded before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from pixy.tap import events
from pixy.tap.config import Bounds
from pixy.tap.conversation import Conversation

BATCH: Final = 5_000
"""Events in a batch."""
_INTERVAL: Final = (
    0.02  # seconds between batches: a wake-up of the observer's thread costs the loop some 20 us
)


class Batch(NamedTuple):
    """Events in the order in which they happened."""

    events: tuple[events.Event, ...]
    size: int


class Hub:
    """The sink of all connections. ``deliver(batch)`` says whether the observer has taken it."""

    def __init__(
        self,
        bounds: Bounds,
        deliver: Callable[[Batch], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.clock = clock
        self.conversations: dict[int, Conversation] = {}
        self.open: set[int] = set()
        """Numbers of the connections whose opening was put, and not yet their end."""
        self.connections = 0
        """Connections that are open or about to be."""
        self.numbers = 0
        self._bounds, self._deliver = bounds, deliver
        self._events: list[events.Event] = []
        self._size = 0
        self._reserved = 0  # bytes of frames under way to the observer; only the loop writes it
        self._released = 0  # of these, bytes that the observer is done with; only its thread writes it
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def backlog(self) -> int:
        """Bytes of frames that wait to be looked into."""
        return self._reserved - self._released

    def next_number(self) -> int:
        """A connection's number."""
        self.numbers += 1
        return self.numbers

    def put(self, event: events.Event) -> None:
        """See :class:`pixy.tap.conversation.Sink`."""
        if isinstance(event, events.Opened):
            self.open.add(event.connection)
        elif isinstance(event, events.Closed):
            self.open.discard(event.connection)
        size = len(event.frame) if isinstance(event, events.Asked | events.Answered) else 0
        if len(self._events) >= BATCH and not self._flush():
            self._reserved -= size
            self._lost += 1
            return
        self._events.append(event)
        self._size += size
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._timed)

    def reserve(self, size: int) -> bool:
        """See :class:`pixy.tap.conversation.Sink`."""
        if self.backlog + size > self._bounds.backlog:
            return False
        self._reserved += size
        return True

    def unreserve(self, size: int) -> None:
        """See :class:`pixy.tap.conversation.Sink`."""
        self._reserved -= size

    def done(self, batch: Batch) -> None:
        """The observer is done with a batch. Called in its thread."""
        self._released += batch.size

    def tally(self) -> None:
        """Have every connection say what has passed."""
        for conversation in self.conversations.values():
            found = conversation.tally()
            if found is not None:
                self.put(found)

    def flush(self) -> None:
        """Hand over what there is."""
        self._flush()

    def _timed(self) -> None:
        self._timer = None
        self._flush()

    def _flush(self) -> bool:
        if not self._events:
            return True
        if self._lost:
            self._events.insert(0, events.Lost(self.clock(), self._lost, frozenset(self.open)))
        batch = Batch(tuple(self._events), self._size)
        if self._deliver(batch):
            self._lost = 0
        else:
            self._reserved -= self._size
            self._lost += len(self._events) - (1 if self._lost else 0)
        taken = not self._lost
        self._events, self._size = [], 0
        return taken
