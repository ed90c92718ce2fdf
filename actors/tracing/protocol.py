"""What the monitor's frames hold.

Each frame is a map with ``v`` (the version), ``kind`` and ``at``: the one moment, in nanoseconds of
the system's clock, that all its data belongs to.

- ``snapshot``: page ``page`` of ``pages`` of what the watcher's filter matches: ``new`` and
  ``dirty`` as below; ``wall`` is the time of day at ``at``, in nanoseconds since 1970.
- ``delta``: what changed since the last one: ``new`` names actors (:data:`IDENTITY`), ``dirty`` has
  a row of numbers (:data:`ROW`) for each new or changed one, ``gone`` the ids of those that are not
  there any more. ``window`` is its length in seconds; ``hidden`` counts actors that match but are
  beyond the watcher's bound.
- ``details``: one opened actor, ``actor`` (a map, None if there is none of that path).
- ``trace``: finished ``traces``; ``event``: ``events`` of the runtime.
- ``asks``: the wait graph (:func:`actors.tracing.wait_graph`); ``flow``: the ``edges`` between classes
  since somebody began to watch them. Both for watchers that want them.
- ``dropped``: how many ``events`` and ``traces`` did not fit between two ticks.

An actor's path and class are sent once and its rows name it by a number: that is most of what
interning strings would save, without a table that both sides have to keep alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from actors._core.stack import MAX_STACK, stack_of
from actors._core.stats import BUCKETS, Histogram

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._events import Event
    from actors.tracing.flow import Edge
    from actors.tracing.spans import Trace

VERSION = 1

IDENTITY = ("id", "path", "actor_class")
"""Columns of ``new``."""

ROW = (
    "id",
    "state",
    "depth",
    "capacity",
    "oldest",
    "processed",
    "failed",
    "restarts",
    "refused",
    "current",
    "since",
    "in_rate",
    "out_rate",
    "error_rate",
    "wait_p50",
    "wait_p99",
    "run_p50",
    "run_p99",
)
"""Columns of ``dirty``.

``oldest`` (sent) and ``since`` (begun) are moments on the scale of ``at``, 0 for none, so that ages
go on in rows that are not sent again. ``refused`` counts messages that a full mailbox dropped or
rejected. Rates are per second, the quantiles in seconds, over the window that ended at ``at``.
"""

MAX_TEXT = 1_000
"""Characters of a text from outside of the runtime, such as a redacted payload."""

Redact = Callable[[Any], Any]
_IDLE = (0.0,) * 7


def type_name(thing: Any) -> str:
    """The default of ``redact``: a payload is only named by its type."""
    return type(thing).__name__


class Sample:
    """What is kept of one actor between two ticks."""

    __slots__ = ("active", "id", "key", "row", "runs", "waits")

    def __init__(self, number: int) -> None:
        self.id = number
        self.key: tuple[Any, ...] = ()
        self.row: tuple[Any, ...] = ()
        self.active = False
        self.waits = self.runs = (0,) * BUCKETS

    def read(self, cell: Cell, window: float) -> bool:
        """Look at the actor; whether its row is another one than before.

        Args:
            cell: the actor.
            window: seconds since the last look; 0 if there was none, then there are no rates yet.
        """
        mailbox, envelope = cell.mailbox, cell.envelope
        depth, sent = (0, 0) if mailbox.empty() else (len(mailbox), oldest(cell))
        key = (
            cell.state,
            depth,
            sent,
            sum(cell.runs),
            cell.failed,
            cell.restarts,
            mailbox.dropped + mailbox.rejected,
            0 if envelope is None else cell.began,
        )
        if key == self.key and not self.active:
            return False
        rates = self._rates(cell, key, window)
        state, _, _, processed, failed, restarts, refused, since = key
        self.row = (
            self.id,
            state,
            depth,
            mailbox.capacity,
            sent,
            processed,
            failed,
            restarts,
            refused,
            None if envelope is None else type(envelope[0]).__name__,
            since,
            *rates,
        )
        self.key = key
        return True

    def _rates(self, cell: Cell, key: tuple[Any, ...], window: float) -> tuple[float, ...]:
        before = self.key
        waits, runs = tuple(cell.waits), tuple(cell.runs)
        waited, ran = _since(waits, self.waits), _since(runs, self.runs)
        self.waits, self.runs = waits, runs
        self.active = bool(before) and window > 0 and key[3:5] != before[3:5]
        if not self.active:
            # Messages may come in without one going out.
            came = max(0, key[1] - before[1]) / window if before and window > 0 else 0.0
            self.active = came > 0
            return (came, *_IDLE[1:])
        handled = key[3] - before[3]
        return (
            max(0, handled + key[1] - before[1]) / window,
            handled / window,
            (key[4] - before[4]) / window,
            waited.quantile(0.5),
            waited.quantile(0.99),
            ran.quantile(0.5),
            ran.quantile(0.99),
        )


def _since(now: Sequence[int], before: Sequence[int]) -> Histogram:
    return Histogram(tuple(a - b for a, b in zip(now, before, strict=True)))


def oldest(cell: Cell) -> int:
    """When the oldest message that waits was sent, 0 for none. Looks at each lane's first only."""
    firsts = [lane[0][2] for lane in cell.mailbox._lanes() if lane]
    return min(firsts, default=0)


def identity(cell: Cell, number: int) -> tuple[Any, ...]:
    """A row of :data:`IDENTITY`."""
    return number, cell.path, cell.actor_class.__name__


def details(cell: Cell) -> dict[str, Any]:
    """All about one actor, as plain data. Durations in seconds, histograms as counts per bucket."""
    statistics = cell.statistics()
    found = dataclasses.asdict(statistics)
    for name, histogram in (("wait", statistics.wait), ("run", statistics.run)):
        found[name] = {
            "counts": histogram.counts,
            "p50": histogram.quantile(0.5),
            "p99": histogram.quantile(0.99),
        }
    waiting = cell.waiting_on
    target = None if waiting is None else waiting.target
    supervision = cell.supervision
    keys = () if cell._timers is None else cell._timers.keys()
    found |= {
        "recent": cell.recent_headers(),
        "children": list(cell.children)[:MAX_TEXT],
        "timers": [text(repr(key)) for key in keys],
        "waits_for": None if target is None else target.path,
        "asks": asks_of(cell),
        "trace": None if cell.trace is None else cell.trace.trace_id,
        "supervision": {
            "strategy": supervision.strategy.value,
            "restarts": supervision.intensity.restarts,
            "window": supervision.intensity.window,
        },
        "error": None if cell.error is None else type_name(cell.error),
        "stack": stack_of(cell),
    }
    return found


def asks_of(cell: Cell) -> list[dict[str, Any]]:
    """The asks that this actor has not answered yet; see :class:`actors.PendingAsk`."""
    now = cell.clock()
    handled = () if cell.envelope is None else (cell.envelope,)
    return [
        {
            "asker": None if sender is None else sender.path,
            "message": type_name(message),
            "state": "handling" if envelope is cell.envelope else "queued",
            "age": (now - sent) / 1e9,
        }
        for envelope in chain(handled, cell.mailbox)
        for message, reply, sent, sender, _ in (envelope,)
        if reply is not None and not reply.done()
    ][:MAX_TEXT]


def event(happened: Event, redact: Redact) -> dict[str, Any]:
    """An event as plain data; messages and errors go through ``redact``."""
    found: dict[str, Any] = {"type": type_name(happened)}
    for field in dataclasses.fields(happened):
        value = getattr(happened, field.name)
        payload = field.name == "message" and type_name(happened) in _WITH_PAYLOAD
        if payload or isinstance(value, BaseException):
            value = plain(redact(value))
        elif field.name == "stack":
            value = value[-MAX_STACK:]
        found[field.name] = value
    return found


_WITH_PAYLOAD = {"DeadLetter", "Dropped", "Unhandled"}


def path_of(happened: Event) -> str | None:
    """The actor that an event is about; None if it is about the whole system."""
    found: str | None = getattr(happened, "path", None) or getattr(happened, "recipient", None)
    return found


def trace(finished: Trace) -> dict[str, Any]:
    """A finished trace as plain data."""
    return {
        "trace_id": finished.trace_id,
        "complete": finished.complete,
        "lost": finished.lost,
        "duration": finished.duration,
        "failed": finished.failed,
        "spans": [dataclasses.asdict(each) for each in finished.spans],
    }


def edge(found: Edge) -> dict[str, Any]:
    """An edge between two classes as plain data."""
    return dataclasses.asdict(found)


def plain(value: Any) -> Any:
    """Numbers, None and short texts as they are, everything else as text, cut to ``MAX_TEXT``."""
    return value if value is None or isinstance(value, bool | int | float) else text(str(value))


def text(value: str) -> str:
    """Cut to ``MAX_TEXT`` characters."""
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"


__all__ = ["IDENTITY", "MAX_STACK", "MAX_TEXT", "ROW", "VERSION", "Sample", "details", "event"]
