"""Observe a running actor system. Nothing here costs anything until it is used.

- :class:`Tracer` records sampled spans of requests; :mod:`actors.tracing.otel` exports them.
- :class:`Flow` counts messages between actor classes; :func:`wait_graph` shows which actor waits for which.
- :class:`LoopWatch` finds the handler that blocks the event loop.
- :class:`Crashes` groups failures.
- :mod:`actors.tracing.monitor` streams the state of a system to a console. It needs ``msgpack`` and is
  therefore not imported here.
"""

from __future__ import annotations

from actors.tracing.crashes import Crashes
from actors.tracing.flow import Edge, Flow
from actors.tracing.loop_watch import LoopWatch
from actors.tracing.spans import Tracer
from actors.tracing.traces import Span, Trace
from actors.tracing.waits import wait_graph, wait_graph_steps

__all__ = [
    "Crashes",
    "Edge",
    "Flow",
    "LoopWatch",
    "Span",
    "Trace",
    "Tracer",
    "wait_graph",
    "wait_graph_steps",
]
