"""HTTP requests over ASGI, served by handlers of aiohttp's requests."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
from aiohttp import web

from pixy.api.asgi.requests import Requests
from pixy.api.asgi.types import certificate_of
from pixy.api.bodies import read
from pixy.api.edge.edge import Edge
from pixy.api.rest.responses import respond
from pixy.config import App
from tests.unit.api.asgi.fake import Exchange


@pytest.fixture
def edge() -> Edge:
    return Edge(App())


async def body_of(request: web.BaseRequest, edge: Edge) -> bytes:
    with edge.budget.share("") as share:
        return await read(request, share, lambda _total: None)


async def served(
    edge: Edge, handler: Any, *parts: bytes, method: str = "POST", tls: bool = False, **scope: Any
) -> Any:
    exchange = Exchange("/a%20b", ((b"host", b"h"), (b"x-a", b"1"), (b"x-a", b"2")), method)
    exchange.scope.update(scope)
    for at, part in enumerate(parts, 1):
        exchange.body(part, more=at < len(parts))
    await exchange.serve(Requests(handler, edge, tls))
    return exchange.answer()


async def test_a_handler_sees_the_request_as_it_was_sent(edge: Edge) -> None:
    seen: dict[str, Any] = {}

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.update(
            raw_path=request.raw_path,
            method=request.method,
            host=request.headers["Host"],
            names=request.headers.getall("X-A"),
            remote=request.remote,
            scheme=request.scheme,
            body=await body_of(request, edge),
        )
        return respond(b"{}", 201)

    answer = await served(edge, handler, b"on", b"e", query_string=b"q=%20", tls=True)
    assert answer == (201, b"{}", {b"content-type": b"application/json", b"content-length": b"2"}, {})
    assert seen == {
        "raw_path": "/a%20b?q=%20",
        "method": "POST",
        "host": "h",
        "names": ["1", "2"],
        "remote": "127.0.0.1",
        "scheme": "https",
        "body": b"one",
    }


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_listener_and_not_the_target_says_whether_a_request_came_over_tls(
    edge: Edge, tls: bool, scheme: str
) -> None:
    """``GET http://host/path`` is sent over TLS, too; its client's certificate was lost."""
    seen: list[Any] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        seen.append((request.scheme, request.transport.get_extra_info("ssl_object") is not None))
        return respond(b"{}")

    await served(edge, handler, b"", scheme=scheme, tls=tls)
    assert seen == [("https" if tls else "http", tls)]


async def test_an_answer_that_the_handler_writes_is_sent_piece_by_piece(edge: Edge) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"X-B": "3"})
        await response.prepare(request)
        await response.write(b"one")
        await response.write_eof(b"two")
        return response

    status, body, headers, _ = await served(edge, handler, method="GET")
    assert (status, body, headers[b"x-b"]) == (200, b"onetwo", b"3")
    assert not {b"transfer-encoding", b"connection", b"server", b"date"} & headers.keys()


@pytest.mark.parametrize("write", [False, True])
async def test_answers_without_a_body_have_none(edge: Edge, write: bool) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.Response(status=204)
        if write:
            await response.prepare(request)
            await response.write_eof()
        return response

    status, body, headers, _ = await served(edge, handler, b"")
    assert (status, body) == (204, b"")
    assert b"content-length" not in headers


async def test_a_client_that_has_gone_is_noticed_when_the_answer_is_written(edge: Edge) -> None:
    found: list[BaseException] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        exchange.gone = True
        response = respond(b"{}")
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionResetError as error:
            found.append(error)
            raise
        return response

    exchange = Exchange("/", method="GET")
    await exchange.serve(Requests(handler, edge))
    assert len(found) == 1


async def test_a_request_whose_client_goes_is_cancelled(edge: Edge) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        raise AssertionError

    exchange = Exchange("/", method="GET")
    serving = exchange.serve(Requests(handler, edge))
    await begun.wait()
    exchange.leave()
    await serving
    assert ended.is_set()


async def test_a_body_that_breaks_off_is_an_error_of_its_reader(edge: Edge) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        with pytest.raises(ConnectionResetError):
            await body_of(request, edge)
        raise ConnectionResetError

    exchange = Exchange("/")
    exchange.body(b"x", more=True)
    exchange.leave()
    await exchange.serve(Requests(handler, edge))
    assert edge.budget.held == 0


async def test_an_error_of_ours_is_answered(edge: Edge) -> None:
    async def handler(_request: web.BaseRequest) -> web.StreamResponse:
        raise ZeroDivisionError

    status, body, *_ = await served(edge, handler, b"")
    assert status == 500
    assert b"ZeroDivisionError" in body


def test_the_certificate_is_that_of_the_hosting_server() -> None:
    text = "-----BEGIN CERTIFICATE-----\nQQ==\n-----END CERTIFICATE-----\n"
    value = b'Hash=1;Cert="-----BEGIN%20CERTIFICATE-----%0AQQ%3D%3D%0A-----END%20CERTIFICATE-----%0A";By=x'
    assert certificate_of({"headers": [(b"x-forwarded-client-cert", value)]}) == text
    assert ssl.PEM_cert_to_DER_cert(text) == b"A"
    assert certificate_of({"headers": []}) == ""
