"""Sampled spans: which actors a request passed through, and how long it waited and ran in each.

Every envelope carries a trace context anyway. A :class:`Tracer` gives each handled message a span of its own
in that context, and messages that the handler sends carry this span as their parent. A tracer that is not
installed costs nothing. The decision to record a trace is made once, where the trace begins: messages sent by
a handler of an unsampled trace are not sampled again, because that would record traces that start in the
middle of a chain.

A trace is complete when none of its messages waits, is put aside, or is being handled. Messages that are refused or
discarded are never handled, so a trace without activity for ``QUIET_NS`` also counts as ended.
"""

from __future__ import annotations

import fnmatch
import logging
import random
import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pykka.messages import ProxyCall, ProxyGetAttr, ProxySetAttr

from actors._core.instruments import Instrument
from actors._core.interruption import failed_itself
from actors._core.log_safely import log_safely
from actors._core.timers import TimerFired
from actors._trace import TraceContext
from actors.tracing.traces import KEPT_ERRORS, KEPT_SLOWEST, RING, Span, Trace, TraceStore

if TYPE_CHECKING:
    from actors._core.cell import Cell
    from actors._core.envelope import Envelope

logger = logging.getLogger("actors")

MAX_OPEN = 1_000
"""Most open traces; one more ends the trace without activity for longest, as incomplete."""

MAX_SPANS = 1_000
"""Most spans of one trace; further ones are counted in ``Trace.lost``."""

MAX_WATCHES = 100
"""Most unfinished calls of :meth:`Tracer.watch_next`; one more discards the oldest."""

QUIET_NS = 5_000_000_000
"""Nanoseconds without activity after which a trace that still waits for a message ends."""


def message_name(message: Any) -> str:
    """Name a message after its type.

    The message of a timer is named after its own type, not the runtime's wrapper. The name of a call through
    a proxy includes the path of the attribute.
    """
    if isinstance(message, TimerFired):
        message = message.message
    if isinstance(message, ProxyCall | ProxyGetAttr | ProxySetAttr):
        return f"{type(message).__name__} {'.'.join(message.attr_path)}"
    return type(message).__name__


class _OpenTrace:
    """An open trace."""

    __slots__ = ("last", "lost", "running", "spans", "waiting")

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.running = self.waiting = self.lost = 0
        self.last = 0


@dataclass(slots=True)
class _Watch:
    left: int
    path: re.Pattern[str] | None
    message: str | None

    def wants(self, cell: Cell, envelope: Envelope) -> bool:
        if self.message is not None and message_name(envelope[0]) != self.message:
            return False
        return self.path is None or self.path.match(cell.path) is not None


class Tracer(Instrument):
    """Record spans: ``remove = system.instrument(Tracer(sample=0.01))``.

    Args:
        sample: share of new traces to record, 0 to 1. Messages that arrive with a sampled context, such as a
            client's ``traceparent``, are always recorded.
        ring: number of latest finished traces to keep.
        errors: number of latest failed traces to keep in addition.
        slowest: number of slowest traces to keep in addition.
        rng: random numbers for sampling and ids; tests pass a seeded generator.

    Raises:
        ValueError: ``sample`` is out of range.
    """

    def __init__(
        self,
        sample: float = 0.0,
        *,
        ring: int = RING,
        errors: int = KEPT_ERRORS,
        slowest: int = KEPT_SLOWEST,
        rng: random.Random | None = None,
    ) -> None:
        if not 0 <= sample <= 1:
            raise ValueError(f"sample must be 0 to 1, not {sample}")
        self.sample = sample
        self.rng = rng or random.Random()
        self._unsampled = TraceContext.new(self.rng, sampled=False)
        """Carried by all messages of unsampled traces; they share one because nothing records it."""
        self._watches: deque[_Watch] = deque(maxlen=MAX_WATCHES)
        self._begun: dict[Cell, tuple[TraceContext, str | None, Envelope, int]] = {}
        self._open: OrderedDict[str, _OpenTrace] = OrderedDict()
        self._store = TraceStore(ring, errors, slowest)
        self._listeners: list[Callable[[Trace], None]] = []
        self._lock = threading.RLock()

    # -- for callers ---------------------------------------------------------------------------

    def watch_next(self, n: int, *, path: str | None = None, message: str | None = None) -> None:
        """Record the traces of the next ``n`` messages that match, regardless of ``sample``.

        Args:
            n: number of messages, at least 1.
            path: shell pattern for the path of the receiving actor; None matches all.
            message: the message's name, see :func:`message_name`; None matches all.

        Raises:
            ValueError: ``n`` is less than 1.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, not {n}")
        compiled = None if path is None else re.compile(fnmatch.translate(path))
        self._watches.append(_Watch(n, compiled, message))

    def traces(self) -> list[Trace]:
        """Return the finished traces that are kept (the latest, the failed, the slowest), oldest first."""
        with self._lock:
            return self._store.traces()

    def listen(self, listener: Callable[[Trace], None]) -> Callable[[], None]:
        """Call a function with each finished trace, on the thread where the trace ends.

        A listener that raises is logged and removed.

        Returns:
            A function that removes the listener.
        """
        self._listeners.append(listener)
        return lambda: self._forget(listener)

    def expire(self, now: int) -> None:
        """End the traces without activity for ``QUIET_NS``. Runs by itself whenever a trace begins.

        Args:
            now: the current time in nanoseconds of the system's clock.
        """
        with self._lock:
            quiet = [
                key for key, trace in self._open.items() if not trace.running and now - trace.last > QUIET_NS
            ]
            for key in quiet:
                self._finish(key, complete=False)

    def _forget(self, listener: Callable[[Trace], None]) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)

    # -- the instrument -------------------------------------------------------------------------

    def admit(self, cell: Cell, envelope: Envelope, lane: str) -> bool:
        """Count a sampled message that will wait; always admit it."""
        context = envelope[4]
        if context is not None and context.sampled:
            with self._lock:
                self._trace(context.trace_id, envelope[2]).waiting += 1
        return True

    def begin(self, cell: Cell, envelope: Envelope) -> None:
        """Start a span if the message's trace is recorded; messages that the handler sends carry it."""
        context = envelope[4]
        parent: str | None = None
        if self._watches and self._watched(cell, envelope):
            if context is None or context is self._unsampled:
                context = TraceContext.new(self.rng)
            else:
                parent = context.span_id
                context = TraceContext(context.trace_id, context.child(self.rng).span_id)
        elif context is None:
            if not self.sample or self.rng.random() >= self.sample:
                cell.trace = self._unsampled
                return
            context = TraceContext.new(self.rng)
        elif not context.sampled:
            return
        else:
            parent, context = context.span_id, context.child(self.rng)
        cell.trace = context
        self._began(cell, envelope, context, parent)

    def end(
        self, cell: Cell, envelope: Envelope, began: int, ended: int, error: BaseException | None
    ) -> None:
        """Finish the span."""
        if cell in self._begun:
            self._ended(cell, began, ended, None if error is None else type(error).__name__)

    def _watched(self, cell: Cell, envelope: Envelope) -> bool:
        for watch in tuple(self._watches):
            if watch.wants(cell, envelope):
                watch.left -= 1
                if watch.left <= 0:
                    self._watches.remove(watch)
                return True
        return False

    def _began(self, cell: Cell, envelope: Envelope, context: TraceContext, parent: str | None) -> None:
        now = cell.began
        if cell in self._begun:  # the previous handler was cut off, and end() was not called
            self._ended(cell, self._begun[cell][3], now, "Aborted")
        with self._lock:
            if context.trace_id not in self._open:
                self.expire(now)
            trace = self._trace(context.trace_id, now)
            trace.running += 1
            if parent is not None:
                trace.waiting = max(
                    0, trace.waiting - 1
                )  # it may have been sent before the tracer was installed
            self._begun[cell] = (context, parent, envelope, now)

    def _ended(self, cell: Cell, began: int, ended: int, error: str | None) -> None:
        context, parent, envelope, _ = self._begun.pop(cell)
        message, reply, sent, sender, *_ = envelope
        stashed = cell.stashed_last is envelope
        span = Span(
            context.trace_id,
            context.span_id,
            parent,
            cell.path,
            cell.actor_class.__name__,
            message_name(message),
            None if sender is None else sender.path,
            sent,
            began,
            ended,
            error,
            stashed,
        )
        with self._lock:
            trace = self._trace(context.trace_id, ended)
            trace.running = max(0, trace.running - 1)
            # The asker of a handler that has failed has its error: the message is not handled again.
            if stashed and (error is None or reply is None):
                trace.waiting += 1
            if len(trace.spans) < MAX_SPANS:
                trace.spans.append(span)
            else:
                trace.lost += 1
            if not trace.running and not trace.waiting:
                self._finish(context.trace_id, complete=True)

    # -- traces ---------------------------------------------------------------------------------

    def _trace(self, trace_id: str, now: int) -> _OpenTrace:
        trace = self._open.get(trace_id)
        if trace is None:
            while len(self._open) >= MAX_OPEN:
                self._finish(next(iter(self._open)), complete=False)
            trace = self._open[trace_id] = _OpenTrace()
        else:
            self._open.move_to_end(trace_id)
        trace.last = max(trace.last, now)
        return trace

    def _finish(self, trace_id: str, *, complete: bool) -> None:
        ended = self._open.pop(trace_id)
        if not ended.spans:
            return  # none of its messages was ever handled
        trace = Trace(trace_id, tuple(ended.spans), complete, ended.lost)
        self._store.add(trace)
        for listener in tuple(self._listeners):
            try:
                listener(trace)
            except BaseException as error:
                if failed_itself(error):
                    log_safely(logger.exception, "the trace listener %r failed and is removed", listener)
                    self._forget(listener)


__all__ = ["Span", "Trace", "Tracer", "message_name"]
