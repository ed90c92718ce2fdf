"""Export spans to OpenTelemetry."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra 'test' has it")

from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from actors import ActorSystem, TraceContext, trace_as
from actors.tracing import Tracer, otel
from actors.tracing.otel import OTelExporter
from tests.unit.actors.tracing.test_spans import chain

EPOCH_NS = 1_700_000_000_000_000_000
"""Wall-clock time at 0 of the system's clock."""


async def test_ids_parents_times_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(1_000, 1_000)
    now = 0

    def clock() -> int:
        nonlocal now
        now = next(ticks)
        return now

    # The exporter reads the wall clock, then the system's clock, which is one tick later.
    monkeypatch.setattr(otel, "time", SimpleNamespace(time_ns=lambda: EPOCH_NS + now + 1_000))
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    context = TraceContext.new(random.Random(3))
    async with ActorSystem(clock=clock) as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        first = chain(system, 2)
        with OTelExporter(system, tracer, provider):
            await first.ask(1, block=False)
            with trace_as(context), pytest.raises(ValueError):
                await first.ask("fail", block=False)
            await asyncio.sleep(0)
        await first.ask(2, block=False)
        await asyncio.sleep(0)
        traces = tracer.traces()
    spans = memory.get_finished_spans()
    assert len(traces) == 3 and len(spans) == 3, "after stop() nothing is exported"
    ours = {span.span_id: span for trace in traces for span in trace.spans}
    for span in spans:
        own = ours[f"{span.context.span_id:016x}"]
        assert f"{span.context.trace_id:032x}" == own.trace_id
        parent = None if span.parent is None else f"{span.parent.span_id:016x}"
        assert parent == own.parent_id
        assert span.attributes["actors.path"] == own.path
        assert span.end_time - span.start_time == own.ended - own.began
        assert span.start_time == EPOCH_NS + own.began
    failed = spans[-1]
    assert failed.status.status_code is api.StatusCode.ERROR
    assert failed.status.description == "ValueError" and failed.parent.is_remote
    assert f"{failed.parent.span_id:016x}" == context.span_id
    assert spans[0].status.status_code is api.StatusCode.UNSET
    again = provider.get_tracer("actors").start_span("x").get_span_context().span_id
    assert f"{again:016x}" not in ours, "ids are forced for our spans only"
    own_id = provider.get_tracer("another").start_span("x").get_span_context().span_id
    assert own_id and f"{own_id:016x}" not in ours


async def test_a_provider_that_cannot_keep_ids_is_refused() -> None:
    async with ActorSystem() as system:
        with pytest.raises(TypeError, match="opentelemetry-sdk"):
            OTelExporter(system, Tracer(), api.NoOpTracerProvider())


def test_a_missing_package_names_the_extra() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; import actors.tracing.otel"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode and "pip install opentelemetry-api" in done.stderr
