"""Spans: parents, sampling, and which traces are kept."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from actors import Actor, ActorRef, ActorSystem, Backoff, Supervision, TraceContext, trace_as
from actors.tracing import Trace, Tracer, spans
from tests.unit.actors.virtual_time import virtual_system, virtual_time

QUICK = 0.01


class Hop(Actor):
    """Pass the message on to the next actor and return its reply."""

    def __init__(self, following: ActorRef[Any] | None = None) -> None:
        super().__init__()
        self.following = following

    async def on_receive(self, message: Any) -> Any:
        if message == "fail":
            raise ValueError("asked to")
        if message == "hang":
            await asyncio.Event().wait()
        if self.following is not None:
            return await self.following.ask(message, block=False)
        return message


def chain(system: ActorSystem, length: int) -> ActorRef[Any]:
    following: ActorRef[Any] | None = None
    for number in reversed(range(length)):
        following = system.spawn(Hop, following, name=f"hop{number}")
    assert following is not None
    return following


async def test_a_request_is_one_trace_of_nested_spans() -> None:
    async with ActorSystem() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        first = chain(system, 3)
        assert await first.ask(7, block=False) == 7
        await asyncio.sleep(0)
        (trace,) = tracer.traces()
    assert trace.complete and not trace.failed and not tracer._open and not tracer._begun
    by_path = {span.path: span for span in trace.spans}
    root, middle, leaf = (by_path[f"/hop{number}"] for number in range(3))
    assert root.parent_id is None and root.sender is None
    assert middle.parent_id == root.span_id and leaf.parent_id == middle.span_id
    assert middle.sender == "/hop0" and leaf.message == "int" and leaf.actor_class == "Hop"
    assert root.sent <= root.began <= middle.sent <= middle.began <= middle.ended <= root.ended
    assert {span.trace_id for span in trace.spans} == {trace.trace_id}


async def test_a_client_context_is_the_parent_and_is_recorded_without_sampling() -> None:
    context = TraceContext.new(random.Random(1))
    async with ActorSystem() as system:
        tracer = Tracer()
        system.instrument(tracer)
        first = chain(system, 2)
        await first.ask(1, block=False)
        with trace_as(context):
            await first.ask(2, block=False)
        await asyncio.sleep(0)
        (trace,) = tracer.traces()
    assert trace.trace_id == context.trace_id and len(trace.spans) == 2
    assert trace.spans[-1].parent_id == context.span_id


async def test_the_decision_is_made_once_per_trace() -> None:
    async with ActorSystem() as system:
        tracer = Tracer(sample=0.5, rng=random.Random(5))
        system.instrument(tracer)
        first = chain(system, 4)
        for number in range(100):
            await first.ask(number, block=False)
        await asyncio.sleep(0)
        traces = tracer.traces()
    assert 30 < len(traces) < 70
    assert {len(trace.spans) for trace in traces} == {4}, "no trace begins in the middle"


async def test_watch_next_records_the_next_matching_messages() -> None:
    async with ActorSystem() as system:
        tracer = Tracer()
        system.instrument(tracer)
        first = chain(system, 2)
        tracer.watch_next(2, path="/hop0", message="str")
        for message in (1, "a", 2, "b", "c"):
            await first.ask(message, block=False)
        await asyncio.sleep(0)
        traces = tracer.traces()
    assert [len(trace.spans) for trace in traces] == [2, 2] and not tracer._watches
    assert {span.message for trace in traces for span in trace.spans} == {"str"}
    with pytest.raises(ValueError, match="at least 1"):
        tracer.watch_next(0)


async def test_errors_and_the_slowest_outlive_the_ring() -> None:
    async with ActorSystem() as system:
        tracer = Tracer(sample=1, ring=3, errors=2, slowest=1)
        failures = Tracer(sample=1, ring=1, errors=1, slowest=0)
        system.instrument(tracer)
        first = chain(system, 1)
        await first.ask(0, block=False)
        await first.stop(block=False)
        remove = system.instrument(failures)
        first = chain(system, 1)
        with pytest.raises(ValueError, match="asked"):
            await first.ask("fail", block=False)
        for number in range(20):
            await first.ask(number, block=False)
        await asyncio.sleep(0)
        traces = tracer.traces()
        remove()
    assert [trace.failed for trace in failures.traces()] == [True, False]
    (failed,) = (trace for trace in traces if trace.failed)
    assert failed.spans[0].error == "ValueError"
    assert len(traces) <= 3 + 2 + 1 and len(tracer._store._ring) == 3
    longest = max(traces, key=lambda trace: trace.duration)
    assert [trace for _, trace in tracer._store._slowest] == [longest]


@virtual_time
async def test_a_trace_with_a_lost_message_ends_when_it_was_quiet() -> None:
    gate = asyncio.Event()

    class Teller(Actor):
        def on_receive(self, message: Any) -> None:
            busy.ask(message, block=False).cancel()  # never handled: the ask is given up

    class Busy(Actor):
        async def on_receive(self, message: Any) -> None:
            await gate.wait()

    async with virtual_system() as system:
        tracer = Tracer()
        system.instrument(tracer)
        busy = system.spawn(Busy)
        busy.tell("busy")
        tracer.watch_next(1, message="int")
        await system.spawn(Teller).ask(1, block=False)
        gate.set()
        await asyncio.sleep(QUICK)
        assert not tracer.traces()
        now = system.clock()
        tracer.expire(now + spans.QUIET_NS // 2)
        assert not tracer.traces()
        tracer.expire(now + spans.QUIET_NS)
        (trace,) = tracer.traces()
    assert not trace.complete and len(trace.spans) == 1


@virtual_time
async def test_a_cut_off_handler_is_aborted_and_timer_messages_keep_their_names() -> None:
    class Cut(Actor):
        def on_start(self) -> None:
            self.set_timer("tick", 0, b"tick")

        async def on_receive(self, message: Any) -> None:
            if message == "hang":
                self.start_task(self.boom())
                await asyncio.Event().wait()

        async def boom(self) -> None:
            raise RuntimeError("task")

    again = Supervision(backoff=Backoff(first=0.001, most=0.001))
    async with virtual_system() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        ref = await system.spawn(Cut, supervision=again)
        ref.tell("hang")
        await asyncio.sleep(0.05)
        await ref.ask(1, block=False)
        await asyncio.sleep(0)
        found = [(span.message, span.error) for trace in tracer.traces() for span in trace.spans]
    assert sorted(found, key=str) == [("bytes", None), ("int", None), ("str", "CancelledError")]


@virtual_time
async def test_open_traces_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MAX_OPEN", 5)
    monkeypatch.setattr(spans, "MAX_SPANS", 2)
    async with virtual_system(stop_grace=0.01) as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        for number in range(9):
            system.spawn(Hop, name=f"h{number}").tell("hang")
        await asyncio.sleep(QUICK)
        assert len(tracer._open) == 5
        tracer.expire(system.clock() + 2 * spans.QUIET_NS)
        assert len(tracer._open) == 5, "a handler that takes its time is not over"
        first = chain(system, 4)
        await first.ask(1, block=False)
        await asyncio.sleep(0)
        assert tracer.traces()[-1].lost == 2


async def test_a_listener_that_raises_is_removed() -> None:
    heard: list[Trace] = []

    def bad(_trace: Trace) -> None:
        raise RuntimeError("bad")

    async with ActorSystem() as system:
        tracer = Tracer(sample=1)
        remove = system.instrument(tracer)
        tracer.listen(bad)
        tracer.listen(heard.append)
        first = chain(system, 1)
        await first.ask(1, block=False)
        await first.ask(2, block=False)
        await asyncio.sleep(0)
        assert len(heard) == 2 and bad not in tracer._listeners
        remove()
        await first.ask(3, block=False)
        await asyncio.sleep(0)
        assert len(heard) == 2 and system.hooks_in_use is None
