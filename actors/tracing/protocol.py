"""The contents of the monitor's frames.

Each frame is a map with ``v`` (the version), ``kind``, and ``at``: the moment that all its data describes, in
nanoseconds of the system's clock. The other keys depend on the kind:

- ``snapshot``: page ``page`` of ``pages`` with the actors that the watcher's filter matches: ``new`` and
  ``dirty`` as in a delta. ``wall`` is the wall-clock time at ``at``, in nanoseconds since 1970.
- ``delta``: the changes since the last delta. ``new`` names actors (:data:`IDENTITY`), ``dirty`` has a row of
  numbers (:data:`ROW`) for each new or changed actor, ``gone`` lists the ids of actors that no longer exist.
  ``window`` is the time since the last delta in seconds; ``hidden`` counts the actors that match but exceed
  the watcher's limit. Many changes come in several frames of the same ``at``; ``more`` says that another one
  follows, and ``gone``, ``window`` and ``hidden`` are those of the last.
- ``details``: one opened actor at ``path``; ``actor`` is a map, or None if no actor has that path.
- ``trace``: finished ``traces``.
- ``event``: ``events`` of the runtime.
- ``asks``: the wait graph (:func:`actors.tracing.wait_graph`), for watchers that ask for it.
- ``flow``: the ``edges`` between actor classes, for watchers that ask for them.
- ``dropped``: how many ``events`` and ``traces`` did not fit between two ticks.

An actor's path and class are sent once, and its rows refer to it by a number. That saves most of the bytes
that interning strings would save, without a table that both sides have to keep in step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from actors._core.error_text import repr_of_any, str_of_any
from actors._core.inspection import recent_headers, statistics_of
from actors._core.stack import MAX_STACK, stack_of
from actors._core.stats import BOUNDS_NS
from actors.tracing.flow import Edge
from actors.tracing.traces import Span

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._events import Event
    from actors.tracing.traces import Trace

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

``oldest`` is when the oldest waiting message was sent, ``since`` is when handling of the current message
began; both are on the scale of ``at``, and 0 means none. They are moments, not ages, so that rows that are
not sent again stay correct. ``refused`` counts messages that a full mailbox dropped or rejected. Rates are
per second and quantiles are in seconds, over the window that ended at ``at``.
"""

MAX_TEXT = 1_000
"""Most characters of a text from outside of the runtime, such as a redacted payload."""

Redact = Callable[[Any], Any]
_IDLE = (0.0,) * 7


def type_name(thing: Any) -> str:
    """Name the type of a value; the default of ``redact``, which hides payloads."""
    return type(thing).__name__


class Sample:
    """The last look at one actor, kept to compute what changed."""

    __slots__ = ("active", "cell", "id", "key", "row", "runs", "waits")

    def __init__(self, number: int, cell: Cell) -> None:
        self.id = number
        self.cell = cell
        self.key: tuple[Any, ...] = ()
        self.row: tuple[Any, ...] = ()
        self.active = False
        self.waits: Sequence[int] = ()
        self.runs: Sequence[int] = ()

    def read(self, window: float) -> bool:
        """Look at the actor; return whether its row differs from the last one.

        Args:
            window: seconds since the last look; 0 for the first look, which has no rates yet.
        """
        cell = self.cell
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
        waited, ran = self.waits, self.runs
        self.waits, self.runs = waits, runs
        self.active = bool(before) and window > 0 and key[3:5] != before[3:5]
        if not self.active:
            # Messages may arrive while none is handled.
            came = max(0, key[1] - before[1]) / window if before and window > 0 else 0.0
            self.active = came > 0
            return (came, *_IDLE[1:])
        handled = key[3] - before[3]
        return (
            max(0, handled + key[1] - before[1]) / window,
            handled / window,
            (key[4] - before[4]) / window,
            *_quantiles(waits, waited),
            *_quantiles(runs, ran),
        )


def _quantiles(now: Sequence[int], before: Sequence[int]) -> tuple[float, float]:
    """Return the seconds below which half and 99 of 100 durations lie that were counted between two looks; 0.0 if none was.

    It is :meth:`actors._core.stats.Histogram.quantile` for both at once; the buckets that an actor has never used are left out.
    """
    counts = [*map(int.__sub__, now, before), *now[len(before) :]]
    total = sum(counts)
    half, seen = 0, 0
    for count, bound in zip(counts, BOUNDS_NS, strict=False):
        seen += count
        if not half and seen and seen >= 0.5 * total:
            half = bound
        if seen and seen >= 0.99 * total:
            return half / 1e9, bound / 1e9
    return 0.0, 0.0


def oldest(cell: Cell) -> int:
    """Return when the oldest waiting message was sent, 0 for none. Looks only at the first of each lane."""
    firsts = [lane[0][2] for lane in cell.mailbox.lanes() if lane]
    return min(firsts, default=0)


def identity(cell: Cell, number: int) -> tuple[Any, ...]:
    """Build a row of :data:`IDENTITY`.

    Args:
        cell: the actor.
        number: the id that the actor's rows refer to.
    """
    return number, cell.path, cell.actor_class.__name__


def details(cell: Cell) -> dict[str, Any]:
    """Describe one actor in full as plain data: durations in seconds, histograms as counts per bucket."""
    statistics = statistics_of(cell)
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
    keys = cell.timer_keys()
    found |= {
        "recent": recent_headers(cell),
        "children": list(cell.children)[:MAX_TEXT],
        "timers": [text(repr_of_any(key)) for key in keys],
        "waits_for": None if target is None else target.path,
        "asks": asks_of(cell),
        "trace": None if cell.trace is None else cell.trace.trace_id,
        "supervision": {
            "strategy": supervision.strategy.value,
            "restarts": supervision.intensity.restarts,
            "window": supervision.intensity.window,
        },
        "error": None if cell.error is None else type_name(cell.error),
        "stack": stack_of(cell.task),
    }
    return found


def asks_of(cell: Cell) -> list[dict[str, Any]]:
    """List the asks among the first ``MAX_TEXT`` messages of this actor that have no answer yet."""
    now = cell.clock()
    handled = () if cell.envelope is None else (cell.envelope,)
    waiting = islice(chain(handled, cell.mailbox), MAX_TEXT)
    return [
        {
            "asker": None if sender is None else sender.path,
            "message": type_name(message),
            "state": "handling" if envelope is cell.envelope else "queued",
            "age": (now - sent) / 1e9,
        }
        for envelope in waiting
        for message, reply, sent, sender, *_ in (envelope,)
        if reply is not None and not reply.done()
    ]


def event(happened: Event, redact: Redact) -> dict[str, Any]:
    """Convert an event to plain data.

    Args:
        happened: the event.
        redact: maps each message and error in it to the value that is shown.
    """
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
    """Return the path of the actor that an event concerns; None if it concerns the whole system."""
    found: str | None = getattr(happened, "path", None) or getattr(happened, "recipient", None)
    return found


_SPAN = tuple(field.name for field in dataclasses.fields(Span))
_EDGE = tuple(field.name for field in dataclasses.fields(Edge))


def trace(finished: Trace) -> dict[str, Any]:
    """Convert a finished trace to plain data."""
    return {
        "trace_id": finished.trace_id,
        "complete": finished.complete,
        "lost": finished.lost,
        "duration": finished.duration,
        "failed": finished.failed,
        # asdict() copies each value: 18 microseconds a span, this takes 1.5.
        "spans": [{name: getattr(each, name) for name in _SPAN} for each in finished.spans],
    }


def edge(found: Edge) -> dict[str, Any]:
    """Convert an edge between two actor classes to plain data."""
    return {name: getattr(found, name) for name in _EDGE}


def plain(value: Any) -> Any:
    """Return numbers and None unchanged, everything else as text of at most ``MAX_TEXT`` characters."""
    return value if value is None or isinstance(value, bool | int | float) else text(str_of_any(value))


def text(value: str) -> str:
    """Cut a text to ``MAX_TEXT`` characters."""
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}…"


__all__ = ["IDENTITY", "MAX_STACK", "MAX_TEXT", "ROW", "VERSION", "Sample", "details", "event"]
