"""A connection over kazoo, to a server that accepts every session, when kazoo's own thread ends for good."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
from typing import Any

import pytest
from kazoo.protocol.connection import ConnectionHandler

from pixy.config.model import ZooKeeper
from pixy.membership.zookeeper import connection as module
from pixy.membership.zookeeper.connection import Connection
from pixy.membership.zookeeper.keeper import Disconnected, State

CONNECTED, SUSPENDED, EXPIRED = State.CONNECTED, State.SUSPENDED, State.EXPIRED


class Server:
    """Opens a session for whoever connects, and answers each request with nothing."""

    def __init__(self) -> None:
        self.sessions = 0
        self.emptied = False
        """Whether its data is gone: it hangs up on clients that have seen later changes, and knows no session."""
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        self.drop()

    def drop(self) -> None:
        """Close all connections."""
        while self._writers:
            self._writers.pop().close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            _, seen, _, session = struct.unpack(">iqiq", (await self._read(reader))[:24])
            if self.emptied and seen:
                raise ConnectionError
            if self.emptied and session:
                self._write(writer, struct.pack(">iiqi16s", 0, 0, 0, 16, bytes(16)))
                raise ConnectionError
            self.sessions += 1
            self._write(writer, struct.pack(">iiqi16s", 0, 6000, self.sessions, 16, b"password"))
            while True:
                request = await self._read(reader)
                self._write(writer, request[:4] + struct.pack(">qi", 0 if self.emptied else 77, 0))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    @staticmethod
    async def _read(reader: asyncio.StreamReader) -> bytes:
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        return await reader.readexactly(length)

    @staticmethod
    def _write(writer: asyncio.StreamWriter, body: bytes) -> None:
        writer.write(struct.pack(">i", len(body)) + body)


class Failing:
    """Makes kazoo's look-ups of its servers fail, as they do while no file is left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        look_up = ConnectionHandler._expand_client_hosts

        def failing(handler: Any) -> Any:
            if self.times:
                self.times -= 1
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return look_up(handler)

        monkeypatch.setattr(ConnectionHandler, "_expand_client_hosts", failing)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Failing:
    monkeypatch.setattr(module, "_RESTART_PAUSE", 0.01)
    return Failing(monkeypatch)


def connect(address: str) -> tuple[Connection, asyncio.Queue[State]]:
    """Open a connection; return its changes, too."""
    made = Connection(ZooKeeper([address], session_timeout=6.0))  # type: ignore[arg-type]
    states: asyncio.Queue[State] = asyncio.Queue()
    made.listen(states.put_nowait)
    return made, states


async def test_a_client_that_ends_is_replaced_by_another_one(
    failing: Failing, caplog: pytest.LogCaptureFixture
) -> None:
    """Else all groups of the cluster would wait until the daemon is restarted."""
    async with Server() as server, asyncio.timeout(30):
        failing.times = 2
        connection, states = connect(server.address)
        assert await states.get() is CONNECTED
        assert not failing.times and connection.session == 1
        failing.times = 2
        server.drop()
        assert [await states.get() for _ in range(2)] == [SUSPENDED, EXPIRED]
        with pytest.raises(Disconnected):
            await connection.delete("/t")
        assert await states.get() is CONNECTED
        assert not failing.times and connection.session == 2
        await connection.delete("/t")
        assert caplog.text.count("client has ended: [Errno 24] Too many open files; connecting anew") == 4
        await connection.close()
        assert states.empty()


async def test_a_client_that_does_not_start_is_tried_again(
    failing: Failing, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, refused = ConnectionHandler.start, 0

    def refusing(handler: Any) -> None:
        nonlocal refused
        if not failing.times and refused < 3:
            refused += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        start(handler)

    monkeypatch.setattr(ConnectionHandler, "start", refusing)
    async with Server() as server, asyncio.timeout(30):
        failing.times = 1
        connection, states = connect(server.address)
        assert await states.get() is CONNECTED
        assert refused == 3 and caplog.text.count("client does not start: [Errno 24]") == 3
        await connection.close()


async def test_a_connection_is_closed_while_a_client_is_to_be_replaced(
    failing: Failing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_RESTART_PAUSE", 3600.0)
    async with Server() as server, asyncio.timeout(30):
        failing.times = 1
        connection, _ = connect(server.address)
        while connection._restarting is None:
            await asyncio.sleep(0.001)
        await connection.close()
        assert not server.sessions


async def test_a_server_that_has_lost_its_data_is_used_when_the_session_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It hung up on the client, which has seen later changes, until the daemon was restarted; no group consumed."""
    async with Server() as server, asyncio.timeout(60):
        made = Connection(ZooKeeper([server.address], session_timeout=1.0))  # type: ignore[arg-type]
        states: asyncio.Queue[State] = asyncio.Queue()
        made.listen(states.put_nowait)
        assert await states.get() is CONNECTED
        await made.delete("/t")
        server.emptied = True
        server.drop()
        assert [await states.get() for _ in range(3)] == [SUSPENDED, EXPIRED, CONNECTED]
        assert made.session == 2 and caplog.text.count("has not taken the session back for 1 s") == 1
        await made.delete("/t")
        await made.close()
