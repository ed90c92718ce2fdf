"""The tap between peers that misbehave: it forwards, stays bounded, and lives on."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from pixy.tap.config import Bounds, TapConfig
from pixy.tap.relay import BUFFER
from pixy.tap.service import TapService
from pixy.wire import frames
from tests.support import eventually

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def tapped(handler: Handler | None, **fields: Any) -> AsyncIterator[tuple[TapService, int]]:
    """A broker that does what the handler does (None: nobody listens), and the tap's port before it."""
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
        async with TapService(TapConfig((("127.0.0.1", port),), ("127.0.0.1", 0), **fields)) as tap:
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
async def test_any_bytes_are_forwarded_to_the_last(rewriting: bool) -> None:
    data = random.Random(1).randbytes(3_000_000)
    async with tapped(echo, rewrite=rewriting) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        writer.write_eof()
        assert await reader.read() == data, "and the other way stays open when one has ended"
        writer.close()


async def test_the_broker_refuses_connections() -> None:
    async with tapped(None) as (tap, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await eventually(
            lambda: counts(tap), lambda found: found["open_connections"] == 0 and found["connections"] == 1
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b"", "it still accepts"
        writer.close()


async def test_a_broker_that_never_answers_the_connect() -> None:
    with socket.socket() as full:  # a backlog that is full: SYNs are dropped
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = []
        for _ in range(3):
            each = socket.socket()
            each.setblocking(False)
            each.connect_ex(full.getsockname())
            waiting.append(each)
        config = TapConfig((full.getsockname(),), ("127.0.0.1", 0), connect_timeout=0.3)
        async with TapService(config) as tap:
            begun = time.monotonic()
            reader, writer = await asyncio.open_connection(*tap.listening[0][0])
            assert await reader.read() == b"" and time.monotonic() - begun < 10
            writer.close()
        for each in waiting:
            each.close()


async def test_a_broker_that_cuts_a_frame_in_the_middle() -> None:
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
async def test_a_frame_of_4_gb(rewriting: bool) -> None:
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


async def test_a_reader_that_does_not_read_is_felt_by_the_sender_and_costs_one_buffer() -> None:
    sent = 0

    async def flood(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.transport.set_write_buffer_limits(high=0)
        while True:
            writer.write(b"\0\0\0\4abcd" * 8192)
            await writer.drain()
            sent += 65536

    async with tapped(flood) as (tap, port):
        client = socket.create_connection(("127.0.0.1", port))
        last = -1
        while sent != last or not sent:  # until the broker is stopped by the back-pressure
            last = sent
            await asyncio.sleep(0.3)
        relays = [cell._relay for cell in _connections(tap)]
        assert [relay.to_client.held > 0 and relay.to_client.held <= BUFFER for relay in relays] == [True]
        # Kernel buffers on both sides, and no more.
        assert sent < 64 * 1024 * 1024
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.readexactly(8) == b"\0\0\0\4abcd", "others are served meanwhile"
        writer.close()
        client.setblocking(False)
        received, deadline = 0, time.monotonic() + 30
        while received < last + 1_000_000 and time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                received += len(client.recv(1 << 20))
            await asyncio.sleep(0)
        assert received >= last + 1_000_000, "it goes on when the reader does"
        client.close()


def _connections(tap: TapService) -> list[Any]:
    from pixy.tap.connection import Connection

    return [ref._cell.actor for ref in tap.system.find("/tap/**") if isinstance(ref._cell.actor, Connection)]


async def test_thousands_of_connects() -> None:
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
                    if number % 5 == 0:  # a reset in the place of a clean end
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


async def test_more_connections_than_allowed_wait() -> None:
    async with tapped(echo, bounds=Bounds(connections=2)) as (_, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, writer in opened[:2]:
            writer.write(b"hello")
            assert await reader.readexactly(5) == b"hello"
        opened[2][1].write(b"third")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await opened[2][0].readexactly(5)
        opened[0][1].close()
        assert await opened[2][0].read(5) == b"third"[:5]
        for _, writer in opened:
            writer.close()


async def test_an_observer_that_is_stuck_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_the_tap_stops_with_connections_open() -> None:
    async with tapped(echo) as (tap, port):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for reader, writer in opened:
            writer.write(b"x")
            await reader.readexactly(1)
        begun = time.monotonic()
        report = await tap.stop()
        assert report.clean and time.monotonic() - begun < 5, report
        for reader, writer in opened:
            assert await reader.read() == b""
            writer.close()
