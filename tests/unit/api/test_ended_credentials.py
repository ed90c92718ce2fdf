"""A read of a consumer instance that waits while its caller's key is removed, here or at the daemon that has forwarded it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from pixy.api.restv1.peers import Peers
from pixy.auth.keys import make_key
from pixy.auth.principal import Caller, Credentials, Principal
from pixy.auth.rules import Rules
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.security import Rule
from pixy.engine.engine import Engine
from pixy.kafka.sandbox import Sandbox
from tests.kafka.cluster import free_port

JSON = "application/vnd.kafka.v2+json"
RECORDS = "application/vnd.kafka.json.v2+json"
INSTANCE = "/consumers/g/instances/i"


ALL = Rule(["*"], ["*"], topics=["*"], groups=["*"])


def configured(sandbox: Sandbox, file: Path, addr: str = "127.0.0.1:0") -> App:
    proxies = {"main": Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))}
    config = App(grpc_addr="", tcp_addr="", proxies=proxies)
    config.rest.addr = addr
    config.auth.enabled = True
    config.auth.keys_file = str(file)
    return config


@asynccontextmanager
async def running(config: App) -> AsyncIterator[Engine]:
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    try:
        yield engine
    finally:
        await engine.stop()


@asynccontextmanager
async def serving(file: Path) -> AsyncIterator[Engine]:
    sandbox = Sandbox()
    async with running(configured(sandbox, file)) as engine:
        yield engine
    del sandbox


@asynccontextmanager
async def two_serving(file: Path) -> AsyncIterator[dict[str, Engine]]:
    sandbox, engines = Sandbox(), dict[str, Engine]()
    ports = {name: free_port() for name in "ab"}
    async with AsyncExitStack() as stack:
        for name, port in ports.items():
            config = configured(sandbox, file, f"127.0.0.1:{port}")
            config.rest.node_id = name
            config.rest.peers = {each: f"http://127.0.0.1:{at}" for each, at in ports.items()}
            config.rest.peer_secret = "s" * 32
            config.rules = [ALL]
            engines[name] = await stack.enter_async_context(running(config))
        yield engines
    del sandbox


async def ask(
    http: aiohttp.ClientSession, engine: Engine, method: str, path: str, key: str, body: Any = None
) -> tuple[int, str]:
    headers = {
        "X-API-Key": key,
        "Accept": RECORDS if path.partition("?")[0].endswith("/records") else JSON,
        "Content-Type": JSON if "consumers" in path else RECORDS,
    }
    data = None if body is None else json.dumps(body)
    url = f"http://{engine.addresses['rest-v1']}{path}"
    async with http.request(method, url, headers=headers, data=data) as answer:
        return answer.status, await answer.text()


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
        guard.rules = Rules([ALL], {})
        call = partial(ask, http, engine)

        produced = {"records": [{"partition": 0, "value": "secret"}]}
        assert (await call("POST", "/topics/orders", writer[0], produced))[0] == 200
        made = {"name": "i", "format": "json", "auto.commit.enable": "false", "auto.offset.reset": "earliest"}
        assert (await call("POST", "/consumers/g", reader[0], made))[0] == 200
        chosen = {"partitions": [{"topic": "orders", "partition": 0}]}
        assert (await call("POST", f"{INSTANCE}/assignments", reader[0], chosen))[0] == 204
        status, text = await call("GET", f"{INSTANCE}/records?timeout=10000", reader[0])
        assert status == 200 and json.loads(text)[0]["value"] == "secret"

        waiting = asyncio.ensure_future(call("GET", f"{INSTANCE}/records?timeout=20000", reader[0]))
        await asyncio.sleep(0.3)
        file.write_text(f"{writer[1].line()}\n")
        (await engine.read_keys())()
        assert (await call("GET", "/topics", reader[0]))[0] == 401
        assert (await call("POST", "/topics/orders", writer[0], produced))[0] == 200
        status, text = await waiting
        assert status == 401 and "secret" not in text

        # Another key changes nothing for one that stays; the record was given back.
        file.write_text(f"{reader[1].line()}\n")
        (await engine.read_keys())()
        status, text = await call("GET", f"{INSTANCE}/records?timeout=10000", reader[0])
        assert status == 200 and [each["offset"] for each in json.loads(text)] == [1]
        waiting = asyncio.ensure_future(call("GET", f"{INSTANCE}/records?timeout=20000", reader[0]))
        await asyncio.sleep(0.3)
        file.write_text(f"{reader[1].line()}\n{writer[1].line()}\n")
        (await engine.read_keys())()
        assert (await call("POST", "/topics/orders", writer[0], produced))[0] == 200
        status, text = await waiting
        assert status == 200 and [each["offset"] for each in json.loads(text)] == [2]


async def test_a_forwarded_read_hands_nothing_out_once_its_key_is_removed_where_it_was_recognized(
    tmp_path: Path,
) -> None:
    reader, writer = make_key("reader"), make_key("writer")
    both = f"{reader[1].line()}\n{writer[1].line()}\n"
    file = tmp_path / "keys"
    file.write_text(both)
    async with two_serving(file) as engines, aiohttp.ClientSession() as http:
        entry = engines["a"]
        peers = Peers(entry.config.rest)
        name = next(f"i{at}" for at in range(100) if peers.owner("g", f"i{at}") == "b")
        instance, call = f"/consumers/g/instances/{name}", partial(ask, http, entry)
        produced = {"records": [{"partition": 0, "value": "secret"}]}
        assert (await call("POST", "/topics/orders", writer[0], produced))[0] == 200
        made = {
            "name": name,
            "format": "json",
            "auto.commit.enable": "false",
            "auto.offset.reset": "earliest",
        }
        assert (await call("POST", "/consumers/g", reader[0], made))[0] == 200
        chosen = {"partitions": [{"topic": "orders", "partition": 0}]}
        assert (await call("POST", f"{instance}/assignments", reader[0], chosen))[0] == 204
        status, text = await call("GET", f"{instance}/records?timeout=10000", reader[0])
        assert status == 200 and json.loads(text)[0]["value"] == "secret"

        waiting = asyncio.ensure_future(call("GET", f"{instance}/records?timeout=20000", reader[0]))
        await asyncio.sleep(0.3)
        file.write_text(f"{writer[1].line()}\n")
        (await entry.read_keys())()
        status, text = await asyncio.wait_for(waiting, 10)
        assert status == 401 and "secret" not in text
        assert (await call("POST", "/topics/orders", writer[0], produced))[0] == 200

        file.write_text(both)
        (await entry.read_keys())()
        status, text = await call("GET", f"{instance}/records?timeout=10000", reader[0])
        assert status == 200 and [each["offset"] for each in json.loads(text)] == [1], "it was lost"
