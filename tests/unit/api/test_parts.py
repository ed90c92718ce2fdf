"""Requests of many small parts: they are counted before they become objects, and built in steps."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from pixy.api import batch_handlers
from pixy.api.batch_handlers import BatchHandlers
from pixy.api.edge.budget import Budget
from pixy.api.edge.pace import Pace
from pixy.api.grpc.server import _bind
from pixy.api.limits import MOST_HEADERS_TOGETHER, MOST_RECORDS, STEP
from pixy.api.parts import RecordParts, one_level, parser
from pixy.auth.principal import Caller, Principal
from pixy.config.model import App, Proxy, Rest
from pixy.config.security import Rule
from pixy.engine.client import ClusterClient
from pixy.engine.guard import Guard
from pixy.engine.guarded import GuardedCluster
from pixy.errors import Forbidden, InvalidParameter
from pixy.proto import kafkapixy_pb2 as pb
from tests.unit.api.test_grpc_answers import Aborted, Context

WHOLE = pb.ProdManyRq(
    cluster="c",
    topic="t",
    records=[
        pb.Record(key=b"k", value=b"v", headers=[pb.RecordHeader(key="h", value=b"1")]),
        pb.Record(key_undefined=True, tombstone=True, partition=3, timestamp=7),
        pb.Record(),
    ],
)


class Call:
    """Notes how many records were built when others had their turn, and the bytes that were counted."""

    def __init__(self, built: list[int]) -> None:
        self.built = built
        self.turns: list[int] = []
        self.held = 0

    def hold(self, size: int) -> None:
        self.held += size

    async def give_way(self) -> None:
        self.turns.append(len(self.built))


class Cluster(ClusterClient):
    """Takes records."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.go = asyncio.Event()
        self.go.set()

    async def produce_many(self, topic: str, records: Any) -> Any:
        self.records = records
        await self.go.wait()
        return [(0, at) for at in range(len(records))]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The headers of each record that was built."""
    found: list[int] = []
    build = batch_handlers._record

    def counted(at: int, record: Any) -> Any:
        found.append(len(record.headers))
        return build(at, record)

    monkeypatch.setattr(batch_handlers, "_record", counted)
    return found


def many(records: int, headers: int) -> bytes:
    record = pb.Record(headers=[pb.RecordHeader()] * headers)
    return pb.ProdManyRq(topic="t", records=[record] * records).SerializeToString()


async def produce(cluster: Any, raw: bytes, call: Call) -> Any:
    return await BatchHandlers(lambda _name: cluster, Rest()).produce_many(RecordParts.FromString(raw), call)


def test_a_request_read_one_level_deep_is_the_same_request() -> None:
    found = RecordParts.FromString(WHOLE.SerializeToString())
    assert (found.cluster, found.topic) == ("c", "t")
    assert [pb.Record.FromString(each) for each in found.records] == list(WHOLE.records)
    assert found.SerializeToString() == WHOLE.SerializeToString()
    changed = pb.CreateTopicRq(topic="t", config={"a": "1", "b": "2"}, partitions=3)
    parts = one_level(pb.CreateTopicRq).FromString(changed.SerializeToString())
    assert (parts.topic, parts.partitions, len(parts.config)) == ("t", 3, 2)


async def test_records_arrive_as_they_were_sent(built: list[int]) -> None:
    cluster = Cluster()
    answer = await produce(cluster, WHOLE.SerializeToString(), Call(built))
    assert [each.offset for each in answer.results] == [0, 1, 2]
    found = [
        (each.key, each.value, list(each.headers), each.partition, each.timestamp) for each in cluster.records
    ]
    assert found == [
        (b"k", b"v", [("h", b"1")], None, None),
        (None, None, [], 3, 7),
        (b"", b"", [], None, None),
    ]


async def test_who_may_not_write_has_nothing_built(built: list[int]) -> None:
    app = App(proxies={"c": Proxy()})
    app.auth.enabled = app.auth.anonymous = True
    app.rules = [Rule(["key:a"], ["*"], topics=["other"])]
    cluster = GuardedCluster(Cluster(), Guard(app), Caller(Principal("key:a")), "c")
    with pytest.raises(Forbidden, match="may not produce topic t"):
        await produce(cluster, many(1000, 48), Call(built))
    assert built == []


async def test_the_headers_of_a_request_are_bounded_together(built: list[int]) -> None:
    call = Call(built)
    with pytest.raises(
        InvalidParameter, match=f"too many headers, a request may have {MOST_HEADERS_TOGETHER}"
    ):
        await produce(Cluster(), many(MOST_RECORDS, 48), call)
    assert sum(built) <= MOST_HEADERS_TOGETHER
    built.clear()
    await produce(Cluster(), many(MOST_RECORDS, MOST_HEADERS_TOGETHER // MOST_RECORDS), call)
    assert sum(built) == MOST_HEADERS_TOGETHER


async def test_others_have_their_turn_while_records_are_built(built: list[int]) -> None:
    call = Call(built)
    await produce(Cluster(), many(2000, 20), call)
    steps = [sum(1 + each for each in built[a:b]) for a, b in zip([0, *call.turns], call.turns, strict=False)]
    assert len(steps) >= 40 and max(steps) <= STEP + 21
    call = Call(built)
    built.clear()
    await produce(Cluster(), many(MOST_RECORDS, 0), call)
    assert len([each for each in call.turns if each < MOST_RECORDS]) == MOST_RECORDS // STEP - 1


async def test_others_have_their_turn_while_the_answer_is_made(built: list[int]) -> None:
    call = Call(built)
    answer = await produce(Cluster(), many(5 * STEP, 0), call)
    assert len(answer.results) == 5 * STEP and call.turns.count(5 * STEP) >= 5


async def test_what_is_built_counts_until_it_is_written(built: list[int]) -> None:
    cluster, budget = Cluster(), Budget(8 << 20)
    cluster.go.clear()
    edge: Any = SimpleNamespace(budget=budget, steps=Pace(lambda: 0.0))
    handlers = BatchHandlers(lambda _name: cluster, Rest())
    behaviour = _bind(RecordParts, handlers.produce_many, "ProduceMany", edge)
    raw = many(200, 50)
    contexts = [Context() for _ in range(12)]
    calls = [asyncio.ensure_future(behaviour(raw, each, "a")) for each in contexts]
    for _ in range(100):
        await asyncio.sleep(0)
    objects = 200 * 51
    assert budget.held >= 3 * objects * 100, "of the calls that wait"
    assert sum(each.aborted is grpc.StatusCode.UNAVAILABLE for each in contexts) >= 1, (
        "and the others have no room"
    )
    cluster.go.set()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in done} == {bytes, Aborted}
    for context in contexts:
        for callback in context.callbacks:
            callback(context)
    assert budget.held == 0


async def test_a_malformed_record_is_refused(built: list[int]) -> None:
    raw = RecordParts(topic="t", records=[b"", b"\xff"]).SerializeToString()
    with pytest.raises(InvalidParameter, match="malformed request: not a ProdManyRq"):
        await produce(Cluster(), raw, Call(built))


LONG = {
    "ProduceMany": (pb.ProdManyRq(records=[pb.Record()] * (MOST_RECORDS + 1)), "too many records"),
    "Produce": (pb.ProdRq(headers=[pb.RecordHeader()] * 9000), "too many headers"),
    "SetOffsets": (pb.SetOffsetsRq(offsets=[pb.PartitionOffset()] * 10_001), "too many offsets"),
    "CreateTopic": (pb.CreateTopicRq(config={str(at): "" for at in range(9000)}), "too many settings"),
    "AlterTopic": (pb.AlterTopicRq(set_config={str(at): "" for at in range(9000)}), "too many settings"),
    "AlterTopic, to defaults": (pb.AlterTopicRq(delete_config=["x"] * 9000), "too many settings"),
}


@pytest.mark.parametrize("name", LONG)
async def test_too_many_parts_are_refused_before_they_become_objects(name: str) -> None:
    request, text = LONG[name]
    begun: list[Any] = []

    async def works(found: Any, _call: Any) -> Any:
        begun.append(found)
        return pb.AckRs()

    edge: Any = SimpleNamespace(budget=Budget(1 << 28), steps=Pace(lambda: 0.0))
    kind: Any = RecordParts if name == "ProduceMany" else type(request)
    behaviour, context = _bind(kind, works, name.partition(",")[0], edge), Context()
    with pytest.raises(Aborted):
        await behaviour(request.SerializeToString(), context, "a")
    assert context.aborted is grpc.StatusCode.INVALID_ARGUMENT and not begun
    assert text in context.text


def test_a_long_request_with_few_parts_is_parsed() -> None:
    request = pb.CreateTopicRq(topic="t", config={"a": "x" * 50_000})
    assert parser(pb.CreateTopicRq)(request.SerializeToString()) == request
