"""Refusals on their way to clients: who takes none of them holds memory for each, for as long as its connection lasts.

grpc has no way to end a connection, so its socket is found among the open files and shut down, as if the client had gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from typing import Final
from urllib.parse import unquote

from pixy.api.edge.refusals import Refusals
from pixy.api.grpc.retiring import own_sockets

MOST: Final = (128, 512, 2048)
"""Refusals under way on one connection, to one address and in all; with one more its connection is ended. A client that reads takes them at
once, so hardly any are ever under way."""


class Untaken:
    """Counts refusals that are under way, and ends connections that have too many.

    Args:
        end: ends the connections of some peers, as gRPC names them. Blocks.
        clock: seconds, for the log.
    """

    def __init__(self, end: Callable[[Collection[str]], object], clock: Callable[[], float]) -> None:
        self._end = end
        self._peers: Counter[str] = Counter()
        self._addresses: Counter[str] = Counter()
        self.held = 0
        """Refusals under way."""
        self._ended: set[str] = set()
        """Connections that were ended, or are about to be, and still have refusals under way."""
        self._next: set[str] = set()
        self._ending: asyncio.Task[None] | None = None
        self._refusals = Refusals(clock)

    @contextlib.contextmanager
    def one(self, peer: str, address: str) -> Iterator[None]:
        """Count a refusal for a ``with`` block.

        Args:
            peer: the connection's, as gRPC names it.
            address: the peer's.
        """
        self._peers[peer] += 1
        self._addresses[address] += 1
        self.held += 1
        too_many = self._peers[peer] > MOST[0] or self._addresses[address] > MOST[1] or self.held > MOST[2]
        if too_many and peer not in self._ended:
            self._refusals.count(
                f"gRPC connections are ended whose clients do not take refusals, the last from {address}"
            )
            self._ended.add(peer)
            self._next.add(peer)
            if self._ending is None or self._ending.done():
                self._ending = asyncio.ensure_future(self._end_all())
        try:
            yield
        finally:
            self.held -= 1
            for counter, name in ((self._peers, peer), (self._addresses, address)):
                counter[name] -= 1
                if not counter[name]:
                    del counter[name]
            if peer not in self._peers:
                self._ended.discard(peer)

    async def _end_all(self) -> None:
        while self._next:
            peers, self._next = self._next, set()
            await asyncio.to_thread(self._end, peers)


def end_connections(port: int, peers: Collection[str]) -> int:
    """End the connections of some peers to a port of this process; return how many were found. Blocks: it looks at every open file.

    Args:
        port: this process's own.
        peers: as gRPC names them: ``ipv4:10.0.0.1:5`` or ``ipv6:%5B::1%5D:5``.
    """
    wanted = {unquote(each) for each in peers}
    found = 0
    for each in own_sockets(port):
        with each, contextlib.suppress(OSError):
            if _name_of(each) in wanted:
                each.shutdown(socket.SHUT_RDWR)
                found += 1
    return found


def _name_of(connection: socket.socket) -> str:
    """Name the peer of a connection as gRPC does. Raises OSError: it has none."""
    host, number, *_ = connection.getpeername()
    if connection.family == socket.AF_INET:
        return f"ipv4:{host}:{number}"
    mapped = host.removeprefix("::ffff:")
    return f"ipv4:{mapped}:{number}" if mapped != host and "." in mapped else f"ipv6:[{host}]:{number}"


__all__ = ["MOST", "Untaken", "end_connections"]
