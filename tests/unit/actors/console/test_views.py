"""What the console's sources say: pages of actors, the tree, waits, failures, the flow map, one actor's life."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from actors import Actor, ActorSystem, Backoff, Supervision
from actors.console import board as board_module, waiting
from actors.console.board import Board, health
from actors.console.extension import BadQuery
from actors.console.sources import BuiltIn
from actors.console.state import MAX_ITEMS, MAX_TEXT, MAX_VALUES, plain
from actors.tracing.protocol import ROW, type_name
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Worker(Actor):
    async def on_receive(self, message: Any) -> Any:
        if isinstance(message, asyncio.Event):
            await message.wait()
        if message == "fail":
            raise ValueError("secret")
        if isinstance(message, tuple):
            return await self.system.lookup(message[0]).ask(message[1:] or 1, block=False)
        return message


class Parent(Actor):
    def __init__(self, children: int) -> None:
        super().__init__()
        self.count = children

    def on_start(self) -> None:
        for number in range(self.count):
            self.spawn(Worker, name=f"child-{number}")


def built_in(system: ActorSystem) -> BuiltIn:
    return BuiltIn(system, redact=type_name, crashes=None, interval=0.001)


@virtual_time
async def test_actors_are_sorted_filtered_and_paged_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "GLANCE", 3)  # several runs have to be merged
    gate = asyncio.Event()
    async with virtual_system() as system:
        refs = [system.spawn(Worker, name=f"w{number}") for number in range(10)]
        board = Board(system, 0.001)
        await asyncio.sleep(1)
        for number, ref in enumerate(refs):
            for _ in range(number):
                ref.tell(gate)
        await asyncio.sleep(1)

        async def paths(**query: str) -> list[str]:
            await asyncio.sleep(0.1)
            return [row["path"] for row in (await board.page(query))["rows"]]

        # One message of each is being handled.
        assert await paths(sort="depth", size="4") == ["/w9", "/w8", "/w7", "/w6"]
        assert await paths(sort="depth", size="4", page="2") == ["/w5", "/w4", "/w3", "/w2"]
        assert await paths(sort="depth", size="4", page="9") == ["/w1", "/w0"], (
            "the last page; quiet actors come last"
        )
        assert await paths(sort="path", order="asc", scope="/W[01]") == ["/w0", "/w1"]
        assert await paths(scope="w7") == ["/w7"] and await paths(scope="WORKER", size="1") != []
        assert await paths(under="/w3") == ["/w3"] and await paths(only="busy", sort="path", order="asc") == [
            f"/w{number}" for number in range(1, 10)
        ]
        answer = await board.page({"scope": "/w1"})
        assert (answer["total"], answer["pages"]) == (1, 1) and answer["rows"][0]["current"] == "Event"
        for bad in (
            {"sort": "no"},
            {"size": "0"},
            {"size": "201"},
            {"page": "-1"},
            {"page": "٣"},
            {"only": "x"},
            {"scope": "x" * 501},
        ):
            with pytest.raises(BadQuery):
                await board.page(bad)
        gate.set()


def test_health_names_the_reason() -> None:
    def row(**changed: Any) -> tuple[Any, ...]:
        values = {**dict.fromkeys(ROW, 0), "state": "running", "capacity": 100, **changed}
        return tuple(values[name] for name in ROW)

    now = int(1e12)
    assert health(row(), now) == (0, "")
    assert health(row(depth=100), now) == (2, "mailbox full")
    assert health(row(depth=80), now) == (1, "mailbox nearly full")
    assert health(row(depth=1, oldest=now - int(11e9)), now) == (2, "oldest waits 11 s")
    assert health(row(since=now - int(60e9)), now) == (1, "busy with one for 60 s")
    assert health(row(error_rate=0.5), now) == (2, "0.5 errors/s")
    assert health(row(state="restarting"), now) == (2, "restarting")


@virtual_time
async def test_the_tree_opens_what_is_asked_for_and_bubbles_trouble_up() -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        system.spawn(Parent, 60, name="shop")
        system.spawn(Worker, name="idle")
        await asyncio.sleep(1)
        ref = system.lookup("/shop/child-55")
        assert ref is not None
        ref.tell(gate)
        ref.tell(gate)
        await asyncio.sleep(20)
        tree = await built_in(system).sources["tree"]({"open": '["/shop"]'})
        shop, idle = tree["nodes"]
        assert (shop["path"], shop["actors"], shop["level"], shop["troubled"]) == ("/shop", 61, 2, 1)
        assert idle["level"] == 0 and "nodes" not in idle
        assert len(shop["nodes"]) == 50 and shop["more"] == 10
        assert (
            shop["nodes"][0]["path"] == "/shop/child-55" and shop["nodes"][0]["reason"] == "oldest waits 20 s"
        )
        assert "nodes" not in (await built_in(system).sources["tree"]({}))["nodes"][0]
        for bad in ("x", "{}", "[1]", json.dumps(["/"] * 201), "[" * 5000):
            with pytest.raises(BadQuery):
                await built_in(system).sources["tree"]({"open": bad})
        gate.set()


@virtual_time
async def test_who_holds_others_up() -> None:
    gate = asyncio.Event()
    async with virtual_system() as system:
        a, b, c = (system.spawn(Worker, name=name) for name in "abc")
        c.tell(gate)
        b.tell(("/c",))
        a.tell(("/b",))
        outside = a.ask("x", block=False)
        await asyncio.sleep(5)
        data = await built_in(system).sources["waits"]({})
        (blocker,) = data["blockers"]
        assert (
            blocker["path"] == "/c" and blocker["current"] == "Event" and blocker["busy"] == pytest.approx(5)
        )
        assert (blocker["waiters"], blocker["direct"], blocker["callers"]) == (3, 1, 1)
        assert blocker["chain"] == ["/a", "/b", "/c"] and data["cycles"] == []
        assert [ask["target"] for ask in data["asks"]].count("/b") == 1
        gate.set()
        await outside


def test_a_circle_is_shown_in_the_order_of_waiting() -> None:
    waits = {"/a": "/c", "/c": "/b", "/b": "/a"}
    found = waiting._circle(["/a", "/b", "/c"], [], waits)
    assert [(each["path"], each["target"]) for each in found] == [("/a", "/c"), ("/c", "/b"), ("/b", "/a")]
    asks = [
        {"asker": asker, "target": target, "message": "Approve", "age": 3.0}
        for asker, target in waits.items()
    ]
    found = waiting._circle(["/a", "/b", "/c"], asks, {})
    assert [(each["path"], each["target"]) for each in found] == [("/a", "/c"), ("/c", "/b"), ("/b", "/a")]
    assert {(each["message"], each["age"]) for each in found} == {("Approve", 3.0)}


@virtual_time
async def test_failures_are_kept_from_the_start_and_lost_messages_while_watched() -> None:
    logging.getLogger("actors").disabled = True
    try:
        async with virtual_system() as system:
            sources = built_in(system)
            sources.start()
            ref = system.spawn(Worker, name="w", supervision=Supervision(backoff=Backoff(first=0.01)))
            gone = system.spawn(Worker, name="gone")
            await gone.stop(block=False)
            ref.tell("fail")
            gone.notify("before")
            await asyncio.sleep(1)
            with sources.watched():
                for _ in range(3):
                    gone.notify("secret")
                data = await sources.sources["failures"]({})
            gone.notify("after")
            (crash,), (lost,) = data["crashes"], data["lost"]
            assert (
                crash["error"] == "ValueError" and crash["paths"] == ["/w"] and "on_receive" in crash["stack"]
            )
            assert (lost["type"], lost["path"], lost["message"], lost["count"]) == (
                "DeadLetter",
                "/gone",
                "str",
                3,
            )
            assert [each["type"] for each in data["events"]] == ["ActorRestarting", "ActorFailed"]
            assert data["dead_letters"] == 4 and "secret" not in json.dumps(data)
            sources.stop()
            assert not system.events._subscribers
    finally:
        logging.getLogger("actors").disabled = False


@virtual_time
async def test_the_flow_is_counted_while_watched_only() -> None:
    async with virtual_system() as system:
        sources = built_in(system)
        back, front = (system.spawn(Worker, name=name) for name in ("back", "front"))
        with sources.activities["flow"]():
            assert system.hooks_in_use is not None
            await front.ask(("/back",), block=False)
            edges = (await sources.sources["flow"]({}))["edges"]
        assert {(each["sender"], each["message"], each["count"]) for each in edges} == {
            ("Worker", "int", 1),
            ("(outside)", "tuple", 1),
        }
        assert system.hooks_in_use is None and back.is_alive()


class Open(Actor):
    shown: Any = None

    def on_receive(self, message: Any) -> Any:
        return message

    def console_state(self) -> Any:
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown


@virtual_time
async def test_one_actors_life() -> None:
    async with virtual_system() as system:
        sources = built_in(system)
        ref = system.spawn(Open, name="open")
        sender = system.spawn(Worker, name="sender")
        await ref.ask("early", block=False)
        with sources.activities["actor"]():
            await sources.sources["actor"]({"path": "/open"})
            await sender.ask(("/open",), block=False)
            actor = (await sources.sources["actor"]({"path": "/open"}))["actor"]
            (envelope,) = actor["envelopes"]
            assert (envelope["message"], envelope["sender"], envelope["ask"]) == ("int", "/sender", True)
            assert [each[0] for each in actor["recent"]] == ["int", "str"] and actor["state_shown"] is None
            ref._cell.actor.shown = {"<b>": [1, b"\xff", object()]}
            actor = (await sources.sources["actor"]({"path": "/open"}))["actor"]
            assert actor["state_shown"] == {"<b>": [1, "b'\\xff'", "<object>"]}
            ref._cell.actor.shown = RuntimeError("secret")
            actor = (await sources.sources["actor"]({"path": "/open"}))["actor"]
            assert actor["state_error"] == "console_state() raised RuntimeError"
            assert (await sources.sources["actor"]({"path": "/no"}))["actor"] is None
        assert system.hooks_in_use is None
        with pytest.raises(BadQuery):
            await sources.sources["actor"]({})


def test_a_state_of_any_size_is_bounded() -> None:
    deep: Any = []
    for _ in range(10_000):
        deep = [deep]
    wide = {str(number): list(range(1000)) for number in range(1000)}
    circle: dict[str, Any] = {}
    circle["me"] = circle

    def count(value: Any) -> int:
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return 1 + sum(count(each) for each in children)

    for value in (
        deep,
        wide,
        circle,
        "x" * 10**6,
        b"x" * 10**6,
        10**10_000,
        {1: 2, None: 3},
        {"a": float("nan")},
    ):
        shown = plain(value)
        assert count(shown) <= 2 * MAX_VALUES + MAX_ITEMS
        assert len(json.dumps(shown, allow_nan=False)) < MAX_VALUES * (MAX_TEXT + 100)
    assert plain(wide)["…"] == f"{1000 - (len(plain(wide)) - 1)} more"
