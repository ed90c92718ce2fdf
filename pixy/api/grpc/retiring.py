"""Let a gRPC server's clients move on to another process, without a failed call.

``grpc.aio.Server.stop`` fails calls that are under way to the server when it begins: they get CANCELLED. A connection that reaches its
largest age (``connections.grpc_max_age``) is ended well instead: its client sends new calls elsewhere, and those that were sent are
answered. So a server that retires waits until its connections have ended by their age. It must not get new ones meanwhile, and grpc has
no call for that: the listening socket is found among the open files and shut down, which on Linux takes it out
of those among which the system chooses (SO_REUSEPORT).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from typing import Final

_FILES: Final = "/proc/self/fd"


def stop_listening(port: int) -> bool:
    """Take no more connections to a port; return whether a socket of this process has listened on it. Blocks, and shortly."""
    found = False
    for each in own_sockets(port):
        with each:
            if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                found = True
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
    return found


def count_connections(port: int) -> int:
    """Count the connections of this process to a port of its own. Blocks: it looks at every open file."""
    count = 0
    for each in own_sockets(port):
        with each:
            count += each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0 and _is_connected(each)
    return count


def _is_connected(each: socket.socket) -> bool:
    try:
        each.getpeername()
    except OSError:
        return False
    return True


def own_sockets(port: int) -> Iterator[socket.socket]:
    """Yield duplicates of the process's own TCP sockets on a port, one at a time; whoever takes one closes it."""
    for name in os.listdir(_FILES):
        try:
            copy = os.dup(int(name))
        except OSError:  # it has been closed
            continue
        try:
            each = socket.socket(fileno=copy)
        except OSError:  # it is no socket
            os.close(copy)
            continue
        try:
            if each.family in (socket.AF_INET, socket.AF_INET6) and each.getsockname()[1] == port:
                yield each
                continue
        except OSError:
            pass
        each.close()


__all__ = ["count_connections", "own_sockets", "stop_listening"]
