"""Gathers what the engine's actors add to the journal, until it is written.

An actor adds an event as one tuple to the :class:`Journal`, which is memory and nothing else: no message, no
clock, no await, so a request pays less than a microsecond. :mod:`pixy.engine.journal.writer` takes the events
and writes them. Events that do not fit are counted, and the next batch that Kafka takes reports the count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pixy.config import model
from pixy.journal import AUTO, COLUMNS, WAITED, Kind, Lost, Refusal, Stream

RawEvent = tuple[int, float, Stream, int, int, int, float, int, int, str]
"""An event in the order of :data:`pixy.journal.COLUMNS`, and its caller; ``time`` is event-loop time and ``took`` a duration,
both in seconds."""


class Journal:
    """The events that are not written yet, up to ``buffer_events``. It outlives the writer's failures.

    Args:
        conf: the configuration's ``journal``.
        clock: returns event-loop time in seconds, which events are added with.
        wall: returns wall-clock time in seconds since 1970.
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
        """Seconds to add to event-loop time for wall-clock time; updated with every batch."""
        self._callers = conf.callers
        self._batch = self._full = conf.batch_events
        self._limit = conf.buffer_events
        self._events: list[RawEvent] = []
        self._held = 0
        self._lost = 0
        self._lost_first = self._lost_last = 0.0
        self.lost_total = 0
        """Events that were not taken, or not written, so far."""
        self.failed = Lost()
        """The events of batches that Kafka did not take."""
        self.wake: Callable[[], None] | None = None
        """The writer's callback, called when a batch is full."""

    @property
    def limit(self) -> int:
        """The most events that may be held."""
        return self._limit

    @property
    def held(self) -> int:
        """The number of events that are gathered or in flight."""
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
        caller: str = "",
    ) -> None:
        """Add an event.

        Args:
            kind: a :class:`pixy.journal.Kind`.
            at: event-loop time, in seconds.
            stream: topic, partition and group.
            offset: of the message; -1 if it has none.
            attempt: see :class:`pixy.journal.Kind`.
            timestamp: the message's, in milliseconds since 1970; -1 if it has none.
            took: seconds; -1 if unknown.
            code: Kafka's error code, or a :class:`pixy.journal.Refusal`.
            flags: :data:`pixy.journal.WAITED` or :data:`pixy.journal.AUTO`.
            caller: who wrote the message, or got it last; empty: not known.
        """
        self.put((kind, at, stream, offset, attempt, timestamp, took, code, flags, caller))

    def put(self, event: RawEvent) -> None:
        """Add an event that is a tuple already, as code that runs for each message does."""
        if self._held >= self._limit:
            at = event[1]
            self._lost_first = self._lost_first if self._lost else at
            self._lost += 1
            self.lost_total += 1
            self._lost_last = at
            return
        self._held += 1
        events = self._events
        events.append(event)
        if len(events) >= self._full:
            self._filled()

    def put_many(self, events: Sequence[RawEvent]) -> None:
        """Add events that happened together, with one check of the limit."""
        count = len(events)
        if self._held + count > self._limit:
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
        """Take batches to write, each with the events that were lost before it.

        Args:
            partly: take all events, so that the last batch may be short, not only full batches.
        """
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

    def put_back(self, batches: Iterable[tuple[list[RawEvent], Lost]]) -> None:
        """Take back batches that cannot be written yet: their events are the first of the next :meth:`take`.

        Args:
            batches: as :meth:`take` returned them, in order.
        """
        back: list[RawEvent] = []
        for events, lost in batches:
            back += events
            self.failed += lost
        self._events[:0] = back
        self._full = len(self._events) // self._batch * self._batch + self._batch

    def columns(self, events: Sequence[RawEvent]) -> list[Sequence[Any]]:
        """Convert events to the journal's columns: times in whole microseconds since 1970.

        It goes column by column: event by event took four times as long as encoding them.
        """
        columns: list[Sequence[Any]] = list(zip(*events, strict=True)) or [()] * len(COLUMNS)
        if not self._callers:
            del columns[len(COLUMNS) :]
        shift = micros(self.shift)
        columns[1] = [int(at * 1e6) + shift for at in columns[1]]
        columns[6] = [int(took * 1e6) if took >= 0.0 else -1 for took in columns[6]]
        return columns

    def written(self, events: int) -> None:
        """Make room for as many events as a batch had that Kafka has now."""
        self._held -= events

    def not_written(self, own: Lost, lost: Lost) -> None:
        """Count a batch that is given up as lost.

        Args:
            own: its events.
            lost: the events whose loss it would have reported.
        """
        self._held -= own.events
        self.lost_total += own.events
        self.failed += lost + own


def micros(seconds: float) -> int:
    """Convert to whole microseconds."""
    return round(seconds * 1e6)


__all__ = ["AUTO", "WAITED", "Journal", "Kind", "RawEvent", "Refusal", "Stream", "micros"]
