"""TLS handshakes begin in turns, once the client's part is there."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pixy.api.edge import acceptor as acceptor_module
from pixy.api.edge.acceptor import Acceptor
from pixy.api.edge.connections import Book
from pixy.api.edge.greeting import greeted, missing
from pixy.api.edge.pace import HANDSHAKES, Pace
from pixy.api.edge.tls_records import PacedTls


def _hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = _hello()


def divided(size: int) -> bytes:
    """The same greeting in records of so many bytes."""
    contents = HELLO[5:]
    parts = [contents[at : at + size] for at in range(0, len(contents), size)]
    return b"".join(HELLO[:3] + len(part).to_bytes(2, "big") + part for part in parts)


@given(st.integers(len(HELLO) // 32 + 1, 2000), st.data())
def test_a_greeting_is_known_when_it_is_whole(size: int, data: st.DataObject) -> None:
    whole = divided(size)
    assert missing(whole) == missing(whole + b"more") == 0
    part = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert 0 < missing(part) <= len(whole) - len(part)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\x00\x05\x02",
    ],
)
def test_what_is_no_greeting_is_not_waited_for(data: bytes) -> None:
    assert missing(data) == 0


def test_no_greeting_is_waited_for_without_end() -> None:
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + b"x" * (16_384 - 4)
    assert missing(record) and missing(record * 2) == 0


def test_few_records_of_a_greeting_are_looked_at() -> None:
    """Each byte that comes would cost as much as all before it."""
    record = b"\x16\x03\x01\x00\x01\x01"
    assert missing(record * 31) and missing(record * 32) == missing(record * 5000) == 0


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    accepted.setblocking(False)
    with client, accepted:
        yield client, accepted


async def test_the_greeting_stays_in_its_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    waiting = asyncio.ensure_future(greeted(accepted))
    whole = divided(100)
    for at in range(0, len(whole), 90):
        await asyncio.sleep(0.001)
        assert not waiting.done()
        client.sendall(whole[at : at + 90])
    async with asyncio.timeout(30):
        await waiting
    assert accepted.recv(1 << 16) == whole
    assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 1


@pytest.mark.parametrize("sent", [b"", HELLO[:100]], ids=["nothing", "a part"])
async def test_who_has_gone_is_not_waited_for(pair: tuple[socket.socket, socket.socket], sent: bytes) -> None:
    client, accepted = pair
    waiting = asyncio.ensure_future(greeted(accepted))
    client.sendall(sent)
    await asyncio.sleep(0.001)
    assert not waiting.done()
    client.shutdown(socket.SHUT_WR)
    async with asyncio.timeout(30):
        await waiting


async def test_few_handshakes_begin_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients connect at the same time."""
    begun: list[Any] = []

    async def arrived(_connection: Any) -> None:
        return

    async def connect(_make: Any, connection: Any, **_options: Any) -> None:
        begun.append(connection)

    monkeypatch.setattr(acceptor_module, "greeted", arrived)
    loop, ticks = asyncio.get_running_loop(), itertools.count()
    monkeypatch.setattr(loop, "connect_accepted_socket", connect)
    context: Any = SimpleNamespace()
    listener: Any = object()
    book = Book(1000, 1000)
    acceptor = Acceptor(
        listener,
        lambda _slot: asyncio.Protocol(),
        book,
        lambda: context,
        10.0,
        Pace(lambda: next(ticks) * 1e-4, HANDSHAKES),
    )
    tasks: list[asyncio.Task[None]] = []
    for caller in ["hostile"] * 200 + ["honest"]:
        slot: Any = book.enter(caller)
        connection: Any = caller
        tasks.append(asyncio.ensure_future(acceptor._connect(connection, slot)))
    before = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        assert len(begun) - before <= HANDSHAKES
        before = len(begun)
    assert context.sslobject_class is PacedTls, "records have turns, too"
    assert len(begun) == 201 and begun.index("honest") < HANDSHAKES
