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


class Connecting(Actor):
    """Puts what it gets aside until it is connected."""

    connected = False

    async def on_receive(self, message: Any) -> Any:
        if message == "connect":
            self.connected = True
            self.unstash_all()
        elif not self.connected:
            self.stash()
            if message == "fail":
                raise OSError("not connected")
        return message


@virtual_time
@pytest.mark.parametrize("asked", [True, False])
async def test_a_message_that_is_put_aside_is_traced_to_its_answer(asked: bool) -> None:
    """Its trace is not over when the first handler is, and the second handling begins no other one."""
    async with virtual_system() as system:
        tracer = Tracer()
        system.instrument(tracer)
        ref = await system.spawn(Connecting)
        tracer.watch_next(1, message="str")
        answer = ref.ask("query", block=False) if asked else None
        if answer is None:
            ref.tell("query")
        await asyncio.sleep(1)
        assert not tracer.traces() and len(tracer._open) == 1, "the message is not dealt with"
        ref.tell("connect")
        await asyncio.sleep(1)
        (trace,) = tracer.traces()
        assert not tracer._open and not tracer._begun
        assert answer is None or await answer == "query"
    first, second = trace.spans
    assert trace.complete and (first.stashed, second.stashed) == (True, False)
    assert first.parent_id is None and second.parent_id == first.span_id
    assert first.sent == second.sent and second.began - first.ended >= 1_000_000_000


@virtual_time
async def test_an_ask_that_fails_after_it_was_put_aside_ends_its_trace() -> None:
    async with virtual_system() as system:
        tracer = Tracer(sample=1)
        system.instrument(tracer)
        with pytest.raises(OSError, match="not connected"):
            await system.spawn(Connecting).ask("fail", block=False)
        await asyncio.sleep(1)
        (trace,) = tracer.traces()
    assert trace.complete and trace.failed and [each.stashed for each in trace.spans] == [True]


@virtual_time
async def test_a_message_whose_trace_is_not_recorded_is_put_aside_without_one() -> None:
    async with virtual_system() as system:
        tracer = Tracer(sample=0.5, rng=random.Random(3))
        system.instrument(tracer)
        refs = [await system.spawn(Connecting) for _ in range(50)]
        for ref in refs:
            ref.tell("query")
        await asyncio.sleep(1)
        tracer.sample = 1.0
        recorded = len(tracer._open)
        for ref in refs:
            ref.tell("connect")
        await asyncio.sleep(1)
        queries = [trace for trace in tracer.traces() if trace.spans[0].stashed]
    assert 0 < recorded < 50 and len(queries) == recorded, "the decision is made once"


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
