"""The daemon's diagnostics: blocked loop, slow handlers, failures, traces, and a dump on demand.

The actor runtime detects all of them; this module decides what to log. Without ``trace`` it costs no message
anything: one thread watches the loop, and failures and slow handlers are events.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Any

from actors import ActorSystem, SlowHandler, TraceContext, trace_as
from actors.tracing import Crashes, LoopWatch, Trace, Tracer, wait_graph_steps
from pixy.config.model import Diagnostics as Settings

logger = logging.getLogger("pixy.engine")
trace_logger = logging.getLogger("pixy.trace")

SLOW_EVERY = 10.0
"""Seconds between two log lines about the same slow handler."""

UNSET = 0.5
"""Seconds without a sign of life from which on a loop counts as blocked if ``diagnostics.blocked_loop`` is 0."""

MAX_SLOW = 1_000
"""The most slow handlers to remember."""

MAX_CRASHES = 20
"""The most kinds of failures that a dump shows, the latest first."""


class Diagnostics:
    """Watches one actor system from :meth:`start` to :meth:`stop`.

    Args:
        system: the actors.
        settings: the configuration's ``diagnostics``.
        provider: OpenTelemetry's, which gets the traces of actors, too; None for no export.
    """

    def __init__(self, system: ActorSystem, settings: Settings, provider: Any = None) -> None:
        self._system = system
        self._provider = provider
        self._settings = settings
        self._crashes = Crashes(system)
        self._slow: dict[tuple[str, str], float] = {}
        self._ends: list[Callable[[], None]] = []
        self._watch: LoopWatch | None = None

    def start(self) -> None:
        """Start watching."""
        self._crashes.start()
        self._ends += [
            self._crashes.stop,
            self._system.events.subscribe(self._slow_handler, SlowHandler),
        ]
        self._ends.append(self._end_sampling)
        if self._settings.blocked_loop > 0:
            self.sample(True)
        if self._settings.trace:
            tracer = Tracer(self._settings.trace_sample)
            self._ends += [tracer.listen(self._traced), self._system.instrument(tracer)]
            if self._provider is not None:
                from actors.tracing.otel import OTelExporter

                exporter = OTelExporter(self._system, tracer, self._provider)
                exporter.start()
                self._ends.append(exporter.stop)

    def sample(self, on: bool) -> bool:
        """Start or stop to look for the code that blocks the event loop; return whether that changed anything.

        Args:
            on: whether to look. The threshold is ``diagnostics.blocked_loop``; if that is 0, half a second.
        """
        if on == (self._watch is not None):
            return False
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
            return True
        self._watch = LoopWatch(self._system, self._settings.blocked_loop or UNSET)
        self._watch.start()
        return True

    @property
    def sampling(self) -> bool:
        """Whether the code that blocks the event loop is looked for."""
        return self._watch is not None

    def _end_sampling(self) -> None:
        self.sample(False)

    def stop(self) -> None:
        """Stop watching."""
        ends, self._ends = self._ends, []
        for end in ends:
            end()

    def context(self, traceparent: str | None) -> AbstractContextManager[None]:
        """Add messages that are sent inside the context to the client's trace.

        Args:
            traceparent: the client's header; None or an invalid one leaves the message outside any trace.
        """
        if traceparent is None or not self._settings.trace:
            return contextlib.nullcontext()
        return trace_as(TraceContext.parse(traceparent))

    @property
    def traced(self) -> bool:
        """True if transports should read the client's ``traceparent`` header."""
        return self._settings.trace

    def dumping(self) -> Generator[str | None, None, None]:
        """Describe all actors and what each is doing, who waits for whom, and which failures occurred.

        Yields lines, a millisecond or less apart; None: there is no line yet. The loop may turn in between.
        """
        yield "actors:"
        for lines in self._system.dumping():
            indent = "  " * lines.partition(" ")[0].count("/")
            yield "\n".join(indent + line for line in lines.splitlines())
        graph: dict[str, Any] = yield from wait_graph_steps(self._system)
        yield f"asks under way: {len(graph['asks']) + graph['hidden']}"
        for ask in graph["asks"]:
            yield (
                f"  {ask['asker'] or 'outside'} -> {ask['target']} {ask['message']} {ask['state']} "
                f"{ask['age']:.3f} s{' IN A CIRCLE' if ask['cycle'] else ''}"
            )
        reports = self._crashes.reports()
        yield f"kinds of failures: {len(reports)}"
        for report in reports[:MAX_CRASHES]:
            yield (
                f"  {report['error']} {report['count']} times, in {', '.join(report['paths'])} "
                f"({report['where']}, message {report['message']})"
            )
            yield from (f"    {line}" for line in report["stack"].splitlines())

    def _slow_handler(self, event: SlowHandler) -> None:
        key, now = (event.path, event.message), time.monotonic()
        if now - self._slow.get(key, -SLOW_EVERY) < SLOW_EVERY:
            return
        if len(self._slow) >= MAX_SLOW:
            self._slow.clear()
        self._slow[key] = now
        logger.warning(
            "%s: handling %s kept the loop for %.0f ms",
            event.path,
            event.message,
            event.seconds * 1e3,
        )

    def _traced(self, trace: Trace) -> None:
        if trace.duration < self._settings.trace_slow and not trace.failed:
            return
        begun = min((span.sent for span in trace.spans), default=0)
        trace_logger.info(
            "%s",
            json.dumps(
                {
                    "trace": trace.trace_id,
                    "seconds": round(trace.duration, 6),
                    "complete": trace.complete,
                    "lost": trace.lost,
                    "spans": [
                        {
                            "span": span.span_id,
                            "parent": span.parent_id,
                            "path": span.path,
                            "message": span.message,
                            "sent": (span.sent - begun) / 1e9,
                            "began": (span.began - begun) / 1e9,
                            "ended": (span.ended - begun) / 1e9,
                            "error": span.error,
                        }
                        for span in trace.spans
                    ],
                }
            ),
        )
