"""A short form of ``make fuzz``, and what is a finding."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from aiohttp import web

from pixy.auth.keys import make_key
from pixy.config import App
from tests.effort import seeds
from tests.fuzz.daemons import Finding
from tests.fuzz.edge import attack, contract_of, judge
from tests.support import Daemon, eventually, serving


async def connections(daemon: Daemon) -> int:
    found = daemon.engine.system.lookup("/service/rest")
    assert found is not None
    return int(found._cell.actor._edge.book.open)  # type: ignore[attr-defined]


async def test_made_up_bytes_cause_no_error_and_leave_no_connection(
    config: App, caplog: pytest.LogCaptureFixture
) -> None:
    config.connections.header_timeout = config.connections.idle_timeout = config.body_timeout = 1.0
    config.diagnostics.blocked_loop = 0  # that is time by the clock, also of others on this machine
    async with serving(config) as daemon:
        for seed in seeds(8):
            await attack(daemon.engine.addresses, seed)
        await eventually(lambda: connections(daemon), lambda count: count == 0)
    assert not errors(caplog)


@pytest.mark.parametrize("who", ["anybody", "a stranger", "the owner"])
async def test_requests_of_the_contract_cause_no_error(
    config: App, caplog: pytest.LogCaptureFixture, tmp_path: Path, who: str
) -> None:
    config.diagnostics.blocked_loop = 0
    proxy = config.proxies["default"]
    proxy.consumer.long_polling_timeout = proxy.consumer.join_timeout = 0.05
    proxy.instances.read_timeout = proxy.instances.max_read_timeout = proxy.instances.join_timeout = 0.05
    proxy.instances.max_instances = proxy.consumer.max_groups = 20
    config.rest.fetch_timeout = config.rest.max_fetch_timeout = 0.02
    key, stored = make_key("owner")
    config.auth.enabled = who != "anybody"
    if config.auth.enabled:
        config.auth.keys_file = str(tmp_path / "keys")
        (tmp_path / "keys").write_text(stored.line())
    async with serving(config) as daemon:
        made = await contract_of(
            daemon.engine.addresses["rest"], key if config.auth.enabled else "", shows=who == "the owner"
        )
        for seed in seeds(8):
            await made(seed)
    assert not errors(caplog)


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        f"{record.getMessage()} {record.exc_info}"
        for record in caplog.records
        if record.levelno >= logging.ERROR
    ]


async def test_what_the_contract_does_not_describe_is_a_finding() -> None:
    """Also an answer to nobody: on this server no operation needs a caller, and the document says that all do."""
    answer = {"application/json": {"schema": {"type": "object", "required": ["a"]}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "components": {
            "parameters": {name: {} for name in ("topic", "cluster", "consumerGroup", "instance")}
        },
        "paths": {
            "/a": {
                "get": {
                    "parameters": [{"name": "n", "in": "query", "schema": {"type": "integer"}}],
                    "responses": {"200": {"description": "d", "content": answer}},
                }
            }
        },
    }
    right, *wrong = (200, '{"a": 1}'), (500, '{"error": "x"}'), (404, "{}"), (200, "{}"), (200, "no JSON")
    reply = [right]

    async def serve(request: web.BaseRequest) -> web.Response:
        if request.path != "/a":
            return (
                web.json_response(document) if request.path == "/openapi.json" else web.Response(text="pong")
            )
        status, text = reply[-1]
        return web.Response(status=status, text=text, content_type="application/json")

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    address = f"127.0.0.1:{runner.addresses[0][1]}"
    made, strangers = await contract_of(address), await contract_of(address, "key")
    await made(0)
    with pytest.raises(Finding, match="without credentials"):
        await strangers(0)
    for each in wrong:
        reply.append(each)
        with pytest.raises(Finding):
            await made(0)
    await runner.cleanup()


def test_a_server_error_is_a_finding() -> None:
    judge(b"HTTP/1.1 404 Not Found\r\n\r\nHTTP/1.1 503 Service Unavailable\r\n\r\n")
    with pytest.raises(Finding, match="status 500"):
        judge(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 Internal Server Error\r\n\r\n")
