"""Answers have the same bytes as aiohttp's own, and a request that comes whole leaves nothing counted."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from pixy.api.edge import answers
from pixy.api.edge.answers import Answer
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpConnection, HttpServer
from pixy.config.model import Connections

JSON = {"Content-Type": "application/json"}
GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closing = False

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """What is written is taken at once."""

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


def connect(handler: Any, heads: Heads) -> tuple[HttpConnection, Transport]:
    server = HttpServer(handler, Connections(), heads, Budget(1 << 28), Deadline(60.0))
    connection, transport = server.connection(Slot("a", lambda _caller: None)), Transport()
    connection.connection_made(transport)
    return connection, transport


async def written(kind: type[web.Response], sent: bytes, **about: Any) -> tuple[bytes, bool]:
    """What a response is on the wire, and whether the connection ends then."""
    close = about.pop("close", False)

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        response = kind(**about)
        if close:
            response.force_close()
        return response

    connection, transport = connect(handler, Heads(1 << 20))
    connection.data_received(sent)
    for _ in range(30):
        await asyncio.sleep(0)
    found, ends = transport.written, transport.closing
    connection.connection_lost(None)
    return re.sub(rb"Date: [^\r]+", b"Date: D", found), ends


@pytest.mark.parametrize(
    "about",
    [
        {"body": b"{}"},
        {"body": b""},
        {"body": b"x" * 100_000},
        {"body": b"x" * 300_000},
        {"body": b"x" * 300_000, "headers": {**JSON, "Vary": "Accept"}},
        {"body": b"x" * 300_000, "close": True},
        {"body": b"no", "status": 404},
        {"body": b"no", "status": 599},
        {"body": b"", "status": 204},
        {"body": b"", "status": 304},
        {"body": b"{}", "headers": {**JSON, "Retry-After": "1"}},
        {"body": b"{}", "headers": {}},
        {"body": b"{}", "headers": {"Content-Type": "text/\u00fc"}},
        {"body": b"{}", "close": True},
    ],
    ids=lambda about: str(about)[:60],
)
@pytest.mark.parametrize(
    "sent",
    [
        GET,
        GET.replace(b"GET", b"HEAD"),
        GET.replace(b"1.1", b"1.0"),
        GET.replace(b"1.1", b"1.0").replace(b"Host: a", b"Connection: keep-alive"),
        GET.replace(b"Host: a", b"Host: a\r\nConnection: close"),
    ],
)
async def test_an_answer_is_what_aiohttp_would_write(sent: bytes, about: Mapping[str, Any]) -> None:
    about = {"headers": JSON, **about}
    assert await written(Answer, sent, **about) == await written(web.Response, sent, **about)


def body_bytes(transport: Transport) -> int:
    """How much of an answer's body is written."""
    return len(transport.written.partition(b"\r\n\r\n")[2])


@pytest.mark.parametrize("more", [{}, {"Vary": "Accept"}])
async def test_a_client_that_takes_nothing_leaves_a_long_answer_where_it_is(more: dict[str, str]) -> None:
    """The transport, which would keep a copy, gets it piece by piece, and others have their turn between."""
    body = bytes(range(256)) * 20_000

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return Answer(body=body, headers={**JSON, **more})

    connection, transport = connect(handler, Heads(1 << 20))
    connection.data_received(GET)
    # From Python 3.12 on the handler begins in that call, before in the loop's next turn.
    assert body_bytes(transport) <= answers.PIECE
    for _ in range(8):
        before = body_bytes(transport)
        await asyncio.sleep(0)
        assert body_bytes(transport) - before <= answers.PIECE
    connection.pause_writing()
    before = body_bytes(transport)
    for _ in range(40):
        await asyncio.sleep(0)
    assert 0 < body_bytes(transport) <= before + answers.PIECE
    connection.resume_writing()
    for _ in range(80):
        before = body_bytes(transport)
        await asyncio.sleep(0)
        assert body_bytes(transport) - before <= answers.PIECE
    assert transport.written.endswith(b"\r\n\r\n" + body)
    connection.connection_lost(None)


async def test_a_header_that_would_begin_another_is_refused() -> None:
    found, _ = await written(Answer, GET, body=b"", headers={"Content-Type": "a\r\nX-Evil: 1"})
    assert b"X-Evil" not in found
    assert all("\r" not in content_type for _, content_type in answers._kinds)


async def test_a_client_that_has_gone_is_told_to_who_answers() -> None:
    gone: list[BaseException] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = Answer(body=b"{}", headers=JSON)
        await response.prepare(request)
        assert response.prepared
        assert request.transport is not None
        request.transport.abort()
        try:
            await response.write_eof()
        except ConnectionError as error:
            gone.append(error)
            raise
        return response

    connection, transport = connect(handler, Heads(1 << 20))
    connection.data_received(GET)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(gone) == 1 and not transport.written
    connection.connection_lost(None)


POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize("size", [1, 7, len(GET), len(POST), len(POST + GET), 10_000])
async def test_requests_in_pieces_of_any_size_leave_nothing_counted(size: int) -> None:
    heads, served = Heads(1 << 20), []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        served.append(await request.content.read() if request.body_exists else b"")
        return Answer(body=b"{}", headers=JSON)

    connection, transport = connect(handler, heads)
    data = (GET + POST + POST + GET) * 5
    for begin in range(0, len(data), size):
        connection.data_received(data[begin : begin + size])
        for _ in range(4):
            await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)
    assert served == [b"", b"hello", b"hello", b""] * 5
    assert heads.held == 0 and connection.held == 0 and connection._head_timer is None
    assert transport.written.count(b"HTTP/1.1 200 OK") == 20
    connection.data_received(GET[:10])
    assert heads.held == connection.held == 10 and connection._head_timer is not None
    connection.connection_lost(None)
    assert heads.held == 0


async def test_a_connection_that_is_closed_below_an_answer_is_no_defect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """uvloop raises RuntimeError where asyncio does nothing, as in the midst of a stop: a traceback in the log."""

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        return Answer(body=b"{}", headers=JSON)

    connection, transport = connect(handler, Heads(1 << 20))

    def refuse(_data: Any) -> None:
        raise RuntimeError("unable to perform operation on <TCPTransport closed=True>; the handler is closed")

    transport.write = refuse  # type: ignore[method-assign]
    connection.data_received(GET)
    for _ in range(30):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    assert [each for each in caplog.records if each.exc_info] == []
