"""A read of a consumer instance that waits while its caller's key is removed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from pixy.auth.keys import make_key
from pixy.auth.principal import Caller, Credentials, Principal
from pixy.auth.rules import Rules
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.security import Rule
from pixy.engine.engine import Engine
from pixy.kafka.sandbox import Sandbox

JSON = "application/vnd.kafka.v2+json"
RECORDS = "application/vnd.kafka.json.v2+json"
INSTANCE = "/consumers/g/instances/i"


@asynccontextmanager
async def serving(file: Path) -> AsyncIterator[Engine]:
    sandbox = Sandbox()
    config = App(
        grpc_addr="",
        tcp_addr="",
        proxies={"main": Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))},
    )
    config.rest.addr = "127.0.0.1:0"
    config.auth.enabled = True
    config.auth.keys_file = str(file)
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    try:
        yield engine
    finally:
        await engine.stop()
        del sandbox


def test_a_caller_is_printed_without_his_secret() -> None:
    caller = Caller(Principal("key:a"), seen=Credentials(api_key="kp_hidden", authorization="Bearer hidden"))
    assert "hidden" not in f"{caller} {caller!r} {caller.seen}"


async def test_a_waiting_read_hands_nothing_out_once_its_key_is_removed(tmp_path: Path) -> None:
    reader, writer = make_key("reader"), make_key("writer")
    file = tmp_path / "keys"
    file.write_text(f"{reader[1].line()}\n{writer[1].line()}\n")
    async with serving(file) as engine, aiohttp.ClientSession() as http:
        guard = engine.guard
        assert guard is not None
        guard.rules = Rules([Rule(["*"], ["*"], topics=["*"], groups=["*"])], {})
        base = f"http://{engine.addresses['rest-v1']}"

        async def ask(method: str, path: str, key: str, body: Any = None) -> tuple[int, str]:
            headers = {
                "X-API-Key": key,
                "Accept": RECORDS if path.partition("?")[0].endswith("/records") else JSON,
                "Content-Type": JSON if "consumers" in path else RECORDS,
            }
            data = None if body is None else json.dumps(body)
            async with http.request(method, base + path, headers=headers, data=data) as answer:
                return answer.status, await answer.text()

        produced = {"records": [{"partition": 0, "value": "secret"}]}
        assert (await ask("POST", "/topics/orders", writer[0], produced))[0] == 200
        made = {"name": "i", "format": "json", "auto.commit.enable": "false", "auto.offset.reset": "earliest"}
        assert (await ask("POST", "/consumers/g", reader[0], made))[0] == 200
        chosen = {"partitions": [{"topic": "orders", "partition": 0}]}
        assert (await ask("POST", f"{INSTANCE}/assignments", reader[0], chosen))[0] == 204
        status, text = await ask("GET", f"{INSTANCE}/records?timeout=10000", reader[0])
        assert status == 200 and json.loads(text)[0]["value"] == "secret"

        waiting = asyncio.ensure_future(ask("GET", f"{INSTANCE}/records?timeout=20000", reader[0]))
        await asyncio.sleep(0.3)
        file.write_text(f"{writer[1].line()}\n")
        (await engine.read_keys())()
        assert (await ask("GET", "/topics", reader[0]))[0] == 401
        assert (await ask("POST", "/topics/orders", writer[0], produced))[0] == 200
        status, text = await waiting
        assert status == 401 and "secret" not in text

        # Another key changes nothing for one that stays; the record was given back.
        file.write_text(f"{reader[1].line()}\n")
        (await engine.read_keys())()
        status, text = await ask("GET", f"{INSTANCE}/records?timeout=10000", reader[0])
        assert status == 200 and [each["offset"] for each in json.loads(text)] == [1]
        waiting = asyncio.ensure_future(ask("GET", f"{INSTANCE}/records?timeout=20000", reader[0]))
        await asyncio.sleep(0.3)
        file.write_text(f"{reader[1].line()}\n{writer[1].line()}\n")
        (await engine.read_keys())()
        assert (await ask("POST", "/topics/orders", writer[0], produced))[0] == 200
        status, text = await waiting
        assert status == 200 and [each["offset"] for each in json.loads(text)] == [2]
