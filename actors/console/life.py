"""One actor's life: the last messages it handled, and everything else that is known about it.

The runtime keeps the headers of the last 20 messages of each actor. While a page shows an actor, an instrument also
notes how long each of its messages waited and ran; it costs every message of the system a look into a dict then.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any

from actors._core.inspection import recent_headers, statistics_of
from actors._core.instruments import Instrument
from actors._core.stack import stack_of
from actors._core.stats import BOUNDS_NS, Histogram
from actors.console.board import shown
from actors.console.failures import EventLog
from actors.console.state import state_of
from actors.tracing.protocol import Sample, type_name
from actors.tracing.spans import message_name
from actors.tracing.waits import asks_of

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope
    from actors._system import ActorSystem

MAX_ACTORS = 32
"""Most actors whose messages are noted; the one that no page has asked about for longest gives way."""

MAX_NOTED = 50
"""Most messages that are noted of an actor, the latest."""

MAX_SHOWN = 50
"""Most asks, timers, children and events of an actor in one frame."""

BOUNDS = [bound / 1e9 for bound in BOUNDS_NS]
"""Upper bounds of the histograms' buckets, in seconds."""


class Lives(Instrument):
    """The actors that pages show.

    Args:
        system: their system.
        log: has their failures.
    """

    def __init__(self, system: ActorSystem, log: EventLog) -> None:
        self.system = system
        self._log = log
        self._noted: OrderedDict[Cell, deque[dict[str, Any]]] = OrderedDict()
        self._before: dict[Cell, tuple[Sample, int]] = {}

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note messages in a ``with`` block."""
        remove = self.system.instrument(self)
        try:
            yield
        finally:
            remove()
            self._noted.clear()
            self._before.clear()

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Note a message that was handled."""
        noted = self._noted.get(cell)
        if noted is None:
            return
        message, reply, sent, sender, *_ = envelope
        noted.append(
            {
                "at": time.time(),
                "message": message_name(message),
                "sender": None if sender is None else sender.path,
                "ask": reply is not None,
                "wait": max(0, began - sent) / 1e9,
                "run": (ended - began) / 1e9,
                "error": None if error is None else type_name(error),
            }
        )

    def describe(self, path: str, *, watched: bool = True) -> dict[str, Any]:
        """Say all about an actor: ``actor`` is None if there is none at this path.

        Args:
            path: the actor's.
            watched: whether to note its messages from now on.
        """
        ref: Any = self.system.lookup(path)
        if ref is None:
            return {"path": path, "actor": None, "events": self._log.about(path)[:MAX_SHOWN]}
        cell: Cell = ref._cell
        if watched:
            self._note(cell)
        return {"path": path, "actor": self._actor(cell), "events": self._log.about(path)[:MAX_SHOWN]}

    def _note(self, cell: Cell) -> None:
        if cell not in self._noted:
            while len(self._noted) >= MAX_ACTORS:
                old, _ = self._noted.popitem(last=False)
                self._before.pop(old, None)
            self._noted[cell] = deque(maxlen=MAX_NOTED)
        self._noted.move_to_end(cell)

    def _actor(self, cell: Cell) -> dict[str, Any]:
        statistics, now = statistics_of(cell), cell.clock()
        waiting = cell.waiting_on
        target = None if waiting is None else waiting.target
        supervision = cell.supervision
        return {
            **self._row(cell, now),
            "parent": None if cell.parent is None else cell.parent.path,
            "module": cell.actor_class.__module__,
            "abandoned": statistics.abandoned,
            "tasks": statistics.tasks,
            "stashed": statistics.mailbox.stashed,
            "senders": statistics.mailbox.waiting,
            "lanes": [statistics.mailbox.system, statistics.mailbox.priority, statistics.mailbox.normal],
            "waits": statistics.wait.counts,
            "runs": statistics.run.counts,
            "bounds": BOUNDS,
            "quantiles": [_quantiles(statistics.wait), _quantiles(statistics.run)],
            "children": [
                {"path": each.path, "name": each.name, "state": each.state}
                for each in islice(tuple(cell.children.values()), MAX_SHOWN)
            ],
            "child_count": len(cell.children),
            "timers": [
                str(key)[:200] if isinstance(key, str | int) else type_name(key)
                for key in cell.timer_keys()[:MAX_SHOWN]
            ],
            "waits_for": None if target is None else target.path,
            "asks": [
                {"asker": ask.asker, "message": ask.message, "state": ask.state, "age": ask.age}
                for ask in islice(asks_of(cell, now), MAX_SHOWN)
            ],
            "supervision": f"{supervision.strategy.value}, {supervision.intensity.restarts:,} restarts in {supervision.intensity.window:g} s",
            "error": None if cell.error is None else type_name(cell.error),
            "stack": stack_of(cell.task),
            "recent": list(reversed(recent_headers(cell))),
            "envelopes": list(reversed(self._noted.get(cell, ()))),
            **{f"state_{name}": value for name, value in state_of(cell).items()},
        }

    def _row(self, cell: Cell, now: int) -> dict[str, Any]:
        """Make the actor's row, with the rates since the last frame."""
        sample, before = self._before.get(cell) or (Sample(0, cell), 0)
        sample.read((now - before) / 1e9 if before else 0.0)
        if cell in self._noted:
            self._before[cell] = sample, now
        return shown(cell, sample.row, now)


def _quantiles(histogram: Histogram) -> list[float]:
    return [histogram.quantile(share) for share in (0.5, 0.9, 0.99)]


__all__ = ["Lives"]
