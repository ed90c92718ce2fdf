"""The admin listener's way to another worker, over a real socket: the caller, the console's stream, encodings, and one that does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from pixy.api.admin import workers
from pixy.api.siblings import ADMIN, PROVING_HEADER, Sibling, WorkerSockets
from pixy.auth.keys import make_key
from pixy.auth.rules import Rules
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.security import Rule
from pixy.engine.engine import Engine
from pixy.engine.workers import Worker
from pixy.kafka.sandbox import Sandbox
from tests.unit.api.test_admin import Admin


@contextlib.asynccontextmanager
async def with_worker(folder: Path) -> AsyncIterator[tuple[Admin, WorkerSockets, str]]:
    """One of two workers, of which the other one is not there: its admin listener asks itself over its unix socket; and a key."""
    key, stored = make_key("ops")
    (folder / "keys").write_text(stored.line())
    sandbox = Sandbox()
    config = App(grpc_addr="", tcp_addr="127.0.0.1:0", admin_addr="127.0.0.1:0")
    config.proxies = {"main": Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))}
    config.auth.enabled, config.auth.keys_file = True, str(folder / "keys")
    siblings = WorkerSockets(Worker(1, 2, str(folder), "secret"), str(folder / "1.sock"))
    engine = Engine(config, siblings)
    await engine.start(listeners(engine, config, siblings))
    assert engine.guard is not None
    engine.guard.rules = Rules((Rule(["key:ops"], ["*"], topics=["*"], groups=["*"]),), {})
    siblings.update([Sibling(1, os.getpid(), siblings.path)])
    try:
        async with aiohttp.ClientSession() as http:
            yield Admin(engine, http), siblings, key
    finally:
        assert (await engine.stop()).clean
        del sandbox


async def test_another_worker_knows_the_caller_and_serves_the_stream(tmp_path: Path) -> None:
    async with with_worker(tmp_path) as (admin, _, key):
        await admin.call("/topics/t/messages?sync", "POST", "rest", Content_Type="text/plain", X_API_Key=key)
        for path in ("/trace", "/workers/1/trace"):
            status, text = await admin.call(f"{path}?topic=t&offset=0", X_API_Key=key)
            assert status == 200, (path, text)
            assert (await admin.call(f"{path}?topic=t&offset=0"))[0] == 401
        url = f"ws://{admin.engine.addresses['admin']}/workers/1/console/stream"
        async with admin.http.ws_connect(url, headers={"X-API-Key": key}) as page:
            await page.send_json({"id": 1, "watch": "kafka.findings", "query": {}})
            assert (await page.receive_json(timeout=30))["data"]["findings"] == []
        plain = f"http://{admin.engine.addresses['admin']}/workers/1/console/"
        async with admin.http.get(
            plain, headers={"X-API-Key": key}, skip_auto_headers=["Accept-Encoding"]
        ) as answer:
            assert answer.status == 200 and "Content-Encoding" not in answer.headers


async def test_the_socket_for_other_workers_answers_nobody_else(tmp_path: Path) -> None:
    async with with_worker(tmp_path) as (_, siblings, _key):
        path = siblings.path + ADMIN
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(path)) as http:
            for given, status in (
                ([], 403),
                (["wrong"], 403),
                (["secret", "wrong"], 403),
                (["secret", "secret"], 403),
                (["secret"], 200),
            ):
                headers = [(PROVING_HEADER, each) for each in given]
                async with http.get("http://worker/findings", headers=headers) as answer:
                    assert answer.status == status, given


async def test_a_worker_that_does_not_answer_makes_the_daemon_unready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_worker(tmp_path) as (admin, siblings, key):
        monkeypatch.setattr(workers, "READY", 60.0)  # on a busy machine the first answer may take seconds
        assert await admin.call("/readyz") == (200, '{"ready": true}')
        _, text = await admin.call("/readyz", X_API_Key=key)
        assert {each["check"] for each in json.loads(text)["checks"]} == {
            "worker",
            "kafka",
            "serving",
            "loop",
        }
        monkeypatch.setattr(workers, "READY", 0.5)
        path = str(tmp_path / "2.sock")
        with socket.socket(socket.AF_UNIX) as frozen:  # a stopped process: connections wait for ever
            frozen.bind(path + ADMIN)
            frozen.listen()
            siblings.update([*siblings.everybody, Sibling(2, 1, path)])
            assert await admin.call("/readyz") == (503, '{"ready": false}')
            status, text = await admin.call("/readyz", X_API_Key=key)
        reasons = [each["reason"] for each in json.loads(text)["checks"] if each["check"] == "worker"]
        assert (status, "worker 2 does not answer within 0.5 s" in reasons) == (503, True), text
