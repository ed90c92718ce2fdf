"""Count the messages between actor classes, for as long as someone watches.

The counters are per class, not per actor: a map of all actors is unreadable, and its size has no bound.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from actors._core.instruments import Instrument
from actors._core.stats import BUCKETS, SHIFT, Histogram
from actors._events import DeadLetter, Dropped
from actors.tracing.spans import message_name

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._system import ActorSystem

MAX_EDGES = 10_000
"""Most edges that are counted separately; messages of all further edges are counted in ``Flow.beyond``."""

STEP = 200
"""Edges in one step of :meth:`Flow.edge_steps`; an edge takes some 10 microseconds."""

OUTSIDE = "(outside)"
"""Stands for the sender's class of a message that was not sent by an actor."""

GONE = "(gone)"
"""Stands for the class of an actor that no longer exists."""

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Edge:
    """The messages of one type from one actor class to another, since the first watcher came.

    ``count`` messages were handled, ``failed`` of them raised an exception, and ``drops`` further messages
    were never handled. ``wait_p99`` and ``run_p99`` are in seconds, see :class:`actors.ActorStatistics`.
    """

    sender: str
    receiver: str
    message: str
    count: int
    failed: int
    drops: int
    wait_p99: float
    run_p99: float


class _Counts:
    __slots__ = ("count", "drops", "failed", "runs", "waits")

    def __init__(self) -> None:
        self.count = self.drops = self.failed = 0
        self.waits = [0] * BUCKETS
        self.runs = [0] * BUCKETS


class Flow(Instrument):
    """Count messages per edge while watched: ``with flow.watch(): ...; flow.edges()``.

    The first watcher resets the counters and installs the instrument; the last one to leave removes it. The
    counters can be read until another first watcher comes.

    Args:
        system: the system whose messages are counted.
    """

    def __init__(self, system: ActorSystem) -> None:
        self.system = system
        self.beyond = 0
        """Number of messages of edges beyond ``MAX_EDGES``."""
        self._edges: dict[Key, _Counts] = {}
        self._watchers = 0
        self._removers: list[Callable[[], None]] = []
        self._lock = threading.RLock()  # a signal handler's messages count, too

    @contextlib.contextmanager
    def watch(self) -> Iterator[Flow]:
        """Count inside the ``with`` block. Call it on the loop's thread."""
        self._watchers += 1
        if self._watchers == 1:
            self._edges, self.beyond = {}, 0
            self._removers = [
                self.system.instrument(self),
                self.system.events.subscribe(self._on_dropped, Dropped, DeadLetter),
            ]
        try:
            yield self
        finally:
            self._watchers -= 1
            if not self._watchers:
                removers, self._removers = self._removers, []
                for remove in removers:
                    remove()

    @property
    def watching(self) -> bool:
        """Tell whether messages are counted at the moment."""
        return self._watchers > 0

    def edges(self) -> list[Edge]:
        """Return all edges, the busiest first."""
        steps = self.edge_steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                found: list[Edge] = end.value
                return found

    def edge_steps(self) -> Generator[None, None, list[Edge]]:
        """Do what :meth:`edges` does in steps of ``STEP`` edges: let the loop turn after each."""
        with self._lock:
            counted = list(self._edges.items())
        found: list[Edge] = []
        for number, (key, counts) in enumerate(counted, 1):
            with self._lock:
                found.append(
                    Edge(
                        *key,
                        counts.count,
                        counts.failed,
                        counts.drops,
                        Histogram(tuple(counts.waits)).quantile(0.99),
                        Histogram(tuple(counts.runs)).quantile(0.99),
                    )
                )
            if number % STEP == 0:
                yield
        return sorted(found, key=lambda edge: -edge.count - edge.drops)

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Count a handled message."""
        message, _, sent, sender, *_ = envelope
        key = (
            OUTSIDE if sender is None else sender.actor_class.__name__,
            cell.actor_class.__name__,
            message_name(message),
        )
        with self._lock:  # actors with a thread of their own may have the same class
            counts = self._counts(key)
            if counts is not None:
                counts.count += 1
                counts.failed += error is not None
                counts.waits[_bucket(began - sent)] += 1
                counts.runs[_bucket(ended - began)] += 1

    def _on_dropped(self, event: Dropped | DeadLetter) -> None:
        sender = OUTSIDE if event.sender is None else self._class_at(event.sender)
        key = (sender, self._class_at(event.recipient), message_name(event.message))
        with self._lock:
            counts = self._counts(key)
            if counts is not None:
                counts.drops += 1

    def _class_at(self, path: str) -> str:
        ref: Any = self.system.lookup(path)
        return GONE if ref is None else str(ref.actor_class.__name__)

    def _counts(self, key: Key) -> _Counts | None:
        counts = self._edges.get(key)
        if counts is None:
            if len(self._edges) >= MAX_EDGES:
                self.beyond += 1
                return None
            counts = self._edges[key] = _Counts()
        return counts


def _bucket(duration: int) -> int:
    return min((max(duration, 0) >> SHIFT).bit_length(), BUCKETS - 1)


__all__ = ["Edge", "Flow"]
