"""Raw sockets to a daemon, for clients that do not behave."""

from __future__ import annotations

import asyncio
import socket
from types import TracebackType

from tests.support import Daemon


class Raw:
    """One connection: ``async with await Raw.to(daemon) as raw``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, daemon: Daemon, listener: str = "rest", receive: int = 0) -> Raw:
        """Connect to a listener by its name.

        Args:
            daemon: which runs.
            listener: its name in ``engine.addresses``.
            receive: the size of the receive buffer; 0: the system's.
        """
        address = daemon.engine.addresses[listener]
        if "/" in address:
            return cls(*await asyncio.open_unix_connection(address))
        host, port = address.rsplit(":", 1)
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setblocking(False)
        if receive:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        await asyncio.get_running_loop().sock_connect(made, (host, int(port)))
        return cls(*await asyncio.open_connection(sock=made, limit=1 << 22))

    async def send(self, data: bytes | str) -> None:
        """Send bytes; those that a connection refuses by then are lost."""
        try:
            self._writer.write(data.encode() if isinstance(data, str) else data)
            await asyncio.wait_for(self._writer.drain(), 20)
        except ConnectionError:
            pass

    async def rest(self) -> bytes:
        """Everything until the daemon ends the connection, within 20 s."""
        found = b""
        try:
            async with asyncio.timeout(20):
                while chunk := await self._reader.read(1 << 16):
                    found += chunk
        except ConnectionError:
            pass
        return found

    async def line(self) -> bytes:
        """The next line."""
        return await asyncio.wait_for(self._reader.readline(), 20)

    async def answer(self) -> tuple[int, bytes]:
        """The next answer with a Content-Length: its status and body."""
        head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 20)
        status = int(head.split(b" ", 2)[1])
        size = next(
            (
                int(line.split(b":")[1])
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            0,
        )
        return status, await asyncio.wait_for(self._reader.readexactly(size), 20)

    async def ask(
        self, path: str, method: str = "GET", body: bytes = b"", **headers: str
    ) -> tuple[int, bytes]:
        """Send a request and return the status and body of its answer. A header's ``_`` stands for ``-``."""
        sent = {"Host": "localhost", "Content-Length": str(len(body))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        await self.send(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        return await self.answer()

    def close(self) -> None:
        """End it."""
        self._writer.close()

    async def __aenter__(self) -> Raw:
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()
