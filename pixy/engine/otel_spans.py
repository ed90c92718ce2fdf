"""Makes spans of messages with OpenTelemetry's SDK, and sends them to a collector (OTLP over HTTP). Needs the extra ``otel``.

A request whose context is sampled gets a span, and so do a share of the requests to produce that have no context, and whoever consumes a
message whose creation context is sampled. Spans wait in a bounded queue for a thread of its own; the loop never waits for a collector.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final

from opentelemetry import trace as api
from opentelemetry.context import Context as OTelContext
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from pixy import __version__
from pixy.config.model import App, Export
from pixy.engine.message_spans import NOTHING, MessageSpan, MessageSpans
from pixy.trace_context import TRACEPARENT, TRACESTATE, Context, context_of, of_record

logger = logging.getLogger("pixy.engine")

SCOPE: Final = "kafka-pixy"
"""The instrumentation scope of the spans."""
_SAY_EVERY: Final = 60.0
"""Seconds between two lines of the log about spans that were dropped or not taken."""
_SAMPLED: Final = api.TraceFlags(api.TraceFlags.SAMPLED)


class SpanQueue(SpanProcessor):
    """Keeps finished spans until a thread has sent them; one that finds no room is dropped and counted.

    Args:
        exporter: sends a batch, and blocks meanwhile.
        conf: the bounds.
    """

    def __init__(self, exporter: SpanExporter, conf: Export) -> None:
        self._exporter = exporter
        self._batch, self._every = conf.batch, float(conf.every)
        self._waiting: queue.Queue[ReadableSpan] = queue.Queue(conf.queue)
        self._full = threading.Event()
        self._over = False
        self.dropped = 0
        """Spans that found no room so far."""
        self.refused = 0
        """Spans that the collector has not taken."""
        self._said = float("-inf")
        self._thread = threading.Thread(target=self._work, name="otlp-export", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span; never waits."""
        try:
            self._waiting.put_nowait(span)
        except queue.Full:
            self.dropped += 1
            self._say("the queue is full (tracing.export.queue)")
            return
        if self._waiting.qsize() >= self._batch:
            self._full.set()

    def _work(self) -> None:
        while not self._over:
            self._full.wait(self._every)
            self._full.clear()
            self._send()
        self._send()

    def _send(self) -> None:
        while batch := self._take():
            try:
                result = self._exporter.export(batch)
            except Exception:
                logger.exception("sending spans failed")
                result = SpanExportResult.FAILURE
            if result is not SpanExportResult.SUCCESS:
                self.refused += len(batch)
                self._say("the collector does not take them (tracing.export.endpoint)")

    def _take(self) -> list[ReadableSpan]:
        found: list[ReadableSpan] = []
        while len(found) < self._batch:
            try:
                found.append(self._waiting.get_nowait())
            except queue.Empty:
                break
        return found

    def _say(self, why: str) -> None:
        now = time.monotonic()
        if now - self._said >= _SAY_EVERY:
            self._said = now
            logger.warning("spans are lost: %s; %d so far", why, self.dropped + self.refused)

    def shutdown(self) -> None:
        """Begin to end: what waits is sent once more."""
        self._over = True
        self._full.set()

    def join(self, seconds: float) -> bool:
        """Wait for the end; return whether it came in time. After that time nothing is sent any more."""
        self._thread.join(seconds)
        self._exporter.shutdown()
        return not self._thread.is_alive()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See :class:`SpanProcessor`."""
        del timeout_millis
        self._full.set()
        return True


class OTelSpans(MessageSpans):
    """Makes spans.

    Args:
        config: the whole configuration, with ``tracing.export.endpoint``.
        chance: draws a number from 0 to 1: whether a request without a context begins a trace.
        exporter: sends spans; None: to the endpoint.
    """

    on = True

    def __init__(self, config: App, chance: random.Random, exporter: SpanExporter | None = None) -> None:
        conf = config.tracing.export
        self._config = config
        self._clients = {name: proxy.client_id for name, proxy in config.proxies.items()}
        self._share, self._chance, self._patience = conf.sample, chance, float(conf.timeout)
        headers = {"authorization": f"Bearer {conf.token}"} if conf.token else {}
        self.queue = SpanQueue(
            exporter or OTLPSpanExporter(conf.endpoint, headers=headers, timeout=float(conf.timeout)), conf
        )
        resource = Resource.create({"service.name": SCOPE, "service.version": __version__})
        self.provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        self.provider.add_span_processor(self.queue)
        self._tracer = self.provider.get_tracer(SCOPE, __version__)

    @property
    def lost(self) -> int:
        """See :class:`MessageSpans`."""
        return self.queue.dropped + self.queue.refused

    def send(self, cluster: str, topic: str, context: Context, count: int = 0, size: int = 0) -> MessageSpan:
        """See :class:`MessageSpans`."""
        parent = _span_context(context)
        if parent is None and (context or self._chance.random() >= self._share):
            return NOTHING  # its trace is not sampled, or it has none
        attributes = self._attributes("send", "send", cluster, topic)
        if count:
            attributes["messaging.batch.message_count"] = count
        else:
            attributes["messaging.message.body.size"] = size
        return _Running(
            self._tracer.start_span(
                f"send {topic}", _within(parent), kind=api.SpanKind.PRODUCER, attributes=attributes
            )
        )

    def receive(self, cluster: str, topic: str, group: str, context: Context) -> MessageSpan:
        """See :class:`MessageSpans`."""
        attributes = self._attributes("receive", "receive", cluster, topic)
        attributes["messaging.consumer.group.name"] = group
        return _Receiving(self._tracer, f"receive {topic}", _span_context(context), attributes)

    def settle(self, cluster: str, topic: str, group: str, context: Context) -> MessageSpan:
        """See :class:`MessageSpans`."""
        parent = _span_context(context)
        if parent is None:
            return NOTHING
        attributes = self._attributes("settle", "ack", cluster, topic)
        attributes["messaging.consumer.group.name"] = group
        return _Running(
            self._tracer.start_span(
                f"ack {topic}", _within(parent), kind=api.SpanKind.CLIENT, attributes=attributes
            )
        )

    def _attributes(self, kind: str, name: str, cluster: str, topic: str) -> dict[str, Any]:
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": kind,
            "messaging.operation.name": name,
            "messaging.destination.name": topic,
            "messaging.client.id": self._clients.get(self._config.cluster_name(cluster), ""),
        }

    async def stop(self) -> None:
        """Send what waits within ``tracing.export.timeout``, and end."""
        self.queue.shutdown()
        if not await asyncio.to_thread(self.queue.join, self._patience):
            logger.warning("spans are lost: the collector has not taken the last ones in time")


class _Running(MessageSpan):
    """A span that begins with the request, and ends with it."""

    __slots__ = ("_span",)

    def __init__(self, span: api.Span) -> None:
        self._span = span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._span.set_attribute("error.type", type(error).__name__)
            self._span.set_status(api.Status(api.StatusCode.ERROR, str(error)))
        self._span.end()

    def carried(self, context: Context) -> Context:
        own = self._span.get_span_context()
        parent = f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"
        state = next((value.decode("ascii") for name, value in context if name == TRACESTATE), "")
        return context_of(parent, (state,) if state else ())

    def placed(self, partition: int, offset: int) -> None:
        self._span.set_attributes(_place(partition, offset))


class _Receiving(MessageSpan):
    """A span of a request that consumes: whether it is wanted is known with the message."""

    __slots__ = ("_attributes", "_began", "_name", "_parent", "_tracer")

    def __init__(
        self, tracer: api.Tracer, name: str, parent: api.SpanContext | None, attributes: dict[str, Any]
    ) -> None:
        self._tracer, self._name, self._parent, self._attributes = tracer, name, parent, attributes
        self._began = time.time_ns()

    def received(
        self, partition: int, offset: int, size: int, headers: Iterable[tuple[str, bytes | None]]
    ) -> None:
        created = _span_context([(name, value.encode("ascii")) for name, value in of_record(headers)])
        parent = self._parent or created
        if parent is None:
            return
        links: Sequence[api.Link] = () if created is None else (api.Link(created),)
        attributes: Mapping[str, Any] = {
            **self._attributes, **_place(partition, offset), "messaging.message.body.size": size,
        }  # fmt: skip
        self._tracer.start_span(
            self._name, _within(parent), kind=api.SpanKind.CLIENT, attributes=attributes, links=links,
            start_time=self._began,
        ).end()  # fmt: skip


def _place(partition: int, offset: int) -> dict[str, Any]:
    found: dict[str, Any] = {"messaging.destination.partition.id": str(partition)}
    if offset >= 0:
        found["messaging.kafka.offset"] = offset
    return found


def _span_context(context: Iterable[tuple[str, bytes]]) -> api.SpanContext | None:
    """Return the remote span of a context; None if there is none, or its trace is not sampled."""
    found = dict(context)
    parent = found.get(TRACEPARENT)
    if parent is None:
        return None
    _, trace, span, flags = parent.decode("ascii").split("-")[:4]
    if not int(flags, 16) & api.TraceFlags.SAMPLED:
        return None
    state = found.get(TRACESTATE)
    return api.SpanContext(
        int(trace, 16), int(span, 16), is_remote=True, trace_flags=_SAMPLED,
        trace_state=None if state is None else api.TraceState.from_header([state.decode("ascii")]),
    )  # fmt: skip


def _within(parent: api.SpanContext | None) -> OTelContext:
    if parent is None:
        return OTelContext()
    return api.set_span_in_context(api.NonRecordingSpan(parent), OTelContext())


__all__ = ["OTelSpans", "SpanQueue"]
