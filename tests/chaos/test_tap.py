"""The tap between misbehaving peers: it forwards, keeps its limits, and survives."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import select
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pixy.tap.config import Bounds, TapConfig
from pixy.tap.listener import Listener
from pixy.tap.pipes import BUFFER
from pixy.tap.service import TapService
from pixy.wire import frames
from tests.support import eventually

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def tapped(
    handler: Handler | None, events: list[dict[str, Any]] | None = None, **fields: Any
) -> AsyncIterator[tuple[TapService, int]]:
    """Run a tap in front of a broker that serves each connection with ``handler`` (None: nobody listens)."""
    server = None
    if handler is None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
    else:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await handler(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
    try:
        service = TapService(TapConfig((("127.0.0.1", port),), ("127.0.0.1", 0), **fields))
        if events is not None:
            service.add_output(events.append)
        async with service as tap:
            yield tap, tap.listening[0][0][1]
    finally:
        if server is not None:
            server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def counts(tap: TapService) -> dict[str, Any]:
    found: dict[str, Any] = (await tap.ask())["counts"]
    return found


@pytest.mark.parametrize("rewriting", [False, True])
async def test_all_bytes_are_forwarded(rewriting: bool) -> None:
    data = random.Random(1).randbytes(3_000_000)
    async with tapped(echo, rewrite=rewriting) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data, "a direction stays open after the other one has ended"
        writer.close()


async def test_a_broker_that_refuses_connections() -> None:
    async with tapped(None) as (tap, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await eventually(
            lambda: counts(tap), lambda found: found["open_connections"] == 0 and found["connections"] == 1
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"", "the listener still accepts"
        writer.close()


async def test_a_connect_without_an_answer_ends_at_the_connect_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timeouts: list[float | None] = []
    timeout = asyncio.timeout

    def recorded(delay: float | None) -> asyncio.Timeout:
        timeouts.append(delay)
        return timeout(delay)

    monkeypatch.setattr(asyncio, "timeout", recorded)
    with socket.socket() as full:  # its backlog is full, so the kernel drops SYNs
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(3):
            each = socket.socket()
            each.setblocking(False)
            each.connect_ex(full.getsockname())
            waiting.append(each)
        events: list[dict[str, Any]] = []
        service = TapService(TapConfig((full.getsockname(),), ("127.0.0.1", 0), connect_timeout=0.3))
        service.add_output(events.append)
        async with service as tap:
            reader, writer = await asyncio.open_connection(*tap.listening[0][0])
            assert await reader.read() == b"", "the tap closes the client's connection"
            writer.close()
        reasons = [event["reason"] for event in events if event["event"] == "connection.closed"]
        assert reasons == [f"no connection to 127.0.0.1:{full.getsockname()[1]} within 0.3 s"]
        assert 0.3 in timeouts, "the connect itself is limited"
        for each in waiting:
            each.close()


async def test_a_broker_that_closes_in_the_middle_of_a_frame() -> None:
    answer = frames.encode_response("Metadata", 9, 1, {"Brokers": [{"NodeId": 1, "Host": "h", "Port": 9}]})[
        :-5
    ]

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(20)
        writer.write(answer)

    async with tapped(cut, rewrite=True) as (tap, port):
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(frames.encode_request("Metadata", 9, 1, "client", {}))
            assert await reader.read() == answer
            writer.close()
        found = await eventually(lambda: counts(tap), lambda found: found["open_connections"] == 0)
        assert "defects" not in found


@pytest.mark.parametrize("rewriting", [False, True])
async def test_a_length_of_4_gb_allocates_nothing(rewriting: bool) -> None:
    async with tapped(echo, rewrite=rewriting) as (tap, port):
        for head in (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            data = head + b"x" * 100_000
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
            writer.close()
        found = await eventually(lambda: counts(tap), lambda found: found.get("lost_sync") == 2)
        assert "defects" not in found


async def test_a_client_that_does_not_read_stops_the_broker_and_costs_one_buffer() -> None:
    sent = 0
    flooding: list[asyncio.StreamWriter] = []

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        flooding.append(writer)
        writer.transport.set_write_buffer_limits(high=0)
        while True:
            writer.write(b"\0\0\0\4abcd" * 8192)
            await writer.drain()
            sent += 65536

    async with tapped(flood) as (tap, port):
        client = socket.create_connection(("127.0.0.1", port))

        async def stopped() -> bool:
            """Whether the tap holds bytes and no socket on the way to the client accepts more."""
            relays = [connection._relay for connection in _connections(tap)]
            if not (flooding and relays and relays[0] is not None and relays[0].to_client.held):
                return False
            sockets = [flooding[0].get_extra_info("socket"), relays[0].to_client.sink]
            return (
                bool(flooding[0].transport.get_write_buffer_size())
                and not select.select([], sockets, [], 0)[1]
            )

        await eventually(stopped)
        last = sent
        (relay,) = [connection._relay for connection in _connections(tap)]
        assert 0 < relay.to_client.held <= BUFFER
        assert sent < 64 * 1024 * 1024, "only kernel buffers are filled"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(8) == b"\0\0\0\4abcd", "other clients are served meanwhile"
        writer.close()
        client.setblocking(False)
        received = 0
        while received < last + 1_000_000:  # the rest comes only if the broker is read again
            data = await asyncio.get_running_loop().sock_recv(client, 1 << 20)
            assert data, "the connection ended"
            received += len(data)
        client.close()


def _connections(tap: TapService) -> list[Any]:
    from pixy.tap.connection import Connection

    return [ref._cell.actor for ref in tap.system.find("/tap/**") if isinstance(ref._cell.actor, Connection)]


async def test_thousands_of_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    request = frames.encode_request(
        "Heartbeat", 3, 1, "c", {"GroupId": "g", "GenerationId": 1, "MemberId": "m"}
    )
    try:
        async with tapped(echo, bounds=Bounds(connections=300)) as (tap, port):
            gate = asyncio.Semaphore(500)

            async def one(number: int) -> None:
                async with gate:
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                    if number % 3:
                        writer.write(request)
                        assert await reader.readexactly(len(request)) == request
                    if number % 5 == 0:  # a reset instead of a clean end
                        writer.get_extra_info("socket").setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                    writer.close()

            await asyncio.gather(*(one(i) for i in range(3000)))
            found = await eventually(
                lambda: counts(tap),
                lambda found: found["open_connections"] == 0 and found["connections"] == 3000,
                within=60,
            )
            assert "defects" not in found
            await eventually(lambda: _alive(tap), lambda alive: alive == 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _alive(tap: TapService) -> int:
    return len(_connections(tap))


async def test_connections_beyond_the_limit_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = 0
    pause = Listener._pause

    def counted(listener: Listener) -> None:
        nonlocal pauses
        pauses += 1
        pause(listener)

    monkeypatch.setattr(Listener, "_pause", counted)

    async def pauses_now() -> int:
        return pauses

    async with tapped(echo, bounds=Bounds(connections=2)) as (tap, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in opened[:2]:
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
        opened[2][1].write(b"third")
        before = pauses
        await eventually(pauses_now, lambda now: now >= before + 3)  # the listener looks and finds no room
        found = await counts(tap)
        assert found["connections"] == found["open_connections"] == 2
        opened[0][1].close()
        assert await opened[2][0].readexactly(5) == b"third"
        for _, writer in opened:
            writer.close()


async def test_a_stuck_observer_does_not_delay_forwarding(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading

    from pixy.tap.observer import Observer

    stuck = threading.Event()
    monkeypatch.setattr(Observer, "_request", lambda *_: stuck.wait(30))
    request = frames.encode_request(
        "Heartbeat", 3, 1, "c" * 1000, {"GroupId": "g", "GenerationId": 1, "MemberId": "m"}
    )
    try:
        async with tapped(echo, bounds=Bounds(backlog=20_000)) as (tap, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for _ in range(500):
                writer.write(request)
                assert await reader.readexactly(len(request)) == request
            stuck.set()
            found = await eventually(lambda: counts(tap), lambda found: found.get("not_observed", 0) > 400)
            assert "defects" not in found
            writer.close()
    finally:
        stuck.set()


async def test_stop_closes_open_connections() -> None:
    events: list[dict[str, Any]] = []
    async with tapped(echo, events) as (tap, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, writer in opened:
            writer.write(b"x")
            await reader.readexactly(1)
        report = await tap.stop()
        assert report.clean, report
        reasons = [event["reason"] for event in events if event["event"] == "connection.closed"]
        assert reasons == ["the tap stops"] * 20, "the observer has seen every end before it stopped"
        for reader, writer in opened:
            assert await reader.read() == b""
            writer.close()
