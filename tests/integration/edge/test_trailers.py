"""Trailers of chunked requests: they are bounded, and never become headers of the next request on the connection."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from pixy.config import App
from tests.integration.edge.raw import Raw
from tests.integration.edge.test_shares import edge_of
from tests.support import eventually, serving

HEAD = "POST /topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = "3;name=value\r\none\r\n0A\r\n0123456789\r\n"
PING = "GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n"
TOPICS = "GET /topics HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize("follows", ["at once", "later", "in pieces", "behind another", "after an upgrade"])
async def test_a_trailer_is_no_header_of_the_next_request(config: App, tmp_path: Path, follows: str) -> None:
    """With a wrong key, which nobody has sent with it, the next request would be refused."""
    (tmp_path / "keys").write_text("")
    config.auth.enabled = config.auth.anonymous = True
    config.auth.keys_file = str(tmp_path / "keys")
    request = f"{HEAD}{BODY}0\r\nX-API-Key: bad\r\n\r\n"
    before = 0
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        if follows == "behind another":
            await raw.send(PING + request + TOPICS)
            before = 1
        elif follows == "at once":
            await raw.send(request + TOPICS)
        elif follows == "after an upgrade":
            upgrade = PING.replace("\r\n\r\n", "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            await raw.send(upgrade + request + TOPICS)
        elif follows == "in pieces":
            for piece in (request[:-20], request[-20:-3], request[-3:]):
                await raw.send(piece)
                await daemon.get("/_ping")
        else:
            await raw.send(request)
        for _ in range(before + 1):
            assert (await raw.answer())[0] == 200
        await raw.send(TOPICS)
        assert await raw.rest() == b"", "nothing else was served on this connection"


async def test_a_chunked_request_without_trailers_keeps_its_connection(config: App) -> None:
    """Wherever its bytes are divided."""
    request = f"{HEAD}{BODY}0\r\n\r\n"
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        for cut in (1, 60, *range(len(HEAD) - 5, len(request))):
            await raw.send(request[:cut])
            await daemon.get("/_ping")
            await raw.send(request[cut:] + PING)
            assert await raw.answer() == (200, b"{}"), cut
            assert await raw.answer() == (200, b"pong"), cut


async def test_a_chunked_body_larger_than_what_is_read_ahead_keeps_its_connection(config: App) -> None:
    body = b"".join(b"%x\r\n%s\r\n" % (size, b"x" * size) for size in (100_000, 1, 70_000, 300_000))
    request = HEAD.encode() + body + b"0\r\n\r\n"
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        for _ in range(3):
            await raw.send(request)
            assert await raw.answer() == (200, b"{}")
            await raw.send(PING)
            assert await raw.answer() == (200, b"pong")


async def test_trailers_without_end_are_refused(config: App) -> None:
    config.body_timeout = 600.0
    async with serving(config) as daemon, await Raw.to(daemon) as raw:
        await raw.send(HEAD + BODY + "0\r\n")
        await daemon.get("/_ping")
        await raw.send("".join(f"X-{number}: {'x' * 60_000}\r\n" for number in range(4)))
        answer = await raw.rest()
        assert not answer or (b" 400 " in answer and b"`connections.max_header_bytes`" in answer), answer[
            :200
        ]
        heads = edge_of(daemon).heads
        await eventually(lambda: asyncio.sleep(0, heads.held), lambda held: held == 0)


@pytest.mark.parametrize("together", [False, True])
async def test_trailers_of_all_connections_are_bounded_together(config: App, together: bool) -> None:
    config.body_timeout = 600.0
    config.connections.max_unfinished_headers = 1 << 20
    async with serving(config) as daemon, contextlib.AsyncExitStack() as opened:
        heads = edge_of(daemon).heads
        for _ in range(60):
            raw = await opened.enter_async_context(await Raw.to(daemon))
            begun, trailer = HEAD + BODY + "0\r\n", "X-A: " + "x" * 50_000
            for piece in (begun + trailer,) if together else (begun, trailer):
                await raw.send(piece)
                await daemon.get("/_ping")
        assert 1 << 19 < heads.most <= 2 << 20
