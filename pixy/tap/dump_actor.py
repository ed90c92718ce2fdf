"""The dump's queue and its actor: frames go to a thread of its own, and forwarding never waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from actors import Request, ThreadedActor, handles
from pixy.tap import events
from pixy.tap.config import Bounds
from pixy.tap.dump import Dump, DumpEvent, Writer, limit
from pixy.tap.dump_filter import DumpFilter
from pixy.tap.dump_writers import Limited

_MAX_BATCH: Final = 1_000
"""Events in a batch, at most."""
_INTERVAL: Final = 0.02
"""Seconds between batches, as in :mod:`pixy.tap.event_queue`."""


class DumpWriter(Writer, Protocol):
    """A writer with a file."""

    file: Limited

    def lost(self, frames: int, at: float) -> None:
        """Note that frames were left out."""


@dataclass(frozen=True, slots=True)
class DumpTarget:
    """What to dump and where to: ``--dump`` and ``--filter``."""

    wanted: DumpFilter
    writer: DumpWriter
    on_end: Callable[[Exception], None]
    """Is called once, in the dump's thread, with the error after which nothing more is written."""


class DumpBatch(NamedTuple):
    """Events in the order in which they happened."""

    events: tuple[DumpEvent, ...]
    size: int
    """Bytes of the frames."""
    lost: int
    """Frames that were left out before."""


class FlushDump(Request[None]):
    """To the dump: the reply says that all batches before have been written."""


class DumpQueue:
    """The :class:`~pixy.tap.conversation.FrameSink` of all connections. It never waits.

    Args:
        wanted: which frames to show.
        bounds: ``backlog`` limits the bytes of frames that wait.
        deliver: hands a batch to the actor; returns whether the actor accepted it.
    """

    def __init__(self, wanted: DumpFilter, bounds: Bounds, deliver: Callable[[DumpBatch], bool]) -> None:
        self._wanted, self._bounds, self._deliver = wanted, bounds, deliver
        self._events: list[DumpEvent] = []
        self._size = 0
        self._reserved = 0  # bytes of frames reserved so far; only the loop writes it
        self._released = 0  # bytes of frames written so far; only the actor's thread writes it
        self._lost = 0
        self._timer: asyncio.TimerHandle | None = None
        self.ended = False
        """Whether the dump has ended, and wants nothing more."""

    def limit(self, key: int, version: int) -> int | None:
        """See :class:`pixy.tap.conversation.FrameSink`."""
        return None if self.ended else limit(self._wanted, key, version)

    def reserve(self, size: int) -> bool:
        """See :class:`pixy.tap.conversation.FrameSink`."""
        if self._reserved - self._released + size > self._bounds.backlog:
            self._lost += 1
            return False
        self._reserved += size
        return True

    def unreserve(self, size: int) -> None:
        """See :class:`pixy.tap.conversation.FrameSink`."""
        self._reserved -= size

    def put(self, event: DumpEvent) -> None:
        """See :class:`pixy.tap.conversation.FrameSink`."""
        self._events.append(event)
        if isinstance(event, events.FrameSeen):
            self._size += len(event.frame)
        if len(self._events) >= _MAX_BATCH:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL, self._on_timer)

    def done(self, batch: DumpBatch) -> None:
        """Release the room of a batch. The actor's thread calls this."""
        self._released += batch.size

    def flush(self) -> None:
        """Deliver the gathered events now, or drop and count them if the actor is behind."""
        if not self._events:
            return
        batch = DumpBatch(tuple(self._events), self._size, self._lost)
        if self._deliver(batch):
            self._lost = 0
        else:
            self._reserved -= self._size
            self._lost += sum(isinstance(each, events.FrameSeen) for each in self._events)
        self._events, self._size = [], 0

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()


class DumpActor(ThreadedActor):
    """Decode and write frames until the file is full, nobody reads it, or the tap stops.

    Args:
        target: what and where to.
        queue: gives the batches.
        bounds: limits of what the dump remembers.
    """

    mailbox_capacity = 200
    use_daemon_thread = True

    def __init__(self, target: DumpTarget, queue: DumpQueue, bounds: Bounds) -> None:
        super().__init__()
        self._target, self._queue = target, queue
        self._dump = Dump(target.wanted, target.writer, bounds)

    @handles(DumpBatch)
    def _take(self, batch: DumpBatch) -> None:
        try:
            if not self._queue.ended:
                self._write(batch)
        except Exception as error:  # the disk is full, the reader is gone, a defect: never the tap's end
            self._end(error)
        finally:
            self._queue.done(batch)

    def _write(self, batch: DumpBatch) -> None:
        if batch.lost:
            self._target.writer.lost(batch.lost, time.time())
        for event in batch.events:
            self._dump.take(event)
        self._target.writer.file.flush()

    @handles(FlushDump)
    def _flush(self, _: FlushDump) -> None:
        """Answer: all earlier messages have been handled."""

    def _end(self, error: Exception) -> None:
        self._queue.ended = True
        self._target.on_end(error)

    def on_stop(self) -> None:
        """Close the file."""
        try:
            self._target.writer.file.close()
        except OSError as error:
            if not self._queue.ended:
                self._end(error)


__all__ = ["DumpActor", "DumpBatch", "DumpQueue", "DumpTarget", "FlushDump"]
