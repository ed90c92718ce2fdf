"""Requests that a page of somebody else makes a browser send; and those of everybody else, which stay as they were."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from pixy.config import App
from tests.integration.edge.raw import Raw
from tests.support import serving

V2 = {"Content_Type": "application/vnd.kafka.binary.v2+json"}


async def refused(raw: Raw, path: str, method: str = "GET", **headers: str) -> bytes:
    status, body = await raw.ask(path, method, **headers)
    assert status == 403, (path, headers, status, body)
    return body


@pytest.mark.parametrize(
    "path", ["/topics", "/topics/t/messages?group=g", "/brokers", "/rest/consumers/g", "/", "/nope"]
)
async def test_a_name_given_to_our_address_is_refused(config: App, path: str) -> None:
    async with serving(config) as daemon:
        for host in (
            "evil.example",
            "evil.example:19092",
            "127.0.0.1.evil.example",
            "localhost.evil",
            "[evil]",
            "x@localhost",
        ):
            async with await Raw.to(daemon) as raw:
                assert b"`allowed_hosts`" in await refused(raw, path, Host=host)


async def test_our_own_names_are_allowed(config: App, tmp_path: Path) -> None:
    config.allowed_hosts = ["kafka.example", ".pixy.example"]
    config.rest.advertised_url = "https://adv.example:8443/x"
    config.unix_addr = str(tmp_path / "s")
    names = [
        "localhost",
        "LOCALHOST:1",
        "a.localhost",
        "127.0.0.1:19092",
        "[::1]:1",
        "10.1.2.3",
        "[2001:db8::1]",
        "kafka.example:1",
    ]
    names += ["Kafka.Example.", "a.pixy.example", "pixy.example", "adv.example", socket.gethostname()]
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        for name in names:
            assert await raw.ask("/_ping", Host=name) == (200, b"pong"), name
        await raw.send("GET /_ping HTTP/1.0\r\n\r\n")
        assert await raw.answer() == (200, b"pong"), "HTTP/1.0 needs no Host"
        async with await Raw.to(daemon, "rest-unix") as unix:
            assert await unix.ask("/_ping", Host="anything") == (200, b"pong"), "no browser reaches it"
    config.allowed_hosts = ["*"]
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        assert await raw.ask("/_ping", Host="evil.example") == (200, b"pong")


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Origin": "http://localhost:3000", "Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "cross-site"},
    {"Sec_Fetch_Site": "same-site"},
    {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_foreign_page_neither_reads_nor_changes_anything(
    config: App, name: str, headers: dict[str, str]
) -> None:
    async with serving(config) as daemon:
        await daemon.produce(name, b"mine")
        for method, path in (
            ("POST", f"/topics/{name}/messages?sync"),
            ("GET", f"/topics/{name}/messages?group=g"),
            ("POST", f"/topics/{name}/acks?group=g&partition=0&offset=0"),
            ("POST", f"/topics/{name}/offsets?group=g"),
            ("GET", "/topics"),
            ("GET", "/brokers"),
            ("POST", f"/topics/{name}"),
            ("POST", "/consumers/g"),
            ("DELETE", "/consumers/g/instances/i"),
        ):
            async with await Raw.to(daemon) as raw:
                await refused(raw, path, method, **headers)
        async with await Raw.to(daemon) as raw:
            for path in ("/_ping", "/healthy", "/ready"):
                assert (await raw.ask(path, **headers))[0] == 200
        offsets = await daemon.offsets(name, "g")
        assert sum(each.end - each.begin for each in offsets.values()) == 1 and {
            each.offset for each in offsets.values()
        } == {-1}


async def test_our_own_page_and_origins_that_are_allowed_are_served(config: App) -> None:
    config.rest.cors_origins = ["https://console.example"]
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        here = f"localhost:{daemon.engine.addresses['rest'].rsplit(':', 1)[1]}"
        for headers in (
            {"Host": here, "Origin": f"http://{here}"},
            {"Host": here, "Origin": f"http://{here}", "Sec_Fetch_Site": "same-origin"},
            {"Origin": "https://public.example", "Sec_Fetch_Site": "same-origin"},  # behind a proxy
            {"Sec_Fetch_Site": "none"},
            {"Origin": "https://console.example", "Sec_Fetch_Site": "cross-site"},
            {"Origin": "HTTPS://console.example/"},
            {},
        ):
            assert (await raw.ask("/topics", **headers))[0] == 200, headers
        for path in ("/topics", "/topics/t", "/consumers/g"):
            status, _ = await raw.ask(
                path,
                "OPTIONS",
                Origin="https://console.example",
                Access_Control_Request_Method="POST",
                Access_Control_Request_Headers="content-type",
            )
            assert status == 204, f"{path}: a preflight has no Content-Type of its own"
        status, _ = await raw.ask(
            "/brokers", "OPTIONS", Origin="https://evil.example", Access_Control_Request_Method="POST"
        )
        assert status == 204, "the browser learns from a preflight that it may not"
