"""Edges between actor classes, and the wait graph."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from actors import Actor
from actors.tracing import Flow, flow as module, wait_graph
from actors.tracing.waits import find_cycles
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Sink(Actor):
    mailbox_capacity = 2

    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, asyncio.Event):
            await message.wait()
        if isinstance(message, int):
            await asyncio.sleep(0.1)
        if message == "fail":
            raise ValueError
        return message


class Source(Actor):
    def __init__(self, sink: Any) -> None:
        super().__init__()
        self.sink = sink

    async def on_receive(self, message: Any) -> Any:
        await asyncio.sleep(0.01)
        return await self.sink.ask(message, block=False)


@virtual_time
async def test_edges_are_counted_while_watched_only() -> None:
    async with virtual_system() as system:
        sink = system.spawn(Sink)
        source = system.spawn(Source, sink)
        flow = Flow(system)
        await source.ask(1, block=False)
        assert system.hooks_in_use is None and not system.events._subscribers
        with flow.watch():
            with flow.watch():
                pass
            for number in range(3):
                await source.ask(number, block=False)
            with pytest.raises(ValueError):
                await sink.ask("fail", block=False)
            await asyncio.sleep(0)
        await source.ask(1, block=False)
        assert system.hooks_in_use is None and not system.events._subscribers
        edges = {(edge.sender, edge.receiver, edge.message): edge for edge in flow.edges()}
    assert {key: edge.count for key, edge in edges.items()} == {
        ("(outside)", "Source", "int"): 3,
        ("Source", "Sink", "int"): 3,
        ("(outside)", "Sink", "str"): 1,
    }
    assert edges["(outside)", "Sink", "str"].failed == 1
    # Each message takes 0.1 s, and a quantile is the upper bound of its bucket.
    assert 0.1 < edges["Source", "Sink", "int"].run_p99 < 0.2
    assert edges["Source", "Sink", "int"].wait_p99 < 0.1


@virtual_time
async def test_drops_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_EDGES", 2)
    async with virtual_system() as system:
        gone = system.spawn(Sink, name="gone")
        await gone.stop(block=False)
        flow = Flow(system)
        with flow.watch():
            for message in (1, 2, "a", b"b", b"c"):
                gone.notify(message)
        assert [(edge.receiver, edge.message, edge.drops) for edge in flow.edges()] == [
            ("(gone)", "int", 2),
            ("(gone)", "str", 1),
        ]
        assert flow.beyond == 2


@virtual_time
async def test_the_wait_graph_names_asker_and_target() -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        sink = system.spawn(Sink, name="sink")
        source = system.spawn(Source, sink, name="source")
        reply = source.ask(gate, block=False)
        await asyncio.sleep(0.04)
        graph = wait_graph(system)
        gate.set()
        await reply
        assert wait_graph(system) == {"asks": [], "waits": [], "cycles": [], "hidden": 0, "unseen": 0}
    assert [(ask["asker"], ask["target"]) for ask in graph["asks"]] == [
        (None, "/source"),
        ("/source", "/sink"),
    ]
    assert graph["waits"] == [("/source", "/sink")] and graph["cycles"] == []
    assert [ask["message"] for ask in graph["asks"]] == ["Event", "Event"]
    assert [ask["age"] for ask in graph["asks"]] == pytest.approx([0.04, 0.03])


@virtual_time
async def test_a_cycle_is_marked() -> None:
    gate = asyncio.Event()

    class Holder(Actor):
        peer: Any = None

        async def on_receive(self, message: Any) -> Any:
            if message == "go":
                self.peer.ask("tie", block=False)
                await gate.wait()

    async with virtual_system() as system:
        one, two = system.spawn(Holder, name="one"), system.spawn(Holder, name="two")
        other = system.spawn(Holder, name="other")
        for ref, peer in ((one, two), (two, one), (other, one)):
            actor = ref._actor_weakref()
            actor.peer = peer  # type: ignore[union-attr]
            ref.tell("go")
        await asyncio.sleep(0.01)
        graph = wait_graph(system)
        gate.set()
    assert graph["cycles"] == [["/one", "/two"]]
    assert {(ask["asker"], ask["cycle"]) for ask in graph["asks"]} == {
        ("/one", True),
        ("/two", True),
        ("/other", False),
    }


def test_find_cycles_returns_components() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"f"}, "g": {"a"}}
    edges |= {"h": {"a", "i"}, "i": {"h"}}
    assert find_cycles(edges) == [["a", "b", "c"], ["d", "e"], ["f"], ["h", "i"]]
    long = {str(number): {str(number + 1)} for number in range(5000)}
    assert find_cycles(long) == []


class Relay(Actor):
    """Asks the actor that it is given; waits when it is given none."""

    async def on_receive(self, message: Any) -> Any:
        if message is None:
            await asyncio.sleep(1)
        else:
            await message.ask(None, block=False)


@virtual_time
async def test_actors_of_two_systems_with_the_same_paths_are_no_cycle() -> None:
    async with virtual_system() as one, virtual_system() as two:
        a, b = (one.spawn(Relay, name=name) for name in "ab")
        other_a, other_b = (two.spawn(Relay, name=name) for name in "ab")
        asks = [a.ask(other_b, block=False), b.ask(other_a, block=False)]
        await asyncio.sleep(0.5)
        graph = wait_graph(one)
        assert graph["waits"] == [("/a", "/b"), ("/b", "/a")]
        assert graph["cycles"] == [] and not any(ask["cycle"] for ask in graph["asks"])
        await asyncio.gather(*asks)
