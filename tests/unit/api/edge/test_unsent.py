"""What a client does not take of its answers is bounded, over TLS, too."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest
import trustme
from aiohttp import web

from pixy.api.edge.answers import Answer
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpServer
from pixy.api.edge.tls_records import PacedTls
from pixy.config.model import Connections
from tests.unit.api.edge.test_waiting import GET


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_what_a_client_does_not_take_is_bounded(secure: bool) -> None:
    """Once it is above the bound, an answer is not done before the client has taken enough: its place and its bytes count meanwhile."""

    async def answer(_request: web.BaseRequest) -> web.StreamResponse:
        return Answer(body=b"x" * 4000, content_type="text/plain")

    server = HttpServer(answer, Connections(), Heads(1 << 25), Budget(1 << 28), Deadline(60.0))
    tls: dict[str, Any] = {}
    trusting: dict[str, Any] = {}
    if secure:
        ca = trustme.CA()
        tls["ssl"] = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.issue_cert("localhost").configure_cert(tls["ssl"])
        tls["ssl"].sslobject_class = PacedTls
        trusting = {"ssl": ssl.create_default_context(), "server_hostname": "localhost"}
        ca.configure_trust(trusting["ssl"])
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    loop = asyncio.get_running_loop()
    (transport, connection), (_, writer) = await asyncio.gather(
        loop.connect_accepted_socket(lambda: server.connection(Slot("a", lambda _caller: None)), ours, **tls),
        asyncio.open_connection(sock=theirs, limit=1024, **trusting),
    )
    try:
        if secure:
            assert transport.get_extra_info("ssl_object").turns is not None, "its records have turns"
        writer.write(GET * 500)
        async with asyncio.timeout(60):
            while not connection._paused:
                await asyncio.sleep(0.001)
        assert transport.get_write_buffer_size() < 48 * 1024
    finally:
        transport.abort()
        writer.transport.abort()
        await asyncio.sleep(0)
