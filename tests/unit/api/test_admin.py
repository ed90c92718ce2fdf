"""The admin listener on a sandbox: what it serves, and to whom."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gzip
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as plain_families

from actors.console import stream
from actors.console.stream import FORBIDDEN
from pixy.api.admin import profiling, slices, streams
from pixy.api.admin.slices import Slices
from pixy.auth.keys import make_key
from pixy.auth.rules import Rules
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.security import Rule
from pixy.console.metric_table import METRICS, PREFIX
from pixy.engine.engine import Engine
from pixy.kafka.sandbox import Sandbox
from tests.support import eventually

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Admin:
    """An engine with an admin listener, and a client."""

    def __init__(self, engine: Engine, http: aiohttp.ClientSession) -> None:
        self.engine = engine
        self.http = http

    async def call(
        self,
        path: str,
        method: str = "GET",
        listener: str = "admin",
        body: bytes | None = None,
        **headers: str,
    ) -> tuple[int, str]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://{self.engine.addresses[listener]}{path}"
        async with self.http.request(method, url, headers=named, data=body) as answer:
            return answer.status, await answer.text()

    def forget(self) -> None:
        """Have the next look at the engine make a new snapshot."""
        server: Any = self.engine.system.lookup("/service/admin")
        server._cell.actor._observed._made_at = float("-inf")

    async def get(self, path: str) -> Any:
        status, text = await self.call(path)
        assert status == 200, text
        return json.loads(text)


@contextlib.asynccontextmanager
async def serving(
    keys: Path | None = None,
    initial_offset: str = "newest",
    change: Callable[[App], None] = lambda _config: None,
) -> AsyncIterator[Admin]:
    sandbox = Sandbox()
    config = App(grpc_addr="", tcp_addr="127.0.0.1:0", admin_addr="127.0.0.1:0")
    config.proxies = {"main": Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))}
    config.proxies["main"].consumer.initial_offset = initial_offset
    if keys is not None:
        config.auth.enabled, config.auth.keys_file = True, str(keys)
    change(config)
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    try:
        async with aiohttp.ClientSession() as http:
            yield Admin(engine, http)
    finally:
        assert (await engine.stop()).clean
        del sandbox


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    async with serving() as made:
        yield made


async def test_metrics_are_those_of_the_table_and_count_what_happens(admin: Admin) -> None:
    await admin.call("/topics/t/messages?sync", "POST", "rest", Content_Type="text/plain", traceparent=TRACE)
    await admin.call("/nothing", "GET", "rest")
    status, text = await admin.call("/metrics", Accept="application/openmetrics-text")
    assert status == 200
    families = {each.name: each for each in text_string_to_metric_families(text)}
    own = {name for name in families if name.startswith(PREFIX)}
    assert own == {PREFIX + each.name for each in METRICS}
    counts = {
        (each.labels["api"], each.labels["method"], each.labels["status"]): each.value
        for each in families["kafka_pixy_request_seconds"].samples
        if each.name.endswith("_count")
    }
    assert counts == {("rest", "produce", "200"): 1, ("rest", "(none)", "404"): 1}
    traced = [each.exemplar for each in families["kafka_pixy_request_seconds"].samples if each.exemplar]
    assert [each.labels["trace_id"] for each in traced] == [TRACE[3:35]]
    (produced,) = families["kafka_pixy_produced_messages"].samples
    assert (produced.labels, produced.value) == ({"cluster": "main", "topic": "t"}, 1)
    assert families["kafka_pixy_up"].samples[0].value == 1
    assert "process_cpu_seconds" in families
    _, plain = await admin.call("/metrics")
    assert {each.name for each in plain_families(plain)} >= {"kafka_pixy_up", "kafka_pixy_request_seconds"}


async def test_connections_of_the_listener_are_bounded_by_a_key_of_their_own() -> None:
    def change(config: App) -> None:
        config.connections.max_admin = 4

    async with serving(change=change) as admin, contextlib.AsyncExitStack() as opened:
        host, port = admin.engine.addresses["admin"].rsplit(":", 1)
        for _ in range(3):  # three quarters of four
            _, writer = await asyncio.open_connection(host, int(port))
            opened.callback(writer.close)
        reader, writer = await asyncio.open_connection(host, int(port))
        opened.callback(writer.close)
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 429 ") and b"`connections.max_admin`" in answer
        assert (await admin.call("/_ping", listener="rest"))[0] == 200, "the APIs count apart"


async def test_probes_give_reasons(admin: Admin) -> None:
    assert (await admin.get("/livez"))["live"] is True
    found = await admin.get("/readyz")
    assert found["ready"] and {each["check"] for each in found["checks"]} == {"kafka", "serving", "loop"}
    server: Any = admin.engine.system.lookup("/service/admin")
    server._cell.actor._readiness.draining = True
    status, text = await admin.call("/readyz")
    assert status == 503
    assert [each["reason"] for each in json.loads(text)["checks"] if not each["ok"]] == [
        "the daemon is about to stop"
    ]


async def test_a_healthy_daemon_has_no_findings(admin: Admin) -> None:
    assert (await admin.get("/findings"))["findings"] == []


async def test_debugging_shows_actors_tasks_threads_and_stacks(admin: Admin) -> None:
    found = await admin.get("/debug/actors?sort=path&limit=2&offset=1")
    assert found["total"] > 5 and [each["path"] for each in found["actors"]] == [
        "/service/admin",
        "/service/main",
    ]
    assert {"depth", "capacity", "oldest_age"} <= found["actors"][0]["mailbox"].keys()
    assert (await admin.get("/debug/actors?pattern=/service/*/fetcher"))["total"] == 1
    assert (await admin.get("/debug/tasks"))["tasks"]
    threads = {each["name"]: each["stack"] for each in (await admin.get("/debug/threads"))["threads"]}
    assert threads["MainThread"] and "kafka-producer" in threads
    assert "/service/main" in (await admin.call("/debug/dump"))[1]
    heap = await admin.get("/debug/heap?seconds=0&limit=3")
    assert len(heap["top"]) <= 3 and heap["bytes"] >= 0
    status, graph = await admin.call("/debug/profile?seconds=1&format=folded")
    assert status == 200 and "MainThread;" in graph


async def test_the_console_is_served_with_the_views_of_kafka(admin: Admin) -> None:
    boot = await admin.get("/console/boot.json")
    (kafka,) = boot["extensions"]
    assert [each["name"] for each in kafka["views"]] == ["findings", "groups", "trace", "tail", "group"]
    for file in [*(each["module"] for each in kafka["views"]), *kafka["styles"], "ext/kafka/cards.js"]:
        status, text = await admin.call(f"/console/{file}")
        assert status == 200 and text, file
    assert (await admin.get("/console/api/kafka.groups"))["data"]["rows"] == []
    assert "nobody" in (await admin.get("/console/api/kafka.group?group=nobody"))["error"]
    url = f"ws://{admin.engine.addresses['admin']}/console/stream"
    async with admin.http.ws_connect(url) as socket:
        for number in range(1, 4):  # frames that come later than the handshake, one by one
            await socket.send_json({"id": number, "watch": "kafka.findings", "query": {}})
            frame = await socket.receive_json(timeout=10)
            assert frame["id"] in range(1, number + 1) and frame["data"]["findings"] == []
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await admin.http.ws_connect(url, headers={"Origin": "http://evil.example"})
    assert refused.value.status == 403


async def test_levels_of_loggers_change_at_run_time(admin: Admin) -> None:
    before = logging.getLogger("pixy.kafka").level
    try:
        status, _ = await admin.call("/debug/log?logger=pixy.kafka&level=debug", "POST")
        assert status == 200 and (await admin.get("/debug/log"))["levels"]["pixy.kafka"] == "debug"
        for wrong in (
            "logger=aiohttp&level=debug",
            "logger=pixy.kafka&level=loud",
            "logger=pixy.nobody&level=info",
        ):
            assert (await admin.call(f"/debug/log?{wrong}", "POST"))[0] == 400
    finally:
        logging.getLogger("pixy.kafka").setLevel(before)


@pytest.mark.parametrize(
    "query",
    ["actors?limit=0", "actors?limit=99999", "actors?limit=x", "actors?sort=beauty", "profile?seconds=0",
     "profile?format=png", "heap?seconds=-1", "actors?offset=9999999999999999999"],
)  # fmt: skip
async def test_a_wrong_parameter_is_answered_in_a_line(admin: Admin, query: str) -> None:
    status, text = await admin.call(f"/debug/{query}")
    assert status == 400 and json.loads(text)["error"]


async def test_pages_of_others_and_other_names_are_refused(admin: Admin) -> None:
    assert (await admin.call("/findings", Host="evil.example"))[0] == 403
    assert (await admin.call("/findings", Origin="http://evil.example"))[0] == 403
    assert (await admin.call("/debug/log", Sec_Fetch_Site="cross-site"))[0] == 403
    followed = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert (await admin.call("/", **followed))[0] == 200
    assert (await admin.call("/debug/log?logger=pixy&level=info", "POST", **followed))[0] == 403


async def test_rights_are_needed_for_everything_but_probes(tmp_path: Path) -> None:
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())
    async with serving(tmp_path / "keys") as admin:
        assert admin.engine.guard is not None
        assert (await admin.call("/livez"))[0] == 200
        assert await admin.call("/readyz") == (200, '{"ready": true}')
        assert (await admin.call("/metrics"))[0] == 401
        assert (await admin.call("/metrics", X_API_Key="kp_wrong"))[0] == 401

        async def statuses(*rules: Rule) -> list[int]:
            assert admin.engine.guard is not None
            admin.engine.guard.rules = Rules(rules, {})
            paths = ("/metrics", "/debug/actors", "/debug/profile?format=x", "/debug/heap?seconds=x")
            found = [(await admin.call(path, X_API_Key=key))[0] for path in paths]
            return [*found, (await admin.call("/debug/log", "POST", X_API_Key=key))[0]]

        who = ["key:ops"]
        assert await statuses(Rule(who, ["console"], topics=["*"], groups=["*"])) == [200, 200, 403, 403, 403]
        assert await statuses(Rule(who, ["*"], topics=["*"], groups=["*"])) == [200, 200, 400, 400, 400]
        # A caller who may do everything with some topics does not see those of others.
        assert await statuses(Rule(who, ["*"], topics=["orders*"], groups=["*"])) == [403] * 5
        assert await statuses(Rule(who, ["*"], clusters=["other"], topics=["*"], groups=["*"])) == [403] * 5


async def test_a_probe_hears_no_more_than_its_caller_may(tmp_path: Path) -> None:
    """Not even how many clusters there are, or are down."""
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())
    async with serving(tmp_path / "keys") as admin:
        guard, who = admin.engine.guard, ["key:ops"]
        assert guard is not None
        for rule, more in (
            (Rule(who, ["console"], topics=["*"], groups=["*"]), True),
            (Rule(who, ["console"], topics=["orders"], groups=["*"]), False),
            (Rule(who, ["describe"], topics=["*"], groups=["*"]), False),
        ):
            guard.rules = Rules((rule,), {})
            status, text = await admin.call("/readyz", X_API_Key=key)
            assert status == 200 and ('"cluster": "main"' in text) is more, (rule, text)
            for wrong in ("kp_wrong", ""):
                assert await admin.call("/readyz", X_API_Key=wrong) == (200, '{"ready": true}')
        server: Any = admin.engine.system.lookup("/service/admin")
        server._cell.actor._readiness.draining = True
        assert await admin.call("/readyz") == (503, '{"ready": false}')


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "Nonsense", "identity, gzip"])
async def test_a_packed_body_is_refused_where_nothing_unpacks_it(coding: str) -> None:
    def on(config: App) -> None:
        config.admin_actions = True

    packed = gzip.compress(b'{"partitions": 3}')
    async with serving(change=on) as admin:
        for path, method, listener in (
            ("/actions/pause?group=g&confirm=g", "POST", "admin"),
            ("/mcp", "POST", "admin"),
            ("/debug/log?logger=pixy&level=info", "POST", "admin"),
            ("/topics/packed", "PUT", "rest"),
            ("/topics/packed", "PATCH", "rest"),
        ):
            headers = {"Content_Encoding": coding, "Content_Type": "application/json"}
            status, text = await admin.call(path, method, listener, packed, **headers)
            said = f"the body has Content-Encoding {coding.lower()}, and none is taken here: send it as it is"
            assert (status, json.loads(text)) == (415, {"error": said}), path
        assert not list(admin.engine.counters["main"].pauses), "nothing was done"
        assert (await admin.call("/findings", Content_Encoding=coding))[0] == 200, "there is no body"
        plain = {"Content_Encoding": "Identity", "Content_Type": "application/json"}
        status, _ = await admin.call("/actions/pause?group=g&confirm=g", "POST", body=b"{}", **plain)
        assert status == 200


def test_a_flame_graph_escapes_names_and_is_whole() -> None:
    stacks = profiling.Stacks({("main", "<b>&x"): 90, ("main", "y;z"): 10})
    picture = profiling.flame_graph(stacks, "1 < 2")
    assert "<b>" not in picture and "&lt;b&gt;&amp;x: 90 of 100 (90.0 %)" in picture and "1 &lt; 2" in picture
    assert profiling.folded(stacks).splitlines()[1] == "main;y,z 10"


async def test_debug_answers_give_way_to_requests_and_few_are_rendered_at_once(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """90 connections that asked for the tasks again and again kept the loop for 12 s."""
    monkeypatch.setattr(slices, "SLICE", 0.0)
    waiting = [asyncio.create_task(asyncio.sleep(3600), name=f"idle-{each}") for each in range(300)]
    turns = 0

    def count() -> None:
        nonlocal turns, counting
        turns += 1
        counting = loop.call_soon(count)

    loop = asyncio.get_running_loop()
    counting = loop.call_soon(count)
    try:
        for path in ("tasks", "threads", "actors?limit=10", "dump"):
            turns = 0
            status, text = await admin.call(f"/debug/{path}")
            assert status == 200
            rows = text.count("\n  /") if path == "dump" else len(list(json.loads(text).values())[-1])
            assert turns >= rows > 0, path
    finally:
        counting.cancel()
    gate, most = asyncio.Event(), 0

    async def held(self: Slices) -> None:
        nonlocal most
        server: Any = admin.engine.system.lookup("/service/admin")
        most = max(most, server._cell.actor._debug._renderings.open)
        await gate.wait()

    monkeypatch.setattr(Slices, "turn", held)

    async def status() -> int:
        url = f"http://{admin.engine.addresses['admin']}/debug/tasks"
        async with admin.http.get(url) as answer:
            if answer.status == 503:
                assert answer.headers["Retry-After"] == "1"
            return answer.status

    asked = [asyncio.ensure_future(status()) for _ in range(30)]
    _, pending = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    while len(pending) > slices.RENDERINGS:
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    gate.set()
    found = await asyncio.gather(*asked)
    assert found.count(200) == most == slices.RENDERINGS and found.count(503) == 30 - slices.RENDERINGS
    for each in waiting:
        each.cancel()


async def watching(socket: aiohttp.ClientWebSocketResponse, query: dict[str, str]) -> None:
    """Watch a source, and wait for its first frame."""
    await socket.send_json({"id": 1, "watch": "kafka.findings", "query": query})
    await socket.receive_json(timeout=30)


@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.parametrize("taken", ["key", "right"])
async def test_a_stream_ends_with_the_key_or_the_right_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watches: bool, taken: str
) -> None:
    monkeypatch.setattr(streams, "LOOK", 3600.0 if watches else 0.05)
    key, stored = make_key("ops")
    other, kept = make_key("other")
    (tmp_path / "keys").write_text(f"{stored.line()}\n{kept.line()}")
    async with serving(tmp_path / "keys") as admin:
        guard = admin.engine.guard
        assert guard is not None
        rule = Rule(["key:*"], ["console"], topics=["*"], groups=["*"])
        guard.rules = Rules((rule,), {})
        url = f"ws://{admin.engine.addresses['admin']}/console/stream"
        async with (
            admin.http.ws_connect(url, headers={"X-API-Key": key}) as socket,
            admin.http.ws_connect(url, headers={"X-API-Key": other}) as stays,
        ):
            if watches:
                await watching(socket, {})
            if taken == "key":
                (tmp_path / "keys").write_text(kept.line())
                (await admin.engine.read_keys())()
            else:
                guard.rules = Rules((dataclasses.replace(rule, who=["key:other"]),), {})
            async with asyncio.timeout(60):
                while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    pass
            if watches:
                assert (message.type, message.data) == (aiohttp.WSMsgType.CLOSE, FORBIDDEN)
            await watching(stays, {})
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await admin.http.ws_connect(url, headers={"X-API-Key": key})


async def test_a_caller_has_a_number_of_pages_and_another_one_finds_room(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "PAGES", 2)
    url = f"ws://{admin.engine.addresses['admin']}/console/stream"
    async with admin.http.ws_connect(url) as first:
        async with admin.http.ws_connect(url), contextlib.AsyncExitStack():
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await admin.http.ws_connect(url)
            assert refused.value.status == 429
        await watching(first, {})

        async def again() -> bool:
            try:
                async with admin.http.ws_connect(url) as socket:
                    await watching(socket, {})
            except aiohttp.WSServerHandshakeError:
                return False
            return True

        assert await eventually(again)


async def test_messages_of_pages_take_turns_with_requests(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 pages that subscribed again and again made `/_ping` take 2 to 11 s."""
    url, loop = f"ws://{admin.engine.addresses['admin']}/console/stream", asyncio.get_running_loop()
    handled: list[int] = []
    turns = 0

    def count() -> None:
        nonlocal turns, counting
        turns += 1
        counting = loop.call_soon(count)

    obey = stream._obey

    def noted(*given: Any) -> None:
        handled.append(turns)
        obey(*given)

    monkeypatch.setattr(stream, "_obey", noted)
    counting = loop.call_soon(count)
    try:
        async with admin.http.ws_connect(url) as socket:
            wish = {"watch": "kafka.groups", "query": {}}
            for number in range(200):
                await socket.send_json({"id": number % 8, **wish})
            await eventually(lambda: asyncio.sleep(0, len(handled) == 200))
    finally:
        counting.cancel()
    assert max(Counter(handled).values()) == 1
