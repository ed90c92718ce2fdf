"""The journal of a cluster: what this daemon did, on its way to Kafka (``proxies.X.journal``).

Whoever does something appends one tuple to the :class:`Journal`, which is memory and nothing else:
no message, no clock, no await, so a request pays less than a microsecond.
:mod:`pixy.engine.journal.writer` takes what was gathered and writes it. What does not fit is
counted, and the count is in the next batch that Kafka takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from pixy.config import model
from pixy.journal import AUTO, COLUMNS, WAITED, Kind, Lost, Refusal, Stream

RawEvent = tuple[int, float, Stream, int, int, int, float, int, int]
"""In the order of :data:`pixy.journal.COLUMNS`; the times are seconds, of the loop."""


class Journal:
    """The events that are not written yet. Outlives the writer's lives; bounded.

    Args:
        clock: the loop's time, in which events are told.
        wall: seconds since 1970.
    """

    def __init__(
        self,
        conf: model.Journal,
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.topic = conf.topic
        self.clock = clock
        self.wall = wall
        self.shift = wall() - clock()
        """What makes the time of the day of the loop's; brought up to date with every batch."""
        self._batch = self._full = conf.batch_events
        self._bound = conf.buffer_events
        self._events: list[RawEvent] = []
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
        self,
        kind: int,
        at: float,
        stream: Stream,
        offset: int,
        attempt: int = 0,
        timestamp: int = -1,
        took: float = -1.0,
        code: int = 0,
        flags: int = 0,
    ) -> None:
        """Note an event.

        Args:
            at: the loop's time.
            timestamp: the message's, in milliseconds; -1: it has none.
            took: seconds; -1: not known.
        """
        self.put((kind, at, stream, offset, attempt, timestamp, took, code, flags))

    def put(self, event: RawEvent) -> None:
        """The same, with all of it as one tuple: what is done for each message calls this."""
        if self._held >= self._bound:
            at = event[1]
            self._lost_first = self._lost_first if self._lost else at
            self._lost += 1
            self._lost_last = at
            return
        self._held += 1
        events = self._events
        events.append(event)
        if len(events) >= self._full:
            self._filled()

    def put_many(self, events: Sequence[RawEvent]) -> None:
        """Note events that happened together: the bound is looked at once."""
        count = len(events)
        if self._held + count > self._bound:
            for event in events:
                self.put(event)
            return
        self._held += count
        waiting = self._events
        waiting += events
        if len(waiting) >= self._full:
            self._filled()

    def _filled(self) -> None:
        self._full = len(self._events) // self._batch * self._batch + self._batch
        if self.wake is not None:
            self.wake()

    def take(self, *, partly: bool) -> list[tuple[list[RawEvent], Lost]]:
        """Batches to write, the first with what was lost before; ``partly``: the last may be short."""
        shift = self.shift = self.wall() - self.clock()
        count = len(self._events) if partly else len(self._events) - len(self._events) % self._batch
        taken, self._events = self._events[:count], self._events[count:]
        self._full = self._batch
        batches: list[tuple[list[RawEvent], Lost]] = [
            (taken[at : at + self._batch], Lost()) for at in range(0, count, self._batch)
        ]
        if partly or batches:
            lost, self.failed = self.failed, Lost()
            if self._lost:
                lost += Lost(self._lost, micros(self._lost_first + shift), micros(self._lost_last + shift))
                self._lost = 0
            if batches:
                batches[0] = batches[0][0], lost
            elif lost.events:
                batches.append(([], lost))
        return batches

    def columns(self, events: Sequence[RawEvent]) -> list[Sequence[Any]]:
        """Events as the journal's columns: whole microseconds, and the time of the day.

        Column by column: event by event it took four times as long as encoding.
        """
        columns: list[Sequence[Any]] = list(zip(*events, strict=True)) or [()] * len(COLUMNS)
        shift = micros(self.shift)
        columns[1] = [int(at * 1e6) + shift for at in columns[1]]
        columns[6] = [int(took * 1e6) if took >= 0.0 else -1 for took in columns[6]]
        return columns

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


__all__ = ["AUTO", "WAITED", "Journal", "Kind", "RawEvent", "Refusal", "Stream", "micros"]
