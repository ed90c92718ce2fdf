"""What a connection may hold behind the request that is served, and how long a head may take there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from pixy.api.edge import waiting
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpServer
from pixy.config.model import Connections

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
PART = b"GET /b HTTP/1.1\r\nHost: a\r\nA: "
CHUNKED = b"POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
MOST = Connections().max_header_bytes


def post(body: bytes, method: bytes = b"POST") -> bytes:
    return b"%s /c HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (method, len(body), body)


class Transport:
    """Notes whether it is read from, and what is written."""

    def __init__(self) -> None:
        self.reads = True
        self.closed = False
        self.written = b""

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, data: list[bytes]) -> None:
        self.written += b"".join(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def get_extra_info(self, _name: str, default: Any = None) -> Any:
        return default

    def abort(self) -> None:
        self.closed = True

    def set_write_buffer_limits(self, high: int) -> None:
        """What is written is taken at once."""


class World:
    """One connection, whose requests are answered once ``go`` has a permit for each; each answer names its body's size."""

    def __init__(self, settings: Connections | None = None) -> None:
        self.go = asyncio.Semaphore(0)
        self.heads = Heads(1 << 25)
        self.budget = Budget(1 << 28)
        self.transport = Transport()
        self.begun: list[str] = []
        server = HttpServer(self._answer, settings or Connections(), self.heads, self.budget, Deadline(60.0))
        self.connection: Any = server.connection(Slot("a", lambda _caller: None))
        self.connection.connection_made(self.transport)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.begun.append(request.method)
        await self.go.acquire()
        return web.Response(text=f"{len(await request.read())} bytes")

    async def feed(self, *pieces: bytes) -> None:
        """Feed pieces while the connection is read from."""
        for piece in pieces:
            if self.transport.reads and not self.transport.closed:
                self.connection.data_received(piece)
                await self.settle()

    async def settle(self) -> None:
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.settle()
    yield made
    task = made.connection._task_handler
    made.connection.connection_lost(None)
    if task is not None:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert made.heads.held == 0


async def test_bodies_that_wait_behind_a_request_are_bounded(world: World) -> None:
    await world.feed(GET, post(b"x" * 60_000) * 4, *[post(b"x" * 60_000)] * 31)
    assert not world.transport.reads and len(world.connection._messages) == 4
    assert MOST < 240_000 < world.heads.held < 250_000
    world.go.release()
    await world.settle()
    assert not world.transport.reads, "what waits is still too much"
    for _ in range(9):
        world.go.release()
    await world.settle()
    assert world.transport.reads and world.heads.held == 0
    assert world.transport.written.count(b"60000 bytes") == len(world.begun) - 1 > 1


async def test_a_body_that_goes_on_behind_others_counts_too(world: World) -> None:
    await world.feed(GET, post(b"x" * 40_000), post(b"x" * 40_000), post(b"x" * 100_000)[:100])
    await world.feed(*[b"x" * 10_000] * 6)
    assert not world.transport.reads and world.heads.held > MOST


async def test_small_requests_in_a_row_wait_as_they_did(world: World) -> None:
    await world.feed(GET, *[post(b"x" * 100)] * 20)
    assert world.transport.reads and len(world.connection._messages) == 20
    for _ in range(21):
        world.go.release()
    await world.settle()
    assert world.transport.written.count(b"100 bytes") == 20 and world.heads.held == 0


async def test_a_body_that_nobody_reads_ends_the_connection(world: World) -> None:
    await world.feed(post(b"x" * 60_000, b"GET"))
    assert world.transport.reads and world.begun == ["GET"], "a small one is nobody's harm"
    world.go.release()
    await world.settle()
    await world.feed(post(b"x" * 200_000, b"GET"))
    assert world.transport.closed and b" 413 " in world.transport.written


async def test_a_large_body_is_read_whatever_pieces_it_comes_in(world: World) -> None:
    world.go.release()
    data = post(b"x" * 900_000)
    for begin in range(0, len(data), 250_000):
        await world.feed(data[begin : begin + 250_000])
    assert b"900000 bytes" in world.transport.written and world.connection._head_timer is None
    assert world.transport.reads and world.heads.held == 0


@pytest.mark.parametrize(
    "before",
    [
        GET,
        post(b"x" * 100),
        post(b"\r\n\r\nx\r\n\r\n"),
        post(b"x" * 20_000),
        CHUNKED + b"3\r\nabc\r\n0\r\n\r\n",
        CHUNKED + b"6\r\n\r\n\r\nab\r\n0\r\n\r\n" + post(b"\r\n\r\n"),
        GET + post(b"\r\n\r\nx"),
    ],
    ids=range(7),
)
async def test_a_head_that_begins_behind_a_request_has_a_deadline(world: World, before: bytes) -> None:
    await world.feed(before)
    assert world.connection._head_timer is None and not world.connection._head, "there is none"
    world.go.release()
    world.go.release()
    await world.settle()
    await world.feed(before + PART)
    assert world.connection._head == len(PART)
    world.go.release()
    world.go.release()
    await world.settle()
    world.connection._head_timer.cancel()
    world.connection._head_is_late()
    assert b" 408 " in world.transport.written and world.transport.closed


async def test_a_head_behind_a_long_body_counts_and_has_a_deadline(world: World) -> None:
    data = post(b"x" * 100_000)
    await world.feed(data[:50_000], data[50_000:] + PART + b"y" * 50_000)
    assert world.heads.held == len(PART) + 50_000 and world.connection._head_timer is not None
    world.go.release()
    await world.settle()
    assert world.transport.reads and world.heads.held == len(PART) + 50_000
    world.connection._head_timer.cancel()
    world.connection._head_is_late()
    assert b" 408 " in world.transport.written


async def test_a_head_behind_a_paused_body_may_not_be_too_large_either(world: World) -> None:
    data = post(b"x" * 100_000)
    line = b"y" * 50_000 + b"\r\nB: "
    await world.feed(data[:50_000], data[50_000:] + PART + line * 3)
    world.go.release()
    await world.settle()
    assert world.transport.closed, "after the answer that is under way"


async def test_a_head_behind_as_many_requests_as_may_wait_counts_once_there_is_room(world: World) -> None:
    await world.feed(GET, GET * 32 + PART)
    assert not world.transport.reads and world.connection._head_timer is None
    for _ in range(40):
        world.go.release()
    await world.settle()
    await world.settle()
    assert len(world.begun) == 33 and world.transport.reads
    assert (
        world.heads.held == world.connection._head == len(PART) and world.connection._head_timer is not None
    )


async def test_a_head_that_the_daemon_does_not_read_is_not_late(world: World) -> None:
    await world.feed(GET, post(b"x" * 60_000), post(b"x" * 60_000), post(b"x" * 60_000) + PART)
    assert not world.transport.reads and world.connection._head == len(PART)
    world.connection._head_timer.cancel()
    world.connection._head_is_late()
    assert not world.connection._close and world.connection._head_timer is not None


async def test_what_comes_behind_a_request_for_another_protocol_is_dropped(world: World) -> None:
    """No answer accepts one, and the connection ends with it; aiohttp would keep 32 KiB, and all that comes at once."""
    upgrade = GET[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    for piece in (upgrade + b"x" * 20_000, b"x" * 30_000, b"x" * 200_000):
        world.connection.data_received(piece)
        assert world.connection._upgraded and not world.connection._message_tail
    world.go.release()
    await world.settle()
    assert world.transport.closed and b" 200 " in world.transport.written


async def test_each_head_that_waits_is_looked_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []
    size = waiting.head_size
    monkeypatch.setattr(waiting, "head_size", lambda message: looked.append(message) or size(message))
    await world.feed(GET, GET * 30)
    for _ in range(31):
        world.go.release()
    await world.settle()
    assert len(world.begun) == 31 and len(looked) == 30


async def test_the_head_of_a_single_request_that_waits_counts_too(world: World) -> None:
    line = b"A: %s\r\n" % (b"y" * 60_000)
    for waits, body in (
        (GET[:-2] + line * 2 + b"\r\n", 0),
        (post(b"x" * 50_000).replace(b"Host", line + b"Host"), 50_000),
    ):
        await world.feed(GET, waits)
        assert len(waits) - body - 100 < world.heads.held <= len(waits) - body
        head = 2 * (len(waits) - body)
        assert world.transport.reads and body + head - 1000 < world.budget.held < body + head + 1000, (
            "the body counts there, and the head twice, as it is held"
        )
        for _ in range(2):
            world.go.release()
        await world.settle()
        assert world.heads.held == 0
    assert len(world.begun) == 4


async def test_what_comes_as_a_whole_while_none_is_served_is_not_counted(world: World) -> None:
    for _ in range(3):
        await world.feed(post(b"x" * 5_000))
        assert world.heads.most == 0
        world.go.release()
        await world.settle()


@pytest.mark.parametrize(
    "before", [b"", GET, post(b"x" * 20_000), CHUNKED + b"1\r\nx\r\n0\r\n\r\n"], ids=range(4)
)
@pytest.mark.parametrize("after", [GET, post(b"x" * 20_000), CHUNKED + b"1\r\nx\r\n0\r\n\r\n"], ids=range(3))
async def test_an_empty_line_between_requests_is_no_head(world: World, before: bytes, after: bytes) -> None:
    """Old clients send one behind a body (RFC 9112, 2.2)."""
    for _ in range(2):
        world.go.release()
    await world.feed(*[before] * bool(before), b"\r\n", b"\r", b"\n")
    assert world.connection._head_timer is None and world.heads.held == 0
    await world.feed(b"\r\n" + after)
    assert world.connection._head_timer is None and world.heads.held == 0
    assert len(world.begun) == 1 + bool(before) and not world.connection._close
    await world.feed(b"\r\n\r\n" + PART)
    assert world.connection._head == len(PART) and world.connection._head_timer is not None


async def test_an_empty_line_does_not_hide_a_head_that_is_too_large(world: World) -> None:
    line = b"y" * 50_000 + b"\r\nB: "
    await world.feed(b"\r\n\r\n" + PART + line * 3 + b"\r\n\r\n")
    assert b" 431 " in world.transport.written and not world.begun


@pytest.mark.parametrize("at", [1, 2, 3])
async def test_a_body_is_no_part_of_a_head_whose_end_was_divided(world: World, at: int) -> None:
    body = b"x" * (MOST + 1000)
    head = post(body)[: -len(body)]
    world.go.release()
    await world.feed(head[:-at], head[-at:] + body[:MOST], body[MOST:])
    assert b"%d bytes" % len(body) in world.transport.written


LARGE = PART + b"y" * 7_000 + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("pieces", "served"),
    [
        ([LARGE], 0),
        ([LARGE[:100], LARGE[100:]], 0),
        ([GET + LARGE], 1),
        ([GET, LARGE], 1),
        ([post(b"x" * 100)[:-1], b"x" + LARGE], 1),
    ],
    ids=range(5),
)
async def test_a_head_may_not_be_larger_than_the_bound_however_it_comes(
    pieces: list[bytes], served: int
) -> None:
    world = World(Connections(max_header_bytes=1024))
    await world.settle()
    await world.feed(*pieces)
    for _ in range(2):
        world.go.release()
    await world.settle()
    assert world.transport.closed and len(world.begun) == served
    assert world.transport.written.count(b" 200 ") == served
    assert (b" 431 " in world.transport.written) is (not served)
    world.connection.connection_lost(None)


async def test_what_a_closing_connection_drops_is_not_counted(world: World) -> None:
    await world.feed(CHUNKED + b"1;" + b"x" * 1000)
    await world.feed(*[b"x" * 100_000] * 50)
    assert world.connection._close and world.heads.held < 300_000
