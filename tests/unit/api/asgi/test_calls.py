"""gRPC calls over ASGI."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from pixy.api.asgi.calls import Calls
from pixy.api.asgi.frames import framed
from pixy.api.edge.browsers import Browsers
from pixy.api.edge.edge import Edge
from pixy.api.grpc.gate import Gate
from pixy.config.model import App
from tests.unit.api.asgi.fake import Exchange

MOST = 1000
CALL = ((b"content-type", b"application/grpc+proto"),)


class Service:
    """A service with a unary method, one that waits, one that fails, and a bidirectional stream."""

    def __init__(self) -> None:
        self.ended: list[Any] = []
        self.waits = asyncio.Event()
        self.problems: list[str] = []

    def refused(self, text: str, _kind: str) -> None:
        self.problems.append(text)

    async def echo(self, _requests: Any, context: Any) -> bytes:
        context.add_done_callback(lambda each: self.ended.append((each.done(), each.code())))
        raw = await context.read()
        return b"<" + raw + b">"

    async def wait(self, _requests: Any, context: Any) -> bytes:
        context.add_done_callback(lambda each: self.ended.append((each.done(), each.code())))
        await context.read()
        self.waits.set()
        await asyncio.get_running_loop().create_future()
        return b""

    async def fail(self, _requests: Any, context: Any) -> bytes:
        if await context.read() == b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "not 100 %: ü\n", (("retry-after", "3"),))
        raise ZeroDivisionError

    async def stream(self, _requests: Any, context: Any) -> AsyncIterator[bytes]:
        while (raw := await context.read()) is not None:
            yield b"<" + raw + b">"

    def calls(self) -> Calls:
        edge = SimpleNamespace(browsers=Browsers(App()), refusals=SimpleNamespace(count=self.refused))
        made = Calls(MOST, cast(Edge, edge))
        unary, both = grpc.stream_unary_rpc_method_handler, grpc.stream_stream_rpc_method_handler
        methods = {
            "Echo": unary(self.echo),
            "Wait": unary(self.wait),
            "Fail": unary(self.fail),
            "Stream": both(self.stream),
        }
        made.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", methods),))
        return made


@pytest.fixture
def service() -> Service:
    return Service()


async def called(service: Service, method: str, *parts: bytes, encoding: bytes = b"") -> Any:
    headers = (*CALL, (b"grpc-encoding", encoding)) if encoding else CALL
    exchange = Exchange(f"/S/{method}", headers)
    for at, part in enumerate(parts, 1):
        exchange.body(part, more=at < len(parts))
    await exchange.serve(service.calls())
    return exchange.answer()


async def test_a_message_in_one_part_or_in_many_is_answered(service: Service) -> None:
    frame = framed(b"hello")
    expected = (
        200,
        framed(b"<hello>"),
        {b"content-type": b"application/grpc"},
        {b"grpc-status": b"0"},
    )
    assert await called(service, "Echo", frame) == expected
    assert await called(service, "Echo", *(bytes([each]) for each in frame)) == expected
    assert service.ended == [(True, None)] * 2


async def test_a_compressed_message_is_unpacked_up_to_the_bound(service: Service) -> None:
    def packed(data: bytes) -> bytes:
        made = gzip.compress(data)
        return b"\1" + len(made).to_bytes(4, "big") + made

    *_, trailers = await called(service, "Echo", packed(b"x" * MOST), encoding=b"gzip")
    assert trailers == {b"grpc-status": b"0"}
    *_, trailers = await called(service, "Echo", packed(b"x" * (MOST + 1)), encoding=b"gzip")
    assert trailers[b"grpc-status"] == b"8"
    *_, trailers = await called(service, "Echo", packed(b"x"), encoding=b"br")
    assert trailers[b"grpc-status"] == b"12"
    *_, trailers = await called(service, "Echo", b"\1\0\0\0\1x", encoding=b"gzip")
    assert trailers[b"grpc-status"] == b"3"


async def test_a_message_above_the_bound_or_cut_short_is_refused(service: Service) -> None:
    *_, trailers = await called(service, "Echo", framed(b"x" * (MOST + 1)))
    assert (trailers[b"grpc-status"], trailers[b"grpc-message"]) == (
        b"8",
        b"Received message larger than max (1001 vs. 1000)",
    )
    *_, trailers = await called(service, "Echo", framed(b"xyz")[:-1])
    assert trailers[b"grpc-status"] == b"3"


async def test_a_status_has_its_text_and_trailing_metadata(service: Service) -> None:
    status, body, _, trailers = await called(service, "Fail", framed(b"abort"))
    assert (status, body) == (200, b"")
    assert trailers == {
        b"grpc-status": b"5",
        b"grpc-message": b"not 100 %25: %C3%BC%0A",
        b"retry-after": b"3",
    }
    *_, trailers = await called(service, "Fail", framed(b""))
    assert trailers[b"grpc-status"] == b"13"
    *_, trailers = await called(service, "None", framed(b""))
    assert (trailers[b"grpc-status"], trailers[b"grpc-message"]) == (b"12", b"Method not found!")


async def test_a_stream_answers_each_message_before_the_next_one_comes(service: Service) -> None:
    exchange = Exchange("/S/Stream", CALL)
    serving = exchange.serve(service.calls())
    for each in (b"a", b"b"):
        exchange.body(framed(each), more=True)
        answers = [await exchange.sent.get() for _ in range(2 if each == b"a" else 1)]
        assert answers[-1] == {
            "type": "http.response.body",
            "body": framed(b"<" + each + b">"),
            "more_body": True,
        }
    exchange.body(b"")
    await serving
    *_, trailers = exchange.answer()
    assert trailers == {b"grpc-status": b"0"}


async def test_a_call_whose_client_goes_is_cancelled(service: Service) -> None:
    exchange = Exchange("/S/Wait", CALL)
    serving = exchange.serve(service.calls())
    exchange.body(framed(b"x"))
    await service.waits.wait()
    exchange.leave()
    await serving
    assert service.ended == [(False, None)]
    assert exchange.sent.empty()


async def test_a_client_that_has_gone_gets_no_answer(service: Service) -> None:
    exchange = Exchange("/S/Echo", CALL)
    serving = exchange.serve(service.calls())
    await asyncio.sleep(0)
    exchange.gone = True
    exchange.body(framed(b"x"))
    await serving
    assert service.ended == [(False, None)]


async def test_calls_that_last_are_ended_with_the_listener(service: Service) -> None:
    calls = service.calls()
    exchange = Exchange("/S/Wait", CALL)
    serving = exchange.serve(calls)
    exchange.body(framed(b"x"))
    await service.waits.wait()
    await calls.close(0.01)
    await serving
    *_, trailers = exchange.answer()
    assert trailers == {b"grpc-status": b"14", b"grpc-message": b"the server is stopping"}
    late = Exchange("/S/Echo", CALL)
    late.body(framed(b"x"))
    await late.serve(calls)
    assert late.answer()[3][b"grpc-status"] == b"14"


def test_the_context_has_what_the_gate_uses() -> None:
    """A method of grpc's context that the gate begins to use must be here, too."""
    import inspect
    import re

    from pixy.api.asgi.context import AsgiContext

    source = inspect.getsource(inspect.getmodule(Gate))  # type: ignore[arg-type]
    used = set(re.findall(r"\bcontext\.(\w+)\(", source))
    assert used <= set(dir(AsgiContext)), used


@pytest.mark.parametrize("kind", [b"text/plain", b"application/json", b"", None])
async def test_what_a_page_may_send_without_permission_is_no_call(
    service: Service, kind: bytes | None
) -> None:
    exchange = Exchange("/S/Echo", () if kind is None else ((b"content-type", kind),))
    exchange.body(framed(b"x"))
    await exchange.serve(service.calls())
    assert exchange.answer()[0] == 415 and not service.ended


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({b"host": b"evil.example"}, False),  # a program may know the daemon by any name
        ({b"host": b"localhost:80", b"origin": b"http://localhost:80"}, False),
        ({b"host": b"localhost:80", b"origin": b"https://evil.example"}, True),
        ({b"host": b"localhost:80", b"sec-fetch-site": b"cross-site"}, True),
        ({b"host": b"evil.example", b"origin": b"http://evil.example"}, True),
        ({b"host": b"evil.example", b"sec-fetch-site": b"same-origin"}, True),
    ],
)
async def test_calls_of_foreign_pages_are_refused(
    service: Service, headers: dict[bytes, bytes], refused: bool
) -> None:
    exchange = Exchange("/S/Echo", (*CALL, *headers.items()))
    exchange.body(framed(b"x"))
    await exchange.serve(service.calls())
    trailers = exchange.answer()[3]
    assert trailers[b"grpc-status"] == (b"7" if refused else b"0")
    assert len(service.problems) == refused and len(service.ended) == (not refused)
