"""TCP proxies that break on command: between daemons and brokers, and between clients and daemons."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Link:
    """Listens on a port of its own and forwards each connection to a target.

    Healthy by default. :meth:`cut` resets all connections and every new one, :meth:`hold` keeps them but
    forwards nothing, :meth:`slow` delays and throttles; :meth:`heal` ends either.

    Args:
        name: for reports.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = 0
        self.target = 0
        self.mode = "open"
        self.latency = 0.0
        self.bytes_per_second = 0.0
        self.sides: set[_Side] = set()
        self._server: asyncio.AbstractServer | None = None

    async def listen(self) -> int:
        """Open the port, which stays the same until :meth:`close`; return it."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Side(self, None), "127.0.0.1", 0, backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def cut(self) -> None:
        """Reset all connections, and each new one, until healed."""
        self.mode = "cut"
        for side in tuple(self.sides):
            side.abort()

    def hold(self) -> None:
        """Forward nothing until healed: the network drops everything, and nobody is told."""
        self.mode = "hold"

    def slow(self, latency: float, bytes_per_second: float) -> None:
        """Delay what is forwarded.

        Args:
            latency: seconds each way.
            bytes_per_second: of each connection, each way.
        """
        self.mode, self.latency, self.bytes_per_second = "slow", latency, bytes_per_second

    def heal(self) -> None:
        """Forward everything again, first what was held."""
        self.mode = "open"
        for side in tuple(self.sides):
            side.release()

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
        for side in tuple(self.sides):
            side.abort()


class _Side(asyncio.Protocol):
    """One of the two connections of a client with its target."""

    def __init__(self, link: Link, peer: _Side | None) -> None:
        self._link = link
        self._peer = peer
        self._transport: Any = None
        self._waiting: deque[bytes] = deque()
        self._due = 0.0
        self._ended = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._link.sides.add(self)
        if self._link.mode == "cut":
            self.abort()
        elif self._peer is None:
            self._dialling = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, peer = await loop.create_connection(
                lambda: _Side(self._link, self), "127.0.0.1", self._link.target
            )
        except OSError:
            self.abort()
            return
        self._peer = peer
        if self._ended:
            self._end()
        elif self._link.mode == "open":
            self.release()
        elif self._link.mode == "slow":
            for data in self._waiting:
                self._later(len(data))

    def data_received(self, data: bytes) -> None:
        mode = self._link.mode
        if mode == "open" and not self._waiting and self._peer is not None:
            self._write(data)
            return
        self._waiting.append(data)
        if mode != "hold" and self._peer is not None:
            self._later(len(data))
        if len(self._waiting) > 64:
            self._transport.pause_reading()

    def _later(self, size: int) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        latency, rate = self._link.latency, self._link.bytes_per_second
        self._due = max(now + latency, self._due + (size / rate if rate else 0.0))
        loop.call_at(self._due, self._forward)

    def _forward(self) -> None:
        if self._link.mode == "hold":
            return
        if self._waiting:
            self._write(self._waiting.popleft())
        self._after_writing()

    def _after_writing(self) -> None:
        if self._waiting or self._transport is None:
            return
        if self._ended:
            self._end()
        elif not self._transport.is_closing():
            self._transport.resume_reading()

    def release(self) -> None:
        """Forward what was held."""
        if self._peer is None:
            return  # not connected yet
        while self._waiting:
            self._write(self._waiting.popleft())
        self._after_writing()

    def _write(self, data: bytes) -> None:
        if self._peer is not None and not self._peer._transport.is_closing():
            self._peer._transport.write(data)

    def pause_writing(self) -> None:
        peer = self._peer
        if peer is not None and peer._transport is not None and not peer._transport.is_closing():
            peer._transport.pause_reading()

    def resume_writing(self) -> None:
        peer = self._peer
        if peer is not None and peer._transport is not None and not peer._transport.is_closing():
            peer._transport.resume_reading()

    def connection_lost(self, _error: Exception | None) -> None:
        self._link.sides.discard(self)
        self._ended = True
        if not self._waiting or self._link.mode == "cut":
            self._end()

    def _end(self) -> None:
        if self._peer is not None and self._peer._transport is not None:
            self._peer._transport.close()

    def abort(self) -> None:
        """Reset the connection."""
        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()
        self._ended = True
        self._end()


__all__ = ["Link"]
