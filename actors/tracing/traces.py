"""Finished traces and their spans, and the selection of traces that a tracer keeps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

RING = 256
"""Number of latest finished traces to keep."""

KEPT_ERRORS = 64
"""Number of latest finished traces with an error to keep in addition."""

KEPT_SLOWEST = 32
"""Number of slowest finished traces to keep in addition."""


@dataclass(frozen=True, slots=True)
class Span:
    """One message in one actor. Times are nanoseconds of the system's clock.

    The message waited from ``sent`` to ``began`` and was handled from ``began`` to ``ended``, including the
    time that a coroutine handler awaited. ``parent_id`` is the span of the sender, None for the root.
    ``error`` is the name of the exception's type; it is ``"Aborted"`` if the handler was cut off because its
    actor stopped or restarted. ``stashed`` says that the actor has put the message aside: the span ends with
    that, and the next handling of the message is a span of its own, with this one as its parent.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    path: str
    actor_class: str
    message: str
    sender: str | None
    sent: int
    began: int
    ended: int
    error: str | None
    stashed: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """A finished trace: its spans in the order in which they ended.

    ``complete`` is False if the trace was ended before all its messages were handled. ``lost`` counts the
    spans beyond ``MAX_SPANS``.
    """

    trace_id: str
    spans: tuple[Span, ...]
    complete: bool
    lost: int

    @property
    def duration(self) -> float:
        """Seconds from the sending of the first message to the end of the last handler."""
        if not self.spans:
            return 0.0
        return (max(each.ended for each in self.spans) - min(each.sent for each in self.spans)) / 1e9

    @property
    def failed(self) -> bool:
        """Tell whether any handler failed."""
        return any(each.error is not None for each in self.spans)


class TraceStore:
    """The finished traces that a tracer keeps: the latest, the failed and the slowest.

    Args:
        ring: number of latest traces.
        errors: number of latest failed traces.
        slowest: number of slowest traces.
    """

    def __init__(self, ring: int, errors: int, slowest: int) -> None:
        self._ring: deque[Trace] = deque(maxlen=ring)
        self._errors: deque[Trace] = deque(maxlen=errors)
        self._slowest: list[tuple[float, Trace]] = []
        self._keep_slowest = slowest

    def add(self, trace: Trace) -> None:
        """Keep a trace as one of the latest, and among the failed and the slowest if it belongs there."""
        self._ring.append(trace)
        if trace.failed:
            self._errors.append(trace)
        self._keep_if_slow(trace)

    def traces(self) -> list[Trace]:
        """Return the traces that are kept, oldest first."""
        slowest = (trace for _, trace in self._slowest)
        kept = {id(each): each for each in (*self._ring, *self._errors, *slowest)}
        return sorted(kept.values(), key=lambda trace: trace.spans[-1].ended)

    def _keep_if_slow(self, trace: Trace) -> None:
        # Most traces are not slow; comparing with the fastest kept trace costs a tenth of sorting.
        duration = trace.duration
        full = len(self._slowest) >= self._keep_slowest
        if full and (not self._slowest or duration <= self._slowest[-1][0]):
            return
        self._slowest.append((duration, trace))
        self._slowest.sort(key=lambda each: each[0], reverse=True)
        del self._slowest[self._keep_slowest :]


__all__ = ["KEPT_ERRORS", "KEPT_SLOWEST", "RING", "Span", "Trace", "TraceStore"]
