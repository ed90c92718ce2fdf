"""Which requests the access log has a line for, on all listeners."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from pixy.auth.buckets import REFUSALS
from pixy.auth.keys import make_key
from pixy.auth.principal import ANONYMOUS, Caller, Principal
from pixy.cli.serve import listeners
from pixy.config import App, Kafka, Proxy
from pixy.config.security import AccessLog as Config, Rule
from pixy.engine.access_log import AccessLog
from pixy.engine.engine import Engine
from pixy.kafka.sandbox import Sandbox
from pixy.proto import kafkapixy_pb2 as pb
from pixy.proto.kafkapixy_pb2_grpc import KafkaPixyStub

KEY, STORED = make_key("app")
RIGHT = {"X-API-Key": KEY}
Lines = list[dict[str, Any]]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def written(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("sample", "kept"), [(1.0, 10), (0.3, 3), (0.0, 0)])
def test_a_share_of_the_requests_and_every_refusal_has_a_line(
    tmp_path: Path, sample: float, kept: int
) -> None:
    path, draws = tmp_path / "log", iter([number / 10 for number in range(10)])
    log = AccessLog(Config(str(path), sample), lambda: 0.0, Clock(), lambda: next(draws))
    log.start()
    for status, refused in ((200, False), (401, True)):
        for _ in range(10):
            log.answered("rest", "GET", "/", status, 0.0, refused=refused, address="a")
    log.stop()
    assert [line["status"] for line in written(path)] == [200] * kept + [401] * 10


def test_what_is_no_traceparent_is_left_out(tmp_path: Path) -> None:
    path, trace = tmp_path / "log", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    log = AccessLog(Config(str(path)), lambda: 0.0, Clock())
    log.start()
    for sent in ("any text", trace, ""):
        log.answered("rest", "GET", "/", 200, 0.0, refused=False, address="a", trace=sent)
    log.stop()
    assert [line.get("trace") for line in written(path)] == [None, trace, None]


def test_refusals_do_not_fill_the_disk(tmp_path: Path) -> None:
    path, clock = tmp_path / "log", Clock()
    log = AccessLog(Config(str(path), max_queued=100_000), lambda: 0.0, clock)
    for number in range(5000):
        clock.now = number / 1000  # a thousand a second
        log.refused("rest", 429, "a", "too many")
    log.start()
    log.stop()
    first, *rest = written(path)
    assert len(rest) <= REFUSALS * 6 and first["count"] == 5000 - len(rest)


def test_strangers_do_not_hide_what_a_known_caller_is_refused(tmp_path: Path) -> None:
    path, caller = tmp_path / "log", Caller(Principal("key:shop"))
    log = AccessLog(Config(str(path), max_queued=100_000), lambda: 0.0, Clock())
    for _ in range(5000):
        log.refused("rest", 429, "a", "too many")
        log.answered(
            "rest", "GET", "/", 403, 0.0, refused=True, address="a", caller=Caller(ANONYMOUS), error="no"
        )
    log.answered("rest", "GET", "/", 403, 0.0, refused=True, address="a", caller=caller, error="no")
    log.start()
    log.stop()
    lines = written(path)
    assert lines[-1]["principal"] == "key:shop" and len(lines) <= REFUSALS + 2


async def test_a_reload_goes_on_in_a_new_file(tmp_path: Path) -> None:
    async with serving(tmp_path) as engine:
        log, path = engine.access_log, tmp_path / "log"
        assert log is not None
        log.refused("rest", 429, "a", "first")
        while not path.read_text():
            await asyncio.sleep(0.001)
        path.rename(tmp_path / "old")
        engine.reopen_logs()
        log.refused("rest", 429, "a", "second")
    assert [line["error"] for line in (*written(tmp_path / "old"), *written(path))] == ["first", "second"]
    assert len(written(path)) == 1


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, change: Callable[[App], None] = lambda _app: None) -> AsyncIterator[Engine]:
    sandbox = Sandbox()
    (tmp_path / "keys").write_text(STORED.line())
    config = App(grpc_addr="127.0.0.1:0", tcp_addr="127.0.0.1:0", unix_addr=str(tmp_path / "s"))
    config.proxies["main"] = Proxy(kafka=Kafka(seed_peers=sandbox.seed_peers))
    config.access_log.path = str(tmp_path / "log")
    config.auth.enabled, config.auth.keys_file = True, str(tmp_path / "keys")
    config.rules = [Rule(["key:app"], ["describe"], topics=["*"])]
    change(config)
    engine = Engine(config)
    await engine.start(listeners(engine, config))
    try:
        yield engine
    finally:
        await engine.stop()
        del sandbox


async def raw(address: str, sent: bytes) -> bytes:
    """Send bytes; return all that is answered."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    answer = await reader.read()
    writer.close()
    return answer


async def test_http_requests_served_and_refused_at_every_stage(tmp_path: Path) -> None:
    def small(app: App) -> None:
        app.connections.max_header_bytes = 2048

    async with serving(tmp_path, small) as engine:
        base = f"http://{engine.addresses['rest']}"
        trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        async with aiohttp.ClientSession() as http:
            for path, headers in (
                ("/topics?key=secret", {**RIGHT, **trace}),
                ("/topics/t/messages?group=g", RIGHT),
                ("/brokers", {}),
                ("/_ping", {}),
                ("/topics", {"Host": "evil.example"}),
                ("/topics", {**RIGHT, "Origin": "http://evil.example"}),
            ):
                await http.get(base + path, headers=headers)
        address = engine.addresses["rest"]
        await raw(address, b"nonsense\r\n\r\n")
        await raw(address, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 9000)
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as http:
            await http.get("http://localhost/healthy")
    lines = written(tmp_path / "log")
    shown = [
        (
            line["listener"],
            line.get("path"),
            line["status"],
            line.get("principal"),
            line.get("error", "")[:18],
        )
        for line in lines
    ]
    assert shown == [
        ("rest", "/topics", 200, "key:app", ""),
        ("rest", "/topics/t/messages", 403, "key:app", "key:app may not co"),
        ("rest", "/brokers", 401, None, "credentials are re"),
        ("rest", "/_ping", 200, None, ""),
        ("rest", "/topics", 403, None, "the host 'evil.exa"),
        ("rest", "/topics", 403, None, "web pages of 'http"),
        ("rest", None, 400, None, lines[6]["error"][:18]),
        ("rest", None, 431, None, "the request's head"),
        ("rest-unix", "/healthy", 200, None, ""),
    ]
    assert lines[0]["trace"] == trace["traceparent"] and lines[0]["ms"] > 0
    assert all(line["address"].startswith("127.0.0.1:") for line in lines[:8])
    assert "secret" not in (tmp_path / "log").read_text()


async def test_connections_above_their_bound(tmp_path: Path) -> None:
    def one(app: App) -> None:
        app.connections.max_per_address = 1

    async with serving(tmp_path, one) as engine:
        address = engine.addresses["rest"]
        host, _, port = address.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        assert (await raw(address, b"")).startswith(b"HTTP/1.1 429")
        writer.close()
    [line] = written(tmp_path / "log")
    assert (line["listener"], line["status"], line["address"]) == ("rest", 429, "127.0.0.1")
    assert "connections.max_per_address" in line["error"]


async def test_grpc_calls_served_and_refused_at_every_stage(tmp_path: Path) -> None:
    known = (("x-api-key", KEY),)
    async with (
        serving(tmp_path) as engine,
        grpc.aio.insecure_channel(engine.addresses["grpc"]) as channel,
    ):
        stub = KafkaPixyStub(channel)
        await stub.ListTopics(pb.ListTopicRq(), metadata=known)
        for call in (
            lambda: stub.ListTopics(pb.ListTopicRq()),
            lambda: stub.Produce(pb.ProdRq(topic="t", message=b"x"), metadata=known),
            lambda: channel.unary_unary("/KafkaPixy/Nothing")(b"x"),
            lambda: channel.unary_unary("/KafkaPixy/Ack")(b"\xff", metadata=known),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call()  # type: ignore[no-untyped-call]
            if refused.value.code() is grpc.StatusCode.UNIMPLEMENTED:
                assert refused.value.details() == "Method not found!", "as grpc's core says it"
    lines = written(tmp_path / "log")
    assert [(line["method"], line["status"], line.get("principal")) for line in lines] == [
        ("ListTopics", "OK", "key:app"),
        ("ListTopics", "UNAUTHENTICATED", None),
        ("Produce", "PERMISSION_DENIED", "key:app"),
        ("KafkaPixy/Nothing", "UNIMPLEMENTED", None),
        ("Ack", "INVALID_ARGUMENT", "key:app"),
    ]
    assert lines[1]["error"] == "credentials are required"
    assert all(line["listener"] == "grpc" and "127.0.0.1" in line["address"] for line in lines)


async def test_clients_that_have_gone(tmp_path: Path) -> None:
    """A long poll that nobody waits for any more."""

    def consuming(app: App) -> None:
        app.rules = []

    async with serving(tmp_path, consuming) as engine:
        host, _, port = engine.addresses["rest"].rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"GET /topics/t/messages?group=g HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\n\r\n"
        writer.write(head.encode())
        guard = engine.guard
        assert guard is not None
        while not guard.limiter.active:
            await asyncio.sleep(0.01)
        writer.close()
        while guard.limiter.active:
            await asyncio.sleep(0.01)
    [line] = written(tmp_path / "log")
    assert (line["path"], line["status"]) == ("/topics/t/messages", 499)
