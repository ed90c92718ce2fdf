"""Answers of gRPC that nobody takes count against their caller, and against nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from pixy.api.edge.budget import Budget
from pixy.api.edge.pace import Pace
from pixy.api.grpc.call import GrpcCall
from pixy.api.grpc.server import _REFUSABLE, _bind
from pixy.api.handlers import Handlers
from pixy.config import App
from pixy.engine.message_spans import MessageSpans
from pixy.proto import kafkapixy_pb2 as pb

LIMIT, LONG = 64 * 1024, 10_000


def edge_with(budget: Budget) -> Any:
    """What a method needs of the edge."""
    return SimpleNamespace(budget=budget, steps=Pace(lambda: 0.0))


class Aborted(Exception):
    """What a context raises when it is aborted."""


class Context:
    """A call whose client takes nothing, so that it is never done."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], None]] = []
        self.aborted: Any = None
        self.text = ""

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self.callbacks.append(callback)

    async def abort(self, code: Any, text: str, _metadata: Any = ()) -> None:
        self.aborted, self.text = code, text
        raise Aborted

    def done(self) -> bool:
        return True

    def code(self) -> Any:
        return self.aborted


async def long_answer(_request: Any, _call: Any) -> Any:
    return pb.ConsRs(message=b"x" * LONG)


@pytest.mark.parametrize("name", ["ListTopics", "ConsumeNAck", "ProduceMany", "Produce"])
async def test_answers_that_nobody_takes_leave_room_for_others(name: str) -> None:
    budget = Budget(LIMIT)
    call = _bind(pb.ProdManyRq, long_answer, name, edge_with(budget))
    contexts = [Context() for _ in range(10)]
    for each in contexts:
        try:
            await call(b"", each, "a")
        except Aborted:
            assert name in _REFUSABLE and each.aborted is grpc.StatusCode.UNAVAILABLE
    assert (contexts[-1].aborted is None) == (name not in _REFUSABLE), "what was done is told"
    budget.share("b").take(LIMIT // 4)
    for each in contexts:
        for callback in each.callbacks:
            callback(each)
    assert budget.held == LIMIT // 4


async def test_a_small_request_with_a_long_answer_is_refused_before_its_work() -> None:
    budget, begun = Budget(LIMIT), []

    async def works(_request: Any, _call: Any) -> Any:
        begun.append(1)
        return pb.ConsRs(message=b"x" * LONG)

    call = _bind(pb.ProdManyRq, works, "ProduceMany", edge_with(budget))
    request = pb.ProdManyRq(cluster="c" * 500).SerializeToString()
    refused = 0
    for _ in range(10):
        try:
            await call(request, Context(), "a")
        except Aborted:
            refused += 1
    assert (len(begun), refused) == (5, 5)


async def test_the_answers_of_calls_under_way_have_room_before_they_begin() -> None:
    """An answer may be fifty times as long as its request, and what was done is told."""
    budget, begun, go = Budget(LIMIT), list[int](), asyncio.Event()

    async def works(request: Any, _call: Any) -> Any:
        begun.append(1)
        await go.wait()
        return pb.ProdManyRs(results=[pb.ProdResult(partition=-1, offset=-1)] * len(request.records))

    call = _bind(pb.ProdManyRq, works, "ProduceMany", edge_with(budget))
    request = pb.ProdManyRq(records=[pb.Record()] * 100).SerializeToString()
    contexts = [Context() for _ in range(10)]
    calls = [asyncio.create_task(call(request, each, "a")) for each in contexts]
    await asyncio.sleep(0)
    assert len(begun) == 3, "what they may answer is held"
    go.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, Aborted) for each in done) == 7
    for context in contexts:
        for callback in context.callbacks:
            callback(context)
    assert budget.held == 0


@pytest.mark.parametrize(("code", "told"), [(None, ["sent"]), (grpc.StatusCode.UNAVAILABLE, ["back"])])
def test_a_message_whose_answer_was_refused_is_given_back(code: Any, told: list[str]) -> None:
    heard: list[str] = []
    delivery = SimpleNamespace(sent=lambda: heard.append("sent"), give_back=lambda: heard.append("back"))
    context = Context()
    GrpcCall(context, None, Pace(lambda: 0.0), "a").deliver(cast(Any, delivery))
    context.aborted = code  # an aborted call is done, too
    for callback in context.callbacks:
        callback(context)
    assert heard == told


def test_each_method_that_may_be_refused_exists() -> None:
    engine: Any = SimpleNamespace(config=App(), spans=MessageSpans())
    assert set(Handlers(engine).methods()) >= _REFUSABLE
