"""TLS records, however small, are read in turns."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest
import trustme

from pixy.api.edge.pace import TURN, Pace
from pixy.api.edge.tls_records import RECORDS, PacedTls, RecordTurns

READ = 5e-6
"""Seconds that reading a record takes."""


class Connection:
    """The server's side of a TLS connection, as the transports of asyncio and uvloop read it."""

    def __init__(self, world: World, sent: bytes) -> None:
        self._world = world
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        theirs = ssl.MemoryBIO()
        self.tls: Any = world.context.wrap_bio(self._incoming, outgoing, server_side=True)
        client = world.trusting.wrap_bio(theirs, self._incoming, server_hostname="localhost")
        for side in (client, self.tls, client, self.tls):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                theirs.write(outgoing.read())
        for at in range(len(sent)):
            client.write(sent[at : at + 1])
        self.got = b""
        self.reads = True
        self.tls.turns = RecordTurns(self, world.pace, "a")  # type: ignore[arg-type]

    def read(self) -> None:
        if not self.reads:
            return
        try:
            while self._incoming.pending or self.tls.pending():
                self.got += self.tls.read(262_144)
                self._world.now += READ
                self._world.read += 1
        except ssl.SSLWantReadError:
            return

    def is_reading(self) -> bool:
        return self.reads

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True
        asyncio.get_running_loop().call_soon(self.read)


class World:
    """Connections in virtual time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.read = 0
        """Records."""
        self.pace = Pace(lambda: self.now, RECORDS)
        ca = trustme.CA()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.sslobject_class = PacedTls
        ca.issue_cert("localhost").configure_cert(self.context)
        self.trusting = ssl.create_default_context()
        ca.configure_trust(self.trusting)


@pytest.mark.parametrize(("connections", "size"), [(2, 3000), (50, 200), (200, 31)])
async def test_a_turn_reads_few_of_the_records_that_have_come(connections: int, size: int) -> None:
    world = World()
    sent = bytes(each % 251 for each in range(size))
    found = [Connection(world, sent) for _ in range(connections)]
    for connection in found:
        connection.read()
    most = round(TURN / READ) + RECORDS * 32 + 32
    assert 0 < world.read <= most
    before, turns = world.read, 0
    while any(connection.got != sent for connection in found):
        await asyncio.sleep(0)
        assert world.read - before <= most
        before, turns = world.read, turns + 1
        assert turns < 1000


async def test_what_a_connection_has_not_read_in_its_turn_is_not_saved_up() -> None:
    world = World()
    found = [Connection(world, b"x" * 1500), *(Connection(world, b"x" * 33) for _ in range(60))]
    for connection in found[1:]:
        assert connection.tls.turns.may_read()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    for connection in found:
        connection.read()
    assert world.read <= round(TURN / READ) + 32


async def test_records_of_a_paused_connection_wait_until_it_is_resumed() -> None:
    world = World()
    one, other = Connection(world, b"x" * 2000), Connection(world, b"x" * 2000)
    one.read()
    other.read()
    other.pause_reading()
    got = other.got
    for _ in range(200):
        await asyncio.sleep(0)
    assert one.got == b"x" * 2000 and other.got == got != b"x" * 2000
    other.resume_reading()
    for _ in range(200):
        await asyncio.sleep(0)
    assert other.got == b"x" * 2000


async def test_a_connection_that_has_ended_reads_no_more() -> None:
    world = World()
    connection = Connection(world, b"x" * 2000)
    connection.read()
    connection.tls.turns.end()
    got = connection.got
    for _ in range(20):
        await asyncio.sleep(0)
    assert connection.got == got
