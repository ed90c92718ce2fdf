"""Requests to a daemon over connections that stay open, made with little processor time of the client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping


def post(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Make the bytes of a request that writes a message."""
    sent = {"Host": "localhost", "Content-Type": "text/plain", "Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


PING = b"GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Connection:
    """One that asks again and again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, address: str, source: str = "") -> Connection:
        """Connect, from an address of this machine if one is given.

        Args:
            address: ``host:port``.
            source: the address to connect from; empty: any.
        """
        host, port = address.rsplit(":", 1)
        local = (source, 0) if source else None
        return cls(*await asyncio.open_connection(host, int(port), local_addr=local, limit=1 << 16))

    async def ask(self, request: bytes) -> int:
        """Send a request, read the whole answer, and return its status."""
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        at = head.lower().index(b"content-length:") + 15
        size = int(head[at : head.index(b"\r\n", at)])
        if size:
            await self._reader.readexactly(size)
        return int(head[9:12])

    def close(self) -> None:
        """End it."""
        self._writer.close()


__all__ = ["PING", "Connection", "post"]
