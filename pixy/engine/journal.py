"""The journal of a cluster: what this daemon did, on its way to Kafka (``proxies.X.journal``).

Whoever does something appends one tuple to the :class:`Journal`, which is memory and nothing else:
no message, no clock, no await, so a request pays less than a microsecond.
:mod:`pixy.engine.journal_writer` takes what was gathered and writes it. What does not fit is
counted, and the count is in the next batch that Kafka takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pixy.config import model
from pixy.journal import AUTO, WAITED, Event, Kind, Lost, Refusal, Stream


class Journal:
    """The events that are not written yet. Outlives the writer's lives; bounded.

    Args:
        clock: the loop's time, in which events are told.
        wall: seconds since 1970.
    """

    def __init__(
        self, conf: model.Journal, clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.topic = conf.topic
        self.clock = clock
        self.wall = wall
        self._batch = conf.batch_events
        self._bound = conf.buffer_events
        self._events: list[Any] = []
        self._held = 0
        self._lost = 0
        self._lost_first = self._lost_last = 0.0
        self.failed = Lost()
        """Events of batches that Kafka did not take."""
        self.wake: Callable[[], None] | None = None
        """Called when a batch is full."""

    @property
    def held(self) -> int:
        """Events that wait or are on their way."""
        return self._held

    def add(
        self, kind: int, at: float, stream: Stream, offset: int, attempt: int = 0,
        timestamp: int = -1, took: float = -1e-6, code: int = 0, flags: int = 0,
    ) -> None:
        """Note an event.

        Args:
            at: the loop's time.
            timestamp: the message's, in milliseconds; -1: it has none.
            took: seconds. For OFFERED it is reckoned from ``timestamp`` here.
        """
        if self._held >= self._bound:
            self._lost_first = self._lost_first if self._lost else at
            self._lost += 1
            self._lost_last = at
            return
        self._held += 1
        events = self._events
        events.append((kind, at, stream, offset, attempt, timestamp, took, code, flags))
        if len(events) % self._batch == 0 and self.wake is not None:
            self.wake()

    def take(self, *, partly: bool) -> list[tuple[list[Event], Lost]]:
        """Batches to write, the first with what was lost before; ``partly``: the last may be short."""
        shift = self.wall() - self.clock()
        count = len(self._events) if partly else len(self._events) - len(self._events) % self._batch
        taken, self._events = self._events[:count], self._events[count:]
        batches: list[tuple[list[Event], Lost]] = [
            ([_stamped(event, shift) for event in taken[at : at + self._batch]], Lost())
            for at in range(0, count, self._batch)
        ]
        if partly or batches:
            lost, self.failed = self.failed, Lost()
            if self._lost:
                lost += Lost(
                    self._lost, micros(self._lost_first + shift), micros(self._lost_last + shift)
                )
                self._lost = 0
            if batches:
                batches[0] = batches[0][0], lost
            elif lost.events:
                batches.append(([], lost))
        return batches

    def written(self, events: int) -> None:
        """There is room for that many again."""
        self._held -= events

    def not_written(self, own: Lost, lost: Lost) -> None:
        """A batch is given up: its own events, and what it knew to be lost, are lost now."""
        self._held -= own.events
        self.failed += lost + own

    @property
    def empty(self) -> bool:
        """Whether everything was taken."""
        return not (self._events or self._lost or self.failed.events)


def micros(seconds: float) -> int:
    """Whole microseconds."""
    return round(seconds * 1e6)


def _stamped(event: Any, shift: float) -> Event:
    kind, at, stream, offset, attempt, timestamp, took, code, flags = event
    micros = int((at + shift) * 1e6)
    if kind == Kind.OFFERED:
        span = micros - timestamp * 1000 if timestamp >= 0 else -1
    else:
        span = int(took * 1e6) if took >= 0 else -1
    return kind, micros, stream, offset, attempt, timestamp, span, code, flags


__all__ = ["AUTO", "WAITED", "Journal", "Kind", "Refusal", "Stream", "micros"]
