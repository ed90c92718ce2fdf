"""The MCP endpoint of the admin listener, asked by the SDK's own client: a stuck group is explained, and callers need rights."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pixy.auth.keys import make_key
from pixy.auth.principal import Caller, Principal, current
from pixy.auth.rules import Rules
from pixy.config.security import Rule
from pixy.engine.shares import caller
from pixy.findings import consuming
from tests.support import eventually
from tests.unit.api.test_admin import Admin, serving

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")


@contextlib.asynccontextmanager
async def assistant(admin: Admin, **headers: str) -> AsyncIterator[Any]:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    url = f"http://{admin.engine.addresses['admin']}/mcp"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with create_mcp_http_client(named) as http:
        transport = streamable_http_client(url, http_client=http)
        async with mcp.Client(transport, read_timeout_seconds=30) as client:
            yield client


async def said(client: Any, tool: str, **arguments: Any) -> Any:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    return json.loads(answer.content[0].text)


async def test_an_assistant_learns_why_a_group_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consuming, "HELD_LEAST", 0.1)
    monkeypatch.setattr(consuming, "HELD_SHARE", 0.0)
    async with serving(initial_offset="oldest") as admin:
        cluster = admin.engine.cluster()
        partition, offset = await cluster.produce("orders", b"secret value", b"key-1")
        caller.set("10.0.0.9")
        (await cluster.consume("orders", "billing")).sent()
        async with assistant(admin) as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert all(each.annotations.read_only_hint for each in tools.values())
            assert tools["trace_message"].input_schema["required"] == ["topic", "partition", "offset"]

            async def causes() -> Any:
                found = await said(client, "findings", group="billing", topic="orders")
                return [each["cause"] for each in found["findings"] if each["rule"] == "never-acked"]

            (cause,) = await eventually(causes)
            assert "10.0.0.9 holds 1 messages of orders" in cause
            assert (await said(client, "findings", group="other"))["findings"] == []
            (row,) = (await said(client, "groups", name="BILL"))["rows"]
            assert (row["group"], row["unacked"]) == ("billing", 1)
            group = await said(client, "group", group="billing")
            owned = [number for each in group["members"]["orders"].values() for number in each]
            assert partition in owned and group["partitions"]["total"] == len(owned)
            (out,) = (await said(client, "unacked_messages", group="billing"))["rows"]
            assert (out["partition"], out["offset"], out["client"]) == (partition, offset, "10.0.0.9")
            story = await said(client, "trace_message", topic="orders", partition=partition, offset=offset)
            assert [each["state"] for each in story["groups"]] == ["held"]
            assert "secret value" not in json.dumps(story)
            assert (await said(client, "health"))["ready"]
            actors = await said(client, "actors", pattern="/service/main/billing**", sort="path")
            assert any(each["path"] == "/service/main/billing" for each in actors["actors"])
            for tool, arguments, word in (
                ("group", {"group": "nobody"}, "does not consume for group nobody"),
                ("group", {}, "needs the argument group"),
                ("findings", {"grup": "x"}, "has no argument 'grup'"),
                ("trace_message", {"topic": "orders", "partition": -1, "offset": 0}, "whole number"),
                ("actors", {"sort": "beauty"}, "must be one of"),
                ("restart", {}, "there is no tool"),
            ):
                answer = await client.call_tool(tool, arguments)
                assert answer.is_error and word in answer.content[0].text, answer
        assert (await admin.call("/mcp"))[0] == 405


async def test_an_assistant_needs_the_rights_of_the_console(tmp_path: Path) -> None:
    key, stored = make_key("ops")
    (tmp_path / "keys").write_text(stored.line())
    async with serving(tmp_path / "keys", "oldest") as admin:
        guard = admin.engine.guard
        assert guard is not None
        token = current.set(Caller(Principal("key:ops"), "", ""))
        partition, _ = await admin.engine.cluster().produce("orders", b"v", b"key-1")
        current.reset(token)
        who = ["key:ops"]
        for headers, rule, status in (
            ({}, Rule(who, ["*"]), 401),
            ({"X_API_Key": key}, Rule(who, ["console"], topics=["orders"], groups=["billing"]), 403),
            ({"X_API_Key": key}, Rule(who, ["produce", "consume"], topics=["*"], groups=["*"]), 403),
        ):
            guard.rules = Rules((rule,), {})
            assert (await admin.call("/mcp", "POST", Content_Type="application/json", **headers))[0] == status
            with pytest.raises((mcp.MCPError, BaseExceptionGroup)):
                async with assistant(admin, **headers) as client:
                    await client.list_tools()
        guard.rules = Rules((Rule(who, ["console"], topics=["*"], groups=["*"]),), {})
        async with assistant(admin, X_API_Key=key) as client:
            story = await said(client, "trace_message", topic="orders", partition=partition, offset=0)
            assert story["record"] and "key" not in story["record"], "keys are for those who may consume"
        guard.rules = Rules((Rule(who, ["console", "consume"], topics=["*"], groups=["*"]),), {})
        async with assistant(admin, X_API_Key=key) as client:
            story = await said(client, "trace_message", topic="orders", partition=partition, offset=0)
            assert story["record"]["key"] == {"text": "key-1"}


async def test_without_the_extra_the_answer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    async with serving() as admin:
        status, text = await admin.call("/mcp", "POST", Content_Type="application/json")
        assert status == 501 and "pip install '.[mcp]'" in text
