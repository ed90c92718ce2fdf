"""Export traces to OpenTelemetry. Needs the extra ``otel`` and a tracer provider of OpenTelemetry's SDK.

The spans keep the ids that travelled with the messages. With other ids, spans of services that received ours
in ``traceparent`` would have no parent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

try:
    from opentelemetry import trace as api
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError("actors.tracing.otel needs OpenTelemetry: pip install opentelemetry-api") from error

from actors.tracing._switch import Switch

if TYPE_CHECKING:
    from actors._system import ActorSystem
    from actors.tracing.spans import Tracer
    from actors.tracing.traces import Span, Trace

SCOPE = "actors"
"""The instrumentation scope of the spans."""


class OTelExporter(Switch):
    """Hand the finished traces of a :class:`~actors.tracing.Tracer` to OpenTelemetry.

    Also a context manager. Spans are created on the thread where the trace ends, mostly the event loop's: use
    a provider whose processor sends in batches.

    Args:
        system: the system whose clock the spans' times refer to.
        tracer: finds the traces; the caller installs it in the system.
        provider: the SDK's tracer provider; the global one if None.

    Raises:
        TypeError: the provider is not the SDK's (or none is configured), so ids cannot be kept.
    """

    def __init__(
        self, system: ActorSystem, tracer: Tracer, provider: api.TracerProvider | None = None
    ) -> None:
        self._system = system
        self._tracer = tracer
        # A tracer with a scope of its own: spans of other code must not get our ids.
        self._otel = cast("Any", (provider or api.get_tracer_provider()).get_tracer(SCOPE))
        ids = getattr(self._otel, "id_generator", None)
        if ids is None:
            raise TypeError("only a TracerProvider of opentelemetry-sdk lets spans keep their ids")
        self._ids = ids if isinstance(ids, _Ids) else _Ids(ids)
        self._otel.id_generator = self._ids
        self._unlisten: Callable[[], None] | None = None

    def start(self) -> None:
        """Export the traces that finish from now on; do nothing if already started."""
        if self._unlisten is None:
            self._unlisten = self._tracer.listen(self.export)

    def stop(self) -> None:
        """Stop exporting. The caller flushes and shuts down the provider."""
        unlisten, self._unlisten = self._unlisten, None
        if unlisten is not None:
            unlisten()

    def export(self, trace: Trace) -> None:
        """Export one trace, parents before children."""
        offset = time.time_ns() - self._system.clock()
        for span in sorted(trace.spans, key=lambda each: each.began):
            self._export(span, offset)

    def _export(self, span: Span, offset: int) -> None:
        with self._ids.forced(int(span.trace_id, 16), int(span.span_id, 16)):
            made = self._otel.start_span(
                f"{span.actor_class} {span.message}",
                context=_parent(span),
                kind=api.SpanKind.CONSUMER,
                start_time=span.began + offset,
                attributes=_attributes(span),
            )
        if span.error is not None:
            made.set_status(api.Status(api.StatusCode.ERROR, span.error))
        made.end(end_time=span.ended + offset)


class _Ids:
    """The provider's id generator; inside ``with forced(...)`` it returns these ids to the same thread."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self._forced = threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def forced(self, trace_id: int, span_id: int) -> _Forced:
        return _Forced(self._forced, (trace_id, span_id))

    def generate_trace_id(self) -> int:
        ids = getattr(self._forced, "ids", None)
        return int(self._wrapped.generate_trace_id() if ids is None else ids[0])

    def generate_span_id(self) -> int:
        ids = getattr(self._forced, "ids", None)
        return int(self._wrapped.generate_span_id() if ids is None else ids[1])


class _Forced:
    def __init__(self, local: threading.local, ids: tuple[int, int]) -> None:
        self._local, self._ids = local, ids

    def __enter__(self) -> None:
        self._local.ids = self._ids

    def __exit__(self, *_exc: object) -> None:
        self._local.ids = None


def _parent(span: Span) -> Context:
    if span.parent_id is None:
        return Context()  # not the current context: its span is not the parent
    above = api.SpanContext(
        int(span.trace_id, 16),
        int(span.parent_id, 16),
        is_remote=span.sender is None,
        trace_flags=api.TraceFlags(api.TraceFlags.SAMPLED),
    )
    return api.set_span_in_context(api.NonRecordingSpan(above), Context())


def _attributes(span: Span) -> dict[str, Any]:
    found: dict[str, Any] = {
        "actors.path": span.path,
        "actors.class": span.actor_class,
        "actors.message": span.message,
        "actors.wait": max(0, span.began - span.sent) / 1e9,
    }
    if span.sender is not None:
        found["actors.sender"] = span.sender
    if span.error is not None:
        found["error.type"] = span.error
    if span.stashed:
        found["actors.stashed"] = True
    return found


__all__ = ["OTelExporter"]
