"""Wait for the beginning of a TLS handshake, its ClientHello, before the handshake is begun.

Answering it takes the daemon half a millisecond with a key of RSA, on the event loop: a thousand clients that connect at the
same time, such as after a restart, would hold up everybody for half a second. So handshakes begin in turns, and a turn is of
use only to a client whose part is there. The bytes stay in the socket, for whoever does the handshake.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

_MOST: Final = 32 * 1024
"""Bytes that are looked at. A usual greeting has 0.3 to 2 KiB."""
_RECORDS: Final = 32
"""Records that are looked at, each time that more has come. 32 KiB of records of a byte took 4 ms, and the next byte as many again."""
_HEADER: Final = 5
"""Bytes before the contents of a record: its type, a version, and the length (RFC 8446, 5.1)."""
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1


def missing(data: bytes) -> int:
    """Return how many bytes a ClientHello lacks at least; 0: it is whole, or this is none.

    Args:
        data: what has arrived.
    """
    at, contents = 0, b""
    for _ in range(_RECORDS):
        if at >= _MOST:
            break
        header = data[at : at + _HEADER]
        if header[:1] not in (b"", bytes((_HANDSHAKE,))):
            return 0
        if len(header) < _HEADER:
            return _HEADER - len(header)
        size = int.from_bytes(header[3:], "big")
        contents += data[at + _HEADER : at + _HEADER + size]
        at += _HEADER + size
        if not size or contents[:1] not in (b"", bytes((_CLIENT_HELLO,))):
            return 0
        if len(data) < at:
            return at - len(data)
        if len(contents) >= 4 and len(contents) >= 4 + int.from_bytes(contents[1:4], "big"):
            return 0
    return 0


async def greeted(connection: socket.socket) -> None:
    """Wait until the ClientHello of a connection has arrived, or something else, or the client has gone.

    Args:
        connection: not blocking; nothing else waits for it.

    Raises:
        OSError: the connection has failed.
    """
    wanted = 0
    while True:
        try:
            data = connection.recv(_MOST, socket.MSG_PEEK)
        except BlockingIOError:
            data, wanted = b"", 0
        else:
            if len(data) < max(wanted, 1):
                break  # it ends here
        more = missing(data)
        if not more:
            break
        wanted = len(data) + more
        # Else the loop would turn without a pause while the rest does not come.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        await _readable(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    loop.add_reader(connection, lambda: None if waiter.done() else waiter.set_result(None))
    try:
        await waiter
    finally:
        loop.remove_reader(connection)


__all__ = ["greeted", "missing"]
