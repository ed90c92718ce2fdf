"""The stream: one reading for all watchers, the newest frame only, bounds, and nothing at all unwatched."""

from __future__ import annotations

import asyncio
import gc
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.test_utils import TestServer

from actors import Actor, ActorSystem
from actors.console import hub as module
from actors.console.app import HUB, application, serve
from actors.console.board import Board
from actors.console.extension import BadQuery, Extension
from actors.console.hub import Hub, TooMany
from actors.console.stream import query_of
from actors.tracing.census import SLICE, Census
from tests.support import eventually
from tests.unit.actors.virtual_time import virtual_system, virtual_time


class Worker(Actor):
    def on_receive(self, message: Any) -> Any:
        return message


def counting() -> tuple[Counter[str], Hub]:
    calls: Counter[str] = Counter()

    async def source(query: Any) -> Any:
        calls[query.get("q", "")] += 1
        return {"n": calls[query.get("q", "")]}

    async def slow(_query: Any) -> Any:
        calls["slow"] += 1
        await asyncio.sleep(3600)

    return calls, Hub({"source": source, "slow": slow})


@virtual_time
async def test_a_topic_is_read_once_for_all_its_watchers_and_not_at_all_without() -> None:
    calls, hub = counting()
    async with virtual_system():
        await asyncio.sleep(5)
        assert not hub.ticking and not calls
        with hub.joined() as first, hub.joined() as second:
            assert not hub.ticking, "a page that is paused costs nothing"
            hub.watch(first, 1, "source", {"q": "a", "b": "c"})
            hub.watch(second, 7, "source", {"b": "c", "q": "a"})
            hub.watch(second, 8, "source", {"q": "b"})
            await asyncio.sleep(3.5)
            assert calls == {"a": 4, "b": 4}
            assert [json.loads(each)["id"] for each in await second.take()] == [7, 8]
            hub.unwatch(second, 8)
            await asyncio.sleep(2)
            assert calls == {"a": 6, "b": 4}
        assert not hub.ticking and not hub._topics and not hub.watchers
        await asyncio.sleep(5)
        assert calls == {"a": 6, "b": 4}
        assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("actors.console")]


@virtual_time
async def test_a_slow_watcher_keeps_the_newest_frame_of_each_topic_only() -> None:
    _, hub = counting()
    async with virtual_system():
        with hub.joined() as slow:
            hub.watch(slow, 1, "source", {})
            hub.watch(slow, 2, "source", {"q": "x"})
            await asyncio.sleep(1000.5)
            frames = [json.loads(each) for each in await slow.take()]
            assert [(each["id"], each["data"]["n"]) for each in frames] == [(1, 1001), (2, 1001)]
            assert slow.skipped == 2000


@virtual_time
async def test_a_source_that_hangs_is_an_error_and_holds_nobody_up() -> None:
    calls, hub = counting()
    async with virtual_system():
        with hub.joined() as watcher:
            hub.watch(watcher, 1, "slow", {})
            hub.watch(watcher, 2, "source", {})
            await asyncio.sleep(9.5)
            assert calls == {"slow": 1, "": 10}
            await asyncio.sleep(1)
            frames = {each["id"]: each for each in map(json.loads, await watcher.take())}
            assert frames[1]["error"] == "slow has not answered within 10 s"


@virtual_time
async def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    _, hub = counting()
    async with virtual_system():
        monkeypatch.setattr(module, "MAX_WATCHERS", 1)
        with hub.joined() as watcher:
            with pytest.raises(TooMany), hub.joined():
                pass
            with pytest.raises(BadQuery, match="no source"):
                hub.watch(watcher, 1, "no", {})
            for number in range(module.MAX_TOPICS):
                hub.watch(watcher, number, "source", {"q": str(number)})
            with pytest.raises(TooMany, match="8 topics"):
                hub.watch(watcher, 99, "source", {})
            hub.watch(watcher, 0, "source", {"q": "in place of the first"})
            assert len(hub._topics) == module.MAX_TOPICS
        monkeypatch.setattr(module, "MAX_FRAME", 10)
        assert "narrow the scope" in json.loads(await hub.read("source", {}))["error"]
    with pytest.raises(BadQuery, match="16384 characters"):
        query_of({"a": "x" * 20_000})


@virtual_time
async def test_no_step_looks_at_more_than_a_slice_of_the_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tick over 10,000 busy actors took 124 ms in one callback; a slice of 200 takes 2.5."""
    looked: list[int] = []
    async with virtual_system() as system:
        refs = [system.spawn(Worker) for _ in range(3 * SLICE + 1)]
        census = Census(system, lambda _path: True, 10**6)
        for now in (system.clock(), system.clock() + 1):
            looked.clear()
            for seen in census.round(now):
                looked.append(len(seen.dirty))
            for ref in refs:
                ref.tell(1)
            await asyncio.sleep(1)
        assert sum(looked) == len(refs) and max(looked) == SLICE
        # The loop turns between the steps: another task gets its turn each time.
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        totals, _ = await Board(system, 1.0).totals()
        task.cancel()
        assert totals.actors == len(refs) and turns >= len(looked)


async def test_a_page_over_the_network() -> None:
    async with ActorSystem("shop") as system, serve(system) as address, aiohttp.ClientSession() as client:
        system.spawn(Worker, name="w")
        async with client.ws_connect(f"{address}stream") as socket, asyncio.timeout(30):
            for junk in (
                "x",
                "[]",
                '{"id":1}',
                '{"id":-1,"watch":"actors"}',
                '{"id":1,"watch":"actors","query":[1]}',
                "[" * 5000,
            ):
                await socket.send_str(junk)
                assert "error" in json.loads(await socket.receive_str()), junk
            await socket.send_str('{"id":3,"watch":"no"}')
            assert json.loads(await socket.receive_str())["error"] == "there is no source 'no'"
            await socket.send_str('{"id":4,"watch":"actors","query":{"size":"1"}}')
            frame = json.loads(await socket.receive_str())
            assert frame["id"] == 4 and frame["data"]["rows"][0]["path"] == "/w"
            await socket.send_bytes(b"x")
            assert (await socket.receive()).type in {
                aiohttp.WSMsgType.CLOSE,
                aiohttp.WSMsgType.CLOSED,
                aiohttp.WSMsgType.ERROR,
            }


async def test_a_page_that_leaves_stops_the_sampling() -> None:
    async with ActorSystem("shop") as system, aiohttp.ClientSession() as client:
        app = application(system)
        hub = app[HUB]
        async with TestServer(app) as server:
            socket = await client.ws_connect(server.make_url("/stream"))
            await socket.send_str('{"id":1,"watch":"flow"}')

            async def watched() -> bool:
                return hub.ticking and system.hooks_in_use is not None

            async def idle() -> bool:
                return not hub.ticking and not hub.watchers

            await eventually(watched)
            await socket.close()
            await eventually(idle)
            assert system.hooks_in_use is None


async def test_a_page_that_leaves_while_a_long_frame_is_compressed_leaves_no_error_behind() -> None:
    """aiohttp compresses it in a task, whose error nobody took: it was logged whenever a page was closed at such a moment."""
    text = random.Random(34).randbytes(1_500_000).hex()  # takes some 0.1 s to compress
    unheard: list[Any] = []

    async def source(_query: Any) -> Any:
        return text

    extension = Extension("long", Path(__file__).parent, sources={"text": source})
    async with ActorSystem("shop") as system, aiohttp.ClientSession() as client:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unheard.append(context))
        app = application(system, extensions=[extension])
        hub = app[HUB]
        async with TestServer(app) as server:
            socket = await client.ws_connect(server.make_url("/stream"), compress=15)
            await socket.send_str('{"id":1,"watch":"long.text"}')

            async def read() -> bool:
                return any(topic.text is not None for topic in hub._topics.values())

            async def left() -> bool:
                return not hub.watchers

            await eventually(read)
            await socket.close()
            await eventually(left)
        await asyncio.get_running_loop().shutdown_default_executor()  # the compression is over
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        gc.collect()
        assert unheard == []
