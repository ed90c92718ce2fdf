"""Looking into a running system. Nothing here costs anything until it is used.

- :class:`Tracer`: sampled spans of requests; :mod:`actors.tracing.otel` sends them on.
- :class:`Flow`: who sends how much to whom. :func:`wait_graph`: who waits for whom.
- :class:`LoopWatch`: the handler that keeps the loop from turning.
- :class:`Crashes`: failures, grouped.
- :mod:`actors.tracing.monitor`: all of a system as a stream of frames, for a console. Not imported
  here: it needs ``msgpack``.
"""

from __future__ import annotations

from actors.tracing.asks import wait_graph
from actors.tracing.blocked import LoopWatch
from actors.tracing.crash import Crashes
from actors.tracing.flow import Edge, Flow
from actors.tracing.spans import Span, Trace, Tracer

__all__ = ["Crashes", "Edge", "Flow", "LoopWatch", "Span", "Trace", "Tracer", "wait_graph"]
