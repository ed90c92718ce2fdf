"""Usual requests that arrive on hundreds of connections at once: whoever has to wait is parsed before those that come later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_protocol import HttpServer
from pixy.api.edge.pace import STEPS, TURN, Pace
from pixy.api.edge.pieces import AT_ONCE
from pixy.api.rest import server as rest_server
from pixy.api.rest.server import RestServer
from pixy.config.model import Connections
from tests.unit.api.edge.test_waiting import CHUNKED, GET, PART, Transport, post

LINES = CHUNKED + b"28\r\n%s\r\n" % (b"x" * 40) * 1000


class Client(Transport):
    """Counts its answers, and may send the next request once it has one."""

    def __init__(self, answered: Callable[[], None]) -> None:
        super().__init__()
        self.answers = 0
        self._answered = answered

    def write(self, data: bytes) -> None:
        super().write(data)
        if b" 200 " in data:
            self.answers += 1
            self._answered()

    def writelines(self, data: list[bytes]) -> None:
        self.write(b"".join(data))


class Crowd:
    """Connections to one server, in virtual time: each parse and each handler takes some.

    Args:
        monkeypatch: of the test.
        takes: seconds that each of them takes.
        again: whether the clients send the next request once they have an answer.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: float = 3e-5, *, again: bool = False) -> None:
        self.now = 0.0
        self._takes = takes
        self._again = again
        self._pace = Pace(self._clock)
        self.steps = Pace(self._clock, STEPS)
        self.opened: list[tuple[Any, Client]] = []
        self.server = HttpServer(
            self._answer,
            Connections(),
            Heads(1 << 25),
            Budget(1 << 28, "max_buffered_bytes"),
            Deadline(60.0),
            steps=self.steps,
            arrivals=Pace(self._clock, AT_ONCE),
        )
        parse = RequestHandler.data_received

        def parses(connection: RequestHandler, data: bytes) -> None:
            self.now += takes
            parse(connection, data)

        monkeypatch.setattr(RequestHandler, "data_received", parses)

    def _clock(self) -> float:
        return self.now

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        turn = self._pace.enter("a")
        if turn is not None:
            await self._pace.wait(turn, "a")
        self.now += self._takes
        return web.Response(body=b"{}")

    async def open(self, count: int, address: str = "10.0.0.1") -> list[tuple[Any, Client]]:
        """Connect."""
        found: list[tuple[Any, Client]] = []
        for _ in range(count):
            connection: Any = self.server.connection(Slot(address, lambda _caller: None))

            def answered(connection: Any = connection) -> None:
                if self._again:
                    asyncio.get_running_loop().call_soon(connection.data_received, GET)

            client = Client(answered)
            connection.connection_made(client)
            found.append((connection, client))
        self.opened += found
        await self.settle(5)
        return found

    async def settle(self, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)

    async def close(self) -> None:
        self._again = False
        for connection, _ in self.opened:
            if connection.transport is not None:
                connection.connection_lost(None)
        await self.settle(20)


@pytest.mark.parametrize("addresses", [1, 1000])
async def test_who_waits_is_not_overtaken_again_and_again(
    monkeypatch: pytest.MonkeyPatch, addresses: int
) -> None:
    crowd = Crowd(monkeypatch, again=True)
    for each in range(addresses):
        await crowd.open(1000 // addresses, f"address {each}")
    for connection, _ in crowd.opened:
        connection.data_received(GET)
    assert sum(len(connection.kept) for connection, _ in crowd.opened) > 500
    turns = 0
    while not all(client.answers for _, client in crowd.opened):
        await asyncio.sleep(0)
        assert max(client.answers for _, client in crowd.opened) <= 2
        turns += 1
        assert turns < 1000
    await crowd.close()


async def test_usual_requests_do_not_wait_behind_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, 1e-4)
    long, usual = await crowd.open(100), await crowd.open(300)
    for connection, _ in long:
        connection.data_received(LINES)
    for connection, _ in usual:
        connection.data_received(GET)
    turns = 0
    while any(connection.kept for connection, _ in usual):
        await asyncio.sleep(0)
        turns += 1
        assert turns < 20
    assert sum(bool(connection.kept) for connection, _ in long) > 95 and crowd.steps._waiting
    await crowd.close()


@pytest.mark.parametrize("data", [GET, post(b"x" * 20_000)])
async def test_an_idle_connection_is_not_closed_while_its_request_waits(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    crowd = Crowd(monkeypatch, 1e-3)
    found = await crowd.open(300)
    for connection, _ in found:
        connection.data_received(data)
    connection, client = found[-1]
    assert connection.kept
    connection._next_keepalive_close_time = 0.0
    connection._process_keepalive()
    assert connection._next_keepalive_close_time > 0.0 and connection._keepalive_handle is not None
    await crowd.settle(600)
    assert client.answers == 1 and not client.closed
    connection._next_keepalive_close_time = 0.0
    connection._process_keepalive()
    assert client.closed, "nothing of it waits"
    await crowd.close()


@pytest.mark.parametrize("data", [GET, post(b"x" * 20_000)])
async def test_requests_that_have_arrived_are_answered_at_a_stop(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    monkeypatch.setattr(rest_server, "_GRACE", 60.0)  # of real time: a machine may stand still for a second
    crowd = Crowd(monkeypatch, 1e-3)
    listener: Any = object.__new__(RestServer)

    async def close() -> None:
        pass

    listener._server, listener._acceptor, listener._inode = crowd.server, None, None
    listener._rest_v1 = SimpleNamespace(close=close)
    found = await crowd.open(300)
    for connection, _ in found:
        connection.data_received(data)
    assert sum(len(connection.kept) for connection, _ in found) > 100
    await listener.close()
    assert [client.answers for _, client in found] == [1] * 300
    await crowd.close()


async def test_a_stop_does_not_wait_for_requests_that_come_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch, 1e-3, again=True)
    found = await crowd.open(300)
    for connection, _ in found:
        connection.data_received(GET)
    await crowd.server.catch_up(600.0)
    assert max(client.answers for _, client in found) <= 3 and any(connection.kept for connection, _ in found)
    await crowd.close()


async def test_bodies_that_take_little_do_not_wait_behind_many_usual_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of 20 KB beside 1,000 connections whose requests fill each turn: what has time in a turn is parsed in it."""
    crowd = Crowd(monkeypatch, again=True)
    bodies, usual = await crowd.open(400, "10.0.0.2"), await crowd.open(1000)
    for connection, _ in bodies + usual:
        connection.data_received(GET)
    await crowd.settle(50)
    for connection, _ in bodies:
        connection.data_received(post(b"x" * 20_000))
    assert sum(bool(connection.kept) for connection, _ in bodies) > 200
    turns = 0
    while any(connection.kept for connection, _ in bodies):
        await asyncio.sleep(0)
        turns += 1
        assert turns < 30
    await crowd.close()


async def test_heads_that_are_late_together_are_refused_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    crowd = Crowd(monkeypatch)
    found = await crowd.open(1000)
    for connection, _ in found:
        connection.data_received(PART)
    await crowd.settle(100)

    def refused() -> int:
        return sum(b" 408 " in client.written for _, client in found)

    write = Client.write

    def takes(client: Client, data: bytes) -> None:
        crowd.now += 5e-5
        write(client, data)

    monkeypatch.setattr(Client, "write", takes)
    for connection, _ in found:
        connection._head_timer.cancel()
        connection._head_is_late()
    of_a_turn = round(TURN / 5e-5) + 1
    before = refused()
    assert 0 < before <= of_a_turn
    whole, gone = found[-1], found[-2]
    whole[0].data_received(b"b\r\n\r\n")
    gone[0].connection_lost(None)
    while refused() < 998:
        await asyncio.sleep(0)
        assert refused() - before <= of_a_turn
        before = refused()
    await crowd.settle(20)
    assert b" 200 " in whole[1].written and refused() == 998 and not gone[1].written
    await crowd.close()
