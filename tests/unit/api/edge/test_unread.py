"""Bodies that nobody reads: they count while they wait, and are dropped at the end of their request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from pixy.api import bodies
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpServer
from pixy.config.model import Connections
from tests.unit.api.edge.test_waiting import CHUNKED, GET, Transport, post

SIZE = 60_000


class World:
    """Connections of one address to a handler that reads bodies or not, as they come."""

    def __init__(self, limit: int = 1 << 20, *, reads: bool = False, after: float = 60.0) -> None:
        self.go = asyncio.Event()
        self.budget = Budget(limit, "max_buffered_bytes")
        self.told: list[int] = []
        self.read: list[tuple[int, int]] = []
        """The bytes that a body had, and those that were counted for unread ones, whenever a handler got some."""
        self.begun = 0
        """Requests that the handler was given."""
        self._reads = reads
        self._server = HttpServer(
            self._answer,
            Connections(),
            Heads(1 << 25),
            self.budget,
            Deadline(after),
            lambda status, *_: self.told.append(status),
        )
        self._opened: list[Any] = []

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self.begun += 1
        await self.go.wait()
        if not self._reads:
            return web.Response(status=404)
        try:
            body = await bodies.read(
                request,
                self.budget.share("a"),
                lambda size: self.read.append((size, self.budget.held)),
                lambda _promised: None,
            )
        except bodies.UnreadableBody as error:
            return web.Response(status=400, text=str(error))
        return web.Response(text=f"{len(body)} bytes")

    async def open(self, *pieces: bytes) -> tuple[Any, Transport]:
        """Connect, and send pieces."""
        connection, transport = self._server.connection(Slot("a", lambda _caller: None)), Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        self._opened.append(connection)
        for piece in pieces:
            connection.data_received(piece)
            await self.settle()
        return connection, transport

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for connection in self._opened:
            if connection.transport is not None:
                connection.connection_lost(None)
        await self.settle()
        assert self.budget.held == 0


@pytest.mark.parametrize("method", [b"GET", b"POST", b"DELETE"])
@pytest.mark.parametrize("cut", [100, SIZE // 2, 2 * SIZE])
async def test_a_body_that_nobody_reads_counts_until_its_request_ends(method: bytes, cut: int) -> None:
    world, data = World(), post(b"x" * SIZE, method)
    connection, transport = await world.open(data[:cut], data[cut:])
    assert SIZE <= world.budget.held < SIZE + 1000
    world.go.set()
    await world.settle()
    assert b" 404 " in transport.written and not transport.closed
    assert world.budget.held == 0 and connection._body._size == 0, "an idle connection keeps nothing"
    await world.close()


async def test_what_comes_after_the_answer_is_dropped() -> None:
    world, data = World(), post(b"x" * 200_000)
    world.go.set()
    connection, transport = await world.open(data[:40_000], *[b"x" * 40_000] * 3)
    assert b" 404 " in transport.written and transport.reads
    assert world.budget.held == 0 and connection._body._size == 0
    connection.data_received(data[160_000:] + GET)
    await world.settle()
    assert transport.written.count(b" 404 ") == 2, "the next request is served"
    await world.close()


@pytest.mark.parametrize("lines", [0, 200])
async def test_a_long_body_that_nobody_reads_is_no_reason_to_break_off(
    lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    """aiohttp reads on while it is dropped, whereby the rest is dropped already."""
    world, data = World(), post(b"\r" * lines + b"x" * (90_000 - lines))
    if lines:
        world.go.set()
        connection, transport = await world.open(data)
    else:
        connection, transport = await world.open(*[data[at : at + 16_000] for at in range(0, 80_000, 16_000)])
        world.go.set()
        await world.settle()
        connection.data_received(data[80_000:])
    await world.settle()
    assert b" 404 " in transport.written and not transport.closed and not caplog.records
    connection.data_received(GET)
    await world.settle()
    assert transport.written.count(b" 404 ") == 2
    await world.close()


async def test_a_request_that_is_refused_for_its_body_is_not_carried_out() -> None:
    """The end of its connection is noticed late, over TLS above all."""
    world = World(30_000, reads=True)
    world.go.set()
    other = world.budget.share("b")
    other.take(20_000)
    connection, transport = await world.open()
    await world.settle()
    connection.data_received(post(b"x" * 20_000))
    await world.settle()
    assert b" 503 " in transport.written and world.read == []
    other.give_back()
    connection.connection_lost(None)
    await world.close()


async def test_nor_is_one_whose_beginning_moves_the_bodies_behind_it_over_the_budget() -> None:
    """From Python 3.12 on its handler would begin before its task notices that it is cancelled."""
    world = World(100_000, reads=True)
    connection, transport = await world.open(GET)
    handle, handled = connection._handle_request, list[Any]()

    def notes(*args: Any) -> Any:
        handled.append(args)
        return handle(*args)

    connection._handle_request = notes
    connection.data_received(post(b"x" * 10_000) + post(b"y" * 60_000))
    await world.settle()
    other = world.budget.share("b")
    other.take(70_000)
    world.go.set()
    await world.settle()
    assert b" 200 " in transport.written and b" 503 " in transport.written and transport.closed
    assert world.begun == 1 and not handled
    other.give_back()
    connection.connection_lost(None)
    await world.close()


LONG = GET[:-2] + b"A: %s\r\n\r\n" % (b"x" * 20_000)


@pytest.mark.parametrize("pieces", [[LONG], [LONG[:10_000], LONG[10_000:]], [GET + LONG], [GET, LONG]])
async def test_a_long_head_counts_until_the_next_request_begins(pieces: list[bytes]) -> None:
    """So long aiohttp keeps it, also on an idle connection."""
    world = World()
    connection, transport = await world.open(*pieces)
    assert 40_000 <= world.budget.held < 41_000
    world.go.set()
    await world.settle()
    assert b" 404 " in transport.written and 40_000 <= world.budget.held < 41_000
    connection.data_received(GET)
    await world.settle()
    assert world.budget.held == 0 and not connection.unread.heads and not transport.closed
    await world.close()


async def test_long_heads_are_bounded_together_and_those_beyond_are_not_carried_out() -> None:
    world = World(400_000)
    world.go.set()
    found = [await world.open() for _ in range(20)]
    await world.settle()
    for connection, _ in found:
        connection.data_received(LONG)
    await world.settle()
    refused = [transport for _, transport in found if b" 503 " in transport.written]
    served = [transport for _, transport in found if b" 404 " in transport.written]
    assert len(served) == world.begun == 7 and len(refused) == 13 and all(each.closed for each in refused)
    await world.close()


async def test_bodies_that_nobody_reads_are_bounded_together() -> None:
    world = World(10 * SIZE)
    found = [await world.open(post(b"x" * SIZE)) for _ in range(20)]
    assert world.budget.held <= 8 * SIZE, "the address may have three quarters"
    refused = [transport for _, transport in found if transport.closed]
    assert len(refused) == 20 - world.budget.held // SIZE == len(world.told) and set(world.told) == {503}
    assert all(b" 503 " in each.written and b"`max_buffered_bytes`" in each.written for each in refused)
    _, transport = await world.open(post(b"x" * 5_000))
    assert not transport.closed, "a small one takes no room"
    await world.close()


async def test_a_body_in_pieces_of_a_byte_counts_as_what_it_takes() -> None:
    world = World()
    await world.open(CHUNKED + b"1\r\nx\r\n" * 1_500)
    assert world.budget.held > 100_000
    await world.close()


async def test_a_body_that_waits_behind_a_request_counts() -> None:
    world = World()
    await world.open(GET, post(b"x" * SIZE))
    assert SIZE <= world.budget.held < SIZE + 1000
    await world.open(post(b"x" * SIZE), post(b"x" * SIZE))
    assert 3 * SIZE <= world.budget.held < 3 * SIZE + 1000, "that of the one that is served, too"
    world.go.set()
    await world.settle()
    assert world.budget.held == 0
    await world.close()


@pytest.mark.parametrize("size", [SIZE, 300_000])
@pytest.mark.parametrize("piece", [50, 20_000, 400_000])
@pytest.mark.parametrize("late", [False, True])
async def test_a_body_that_is_read_counts_for_its_request_alone(size: int, piece: int, late: bool) -> None:
    world, data = World(reads=True), post(b"x" * size)
    if not late:
        world.go.set()
    pieces = [data[:100], data[100 : 100 + piece], data[100 + piece :]]
    connection, transport = await world.open(pieces[0])
    for each in pieces[1:]:
        if transport.reads:
            connection.data_received(each)
            await world.settle()
        else:
            world.go.set()
            await world.settle()
            connection.data_received(each)
            await world.settle()
    world.go.set()
    await world.settle()
    assert b"%d bytes" % size in transport.written
    assert [held for _, held in world.read] == [0] * len(world.read) and world.read[-1][0] == size
    await world.close()


async def test_what_waits_behind_a_body_that_is_read_counts() -> None:
    world = World(reads=True)
    world.go.set()
    data = post(b"x" * SIZE)
    await world.open(data[:-1])
    world.go.clear()
    second = await world.open(post(b"x" * 10), post(b"x" * SIZE))
    assert SIZE <= world.budget.held < SIZE + 1000
    world.go.set()
    await world.settle()
    assert b"%d bytes" % SIZE in second[1].written and world.budget.held == 0
    await world.close()


async def test_a_body_that_does_not_arrive_in_time_is_given_up() -> None:
    world, data = World(reads=True, after=0.005), post(b"x" * SIZE)
    world.go.set()
    _, transport = await world.open(data[:-1])
    while not transport.written:
        await asyncio.sleep(0.001)
    assert b" 400 " in transport.written and b"did not arrive within 0.005 s" in transport.written
    await world.close()


@pytest.mark.parametrize(
    ("coding", "status"),
    [
        (b"chunked", 404),
        (b"Chunked ", 404),
        (b"gzip, chunked", 501),
        (b"identity, chunked", 501),
    ],
)
@pytest.mark.parametrize("cut", [20, 1000])
async def test_a_transfer_coding_that_is_not_implemented_is_refused(
    coding: bytes, status: int, cut: int
) -> None:
    """It was taken for the body itself."""
    world = World()
    world.go.set()
    data = CHUNKED.replace(b"chunked", coding) + b"3\r\nabc\r\n0\r\n\r\n"
    _, transport = await world.open(data[:cut], data[cut:])
    assert transport.written.startswith(b"HTTP/1.1 %d " % status), transport.written
    if status == 501:
        assert (world.begun, world.told, transport.closed) == (0, [501], True)
        assert b"only chunked is implemented" in transport.written
    await world.close()
