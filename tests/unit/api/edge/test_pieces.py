"""What arrives on many connections at once is parsed in turns, and bodies of many small chunks are refused."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings, strategies as st

from pixy.api import bodies
from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpServer
from pixy.api.edge.pace import STEPS, TURN, Pace
from pixy.api.edge.pieces import AT_ONCE, LEAST_CHUNK, MOST_SMALL_CHUNKS, PIECE
from pixy.config.model import Connections
from pixy.errors import OverBudget
from tests.unit.api.edge.test_waiting import CHUNKED, GET, Transport, post

CHUNK = b"1\r\n \r\n"
MOST = PIECE // len(CHUNK) + 1
"""Chunks in a piece."""


class World:
    """Connections of many addresses to a handler that returns the size of a body, or does not read it.

    Args:
        reads: whether it does.
        step: seconds that each look at the clock takes.
        limit: of the byte budget.
        counts: whether the handler counts what it reads.
    """

    def __init__(
        self, *, reads: bool = True, step: float = 0.001, limit: int = 1 << 28, counts: bool = False
    ) -> None:
        self.budget = Budget(limit, "max_buffered_bytes")
        self.told: list[tuple[int, str]] = []
        self.bodies: list[bytes] = []
        self.gate: asyncio.Event | None = None
        """Keeps a handler that has read its body from answering."""
        self._reads = reads
        self._counts = counts
        ticks = itertools.count()

        def clock() -> float:
            return next(ticks) * step

        self._server = HttpServer(
            self._answer,
            Connections(),
            Heads(1 << 25),
            self.budget,
            Deadline(60.0),
            lambda status, _address, text: self.told.append((status, text)),
            Pace(clock, STEPS),
            Pace(clock, AT_ONCE),
        )
        self.opened: list[Any] = []

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if not self._reads:
            return web.Response(status=401)
        with self.budget.share("10.0.0.0") as share:

            def grows(total: int) -> None:
                if self._counts:
                    share.take(total - share.held)

            try:
                body = await bodies.read(request, share, grows, lambda _promised: None)
            except bodies.UnreadableBody as error:
                return web.Response(status=400, text=str(error))
            except OverBudget:
                return web.Response(status=503)
        self.bodies.append(body)
        if self.gate is not None:
            await self.gate.wait()
        return web.Response(text=f"{len(body)} bytes")

    def open(self) -> tuple[Any, Transport]:
        address = f"10.0.0.{len(self.opened)}"
        connection, transport = self._server.connection(Slot(address, lambda _caller: None)), Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        self.opened.append(connection)
        return connection, transport

    @property
    def parsed(self) -> int:
        """The chunks that were parsed of all bodies."""
        return sum(each._chunks for each in self.opened)

    async def settle(self, turns: int = 400) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for connection in self.opened:
            if connection.transport is not None:
                connection.connection_lost(None)
        await self.settle(20)
        assert self.budget.held == 0
        assert all(not each.kept for each in self.opened)


@pytest.mark.parametrize("size", [300_000, 8_000])
async def test_a_turn_of_the_loop_parses_few_of_the_chunks_that_arrive_in_it(size: int) -> None:
    world = World(reads=False)
    data = CHUNKED + CHUNK * (size // len(CHUNK))
    found = [world.open() for _ in range(100)]
    await world.settle(5)
    for connection, _ in found:
        connection.data_received(data)
    of_a_turn = (round(TURN / 0.001) + STEPS + 1) * MOST
    before = world.parsed
    assert 0 < before <= of_a_turn
    for _ in range(20):
        await asyncio.sleep(0)
        assert world.parsed - before <= of_a_turn
        before = world.parsed
    await world.close()


async def test_a_turn_of_the_loop_parses_few_of_the_requests_that_arrive_in_it() -> None:
    world = World(reads=False)
    found = [world.open()[0] for _ in range(300)]
    await world.settle(5)
    for connection in found:
        connection.data_received(post(b"x" * 5_000) * 10)
    of_a_turn = 10 * (round(TURN / 0.001) + STEPS + 1)
    before = sum(each._request_count for each in found)
    assert 0 < before <= of_a_turn
    for _ in range(20):
        await asyncio.sleep(0)
        parsed = sum(each._request_count for each in found)
        assert parsed - before <= of_a_turn
        before = parsed
    await world.settle(400)
    assert all(each._request_count == 10 for each in found)
    await world.close()


async def test_a_turn_of_the_loop_parses_few_of_the_small_requests_that_arrive_in_it() -> None:
    world = World(reads=False)
    found = [world.open()[0] for _ in range(1000)]
    await world.settle(5)
    for _ in range(2):
        count = sum(each._request_count for each in found)
        for connection in found:
            connection.data_received(GET)
        before = sum(each._request_count for each in found)
        assert 0 < before - count <= AT_ONCE + 10
        for _ in range(20):
            await asyncio.sleep(0)
            parsed = sum(each._request_count for each in found)
            assert parsed - before <= AT_ONCE + 10
            before = parsed
        await world.settle(1000)
        assert sum(each._request_count for each in found) == count + 1000
    await world.close()


async def test_a_body_of_many_small_chunks_is_refused() -> None:
    world = World()
    connection, transport = world.open()
    connection.data_received(CHUNKED + CHUNK * 40_000)
    await world.settle()
    assert connection._chunks <= MOST_SMALL_CHUNKS + MOST
    assert b" 400 " in transport.written and transport.closed
    assert (
        b"the body's chunks are too small" in transport.written
        and str(LEAST_CHUNK).encode() in transport.written
    )
    await world.close()


async def test_one_that_nobody_reads_is_not_parsed_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    world = World(reads=False)
    connection, transport = world.open()
    connection.data_received(CHUNKED + CHUNK * 40_000)
    await world.settle()
    assert b" 401 " in transport.written
    assert connection._chunks <= MOST_SMALL_CHUNKS + MOST
    assert not caplog.records, "a stranger cannot fill the log"
    await world.close()


async def test_chunks_that_cannot_be_followed_count_as_well() -> None:
    """After a line before a chunk that is too long, the connection ends with its request, which goes on."""
    world = World(reads=False)
    connection, _ = world.open()
    connection.data_received(CHUNKED + b"1;" + b"x" * 2000 + b"\r\n \r\n")
    await world.settle(5)
    for _ in range(20):
        connection.data_received(CHUNK * 1000)
        await world.settle(5)
    assert MOST_SMALL_CHUNKS < connection._chunks <= MOST_SMALL_CHUNKS + MOST
    await world.close()


@pytest.mark.parametrize(("count", "size"), [(MOST_SMALL_CHUNKS, 1), (20_000, LEAST_CHUNK), (200, 3)])
@pytest.mark.parametrize("cut", [1 << 18, 3000, 500])
async def test_honest_chunks_are_served(count: int, size: int, cut: int) -> None:
    """Such as one for each line of a file."""
    world = World()
    connection, transport = world.open()
    data = CHUNKED + b"%x\r\n%s\r\n" % (size, b"x" * size) * count + b"0\r\n\r\n" + GET
    for at in range(0, len(data), cut):
        connection.data_received(data[at : at + cut])
        await world.settle(5 if cut < 5000 else 400)
    await world.settle()
    assert transport.written.count(b" 200 ") == 2 and not transport.closed and not world.told
    assert world.bodies == [b"x" * size * count, b""]
    await world.close()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["lines", "large", "plain", "text", "get"]), min_size=1, max_size=6),
    st.lists(st.integers(1, 60_000), max_size=8),
    st.floats(0.0, 0.01),
)
async def test_what_waits_keeps_its_order(kinds: list[str], cuts: list[int], step: float) -> None:
    """Whatever waits, and whenever it is parsed, each request has its own body."""
    world, data, wanted = World(step=step), b"", list[bytes]()
    for at, kind in enumerate(kinds):
        mark = b"%d" % at
        if kind == "get":
            data, body = data + GET, b""
        elif kind == "lines":
            body = b"".join(b"line %d\n" % number + mark * 40 for number in range(400))
            data += CHUNKED + b"".join(
                b"%x\r\n%s\r\n" % (len(body[begin : begin + 40]), body[begin : begin + 40])
                for begin in range(0, len(body), 40)
            )
            data += b"0\r\n\r\n"
        elif kind == "large":
            body = mark * 70_000
            data += CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        else:
            body = (mark + b"\r\n") * 20_000 if kind == "text" else mark * 90_000
            data += post(body)
        wanted.append(body)
    connection, transport = world.open()
    edges = [0, *itertools.accumulate(cuts), len(data)]
    for begin, end in itertools.pairwise(sorted(min(each, len(data)) for each in edges)):
        for _ in range(1000):
            if transport.reads:
                break
            await asyncio.sleep(0)
        connection.data_received(data[begin:end])
    await world.settle(1500)
    assert not world.told and world.bodies == wanted and not transport.closed
    await world.close()


async def test_a_connection_is_not_read_from_while_what_it_has_sent_waits() -> None:
    world = World(step=1.0)
    found = [world.open() for _ in range(20)]
    await world.settle(5)
    for connection, _ in found:
        connection.data_received(post(b"x" * 100_000)[:50_000])
    waiting = [(connection, transport) for connection, transport in found if connection.kept]
    assert len(waiting) >= 18 and not any(transport.reads for _, transport in waiting)
    assert world.budget.held >= 50_000 * len(waiting)
    waiting[0][0].data_received(post(b"x" * 100_000)[50_000:])  # had arrived already
    await world.settle()
    assert all(transport.reads for _, transport in found) and world.bodies == [b"x" * 100_000]
    await world.close()


async def test_bodies_that_end_at_the_same_time_are_looked_at_in_different_turns() -> None:
    """However many connections keep the last byte back."""
    world = World(step=1.0)
    found = [world.open()[0] for _ in range(20)]
    await world.settle(5)
    for connection in found:
        connection.data_received(post(b"x" * 20_000)[:-1])
        await world.settle(20)
    for connection in found:
        connection.data_received(b"x")
    turns = before = 0
    while len(world.bodies) < 20:
        await asyncio.sleep(0)
        assert len(world.bodies) - before <= 2
        before, turns = len(world.bodies), turns + 1
        assert turns < 1000
    await world.close()


async def test_what_waits_is_bounded() -> None:
    world = World(step=1.0, limit=400_000)
    found = [world.open() for _ in range(20)]
    await world.settle(5)
    for connection, _ in found:
        connection.data_received(post(b"x" * 100_000)[:50_000])
    refused = [transport for _, transport in found if transport.closed]
    assert 10 <= len(refused) < 18 and [status for status, _ in world.told] == [503] * len(refused)
    await world.close()


async def test_a_single_request_may_use_the_whole_budget_in_whatever_pieces_it_comes() -> None:
    """What is read of it and what waits to be parsed are one request's."""
    world = World(limit=1 << 20, counts=True)
    connection, transport = world.open()
    lines = b"".join(b"%x\r\n%s\r\n" % (4_000, b"line\r\n".ljust(40, b"x") * 100) for _ in range(250))
    data = CHUNKED + lines + b"0\r\n\r\n"
    for at in range(0, len(data), 100_000):
        connection.data_received(data[at : at + 100_000])
        await world.settle()
    assert world.bodies == [b"line\r\n".ljust(40, b"x") * 25_000] and b" 200 " in transport.written
    assert world.budget.most > (1 << 20) * 9 // 10
    await world.close()


async def test_chunked_requests_behind_a_long_body_are_answered_in_order() -> None:
    world = World()
    gate = world.gate = asyncio.Event()
    connection, transport = world.open()
    await world.settle(5)
    chunked = [
        CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(each), each) for each in (b"two", b"y" * 70_000, b"four")
    ]
    connection.data_received(post(b"first"))
    await world.settle()
    connection.data_received(b"".join(chunked) + GET)
    await world.settle()
    gate.set()
    await world.settle()
    assert world.bodies == [b"first", b"two", b"y" * 70_000, b"four", b""]
    assert transport.written.count(b" 200 ") == 5 and not transport.closed
    await world.close()


async def test_chunked_requests_behind_as_many_as_may_wait_are_answered_in_order() -> None:
    world = World()
    gate = world.gate = asyncio.Event()
    connection, transport = world.open()
    await world.settle(5)
    chunked = CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"
    connection.data_received(chunked * 45 + CHUNKED + b"4\r\nab")
    await world.settle()
    connection.data_received(b"cd\r\n0\r\n\r\n")
    gate.set()
    await world.settle()
    assert world.bodies == [b"abc"] * 45 + [b"abcd"] and not transport.closed
    await world.close()


@pytest.mark.parametrize("data", [post(b"a\r\n" * 70_000), post(b"x" * 210_000)])
@pytest.mark.parametrize("before", [b"", GET])
async def test_who_sends_more_than_there_is_room_for_hears_so(data: bytes, before: bytes) -> None:
    world = World(limit=150_000, reads=False)
    connection, transport = world.open()
    await world.settle(20)
    if before:
        connection.data_received(before)
        await world.settle()
    connection.data_received(data)
    await world.settle()
    assert b" 503 " in transport.written and transport.closed
    connection.connection_lost(None)
    await world.close()


async def test_a_request_does_not_get_the_refusal_of_the_one_behind_it() -> None:
    """It has been carried out: its client would repeat it."""
    world = World(limit=50_000)
    gate = world.gate = asyncio.Event()
    connection, transport = world.open()
    await world.settle(20)
    connection.data_received(post(b"first"))
    await world.settle()
    assert world.bodies == [b"first"]
    connection.data_received(post(b"a\r\n" * 30_000))
    await world.settle()
    assert transport.closed and b" 503 " not in transport.written
    gate.set()
    connection.connection_lost(None)
    await world.close()


async def test_what_a_client_that_has_gone_has_sent_is_dropped() -> None:
    world = World(step=1.0)
    found = [world.open() for _ in range(20)]
    await world.settle(5)
    for connection, _ in found:
        connection.data_received(post(b"x" * 49_000))
    for connection, _ in found[:19]:
        connection.connection_lost(None)
    await world.settle()
    assert len(world.bodies) <= 4 and not found[19][0].kept
    await world.close()
