"""Accept connections from a listening socket, within the bounds, and do the TLS handshake within its deadline.

asyncio's own servers know no bound, and a connection whose TLS handshake never ends is unknown to their protocols. So the
socket is accepted here: the caller is counted before the first byte, and asyncio or uvloop gets the connection then.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus

from pixy.api.edge.connections import Book, Slot, caller_of, peer_name
from pixy.api.edge.greeting import greeted
from pixy.api.edge.pace import Pace
from pixy.api.edge.refusals import Refusals, Refused, ignore
from pixy.api.edge.tls_records import PacedTls

logger = logging.getLogger("pixy.api")

_BATCH = 64
"""Connections that are accepted before other work gets its turn."""
_PAUSE = 0.2
"""Seconds without accepting after the process could not open one more file."""
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def refusal(status: HTTPStatus, text: str) -> bytes:
    """Return a whole HTTP/1.1 answer that ends its connection, for where there is no request to answer.

    Args:
        status: with 429 and 503 the answer asks the client to come back after a second.
        text: the JSON body's ``error``.
    """
    body = json.dumps({"error": text}).encode()
    retry = (
        "Retry-After: 1\r\n"
        if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
        else ""
    )
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n"
    )
    return head.encode() + body


class Acceptor:
    """Accepts for one listener, from :meth:`start` to :meth:`close`.

    Args:
        listener: a listening socket, not blocking. It is closed at the end.
        make: makes the protocol of a connection; it frees the slot once the connection is lost.
        book: bounds the connections.
        tls: returns the context of the next handshake; None: without TLS.
        handshake_timeout: seconds in which it must end.
        handshakes: gives turns to them.
        refused: told the status, the address and the reason of a connection that is refused.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[Slot], asyncio.Protocol],
        book: Book,
        tls: Callable[[], ssl.SSLContext] | None,
        handshake_timeout: float,
        handshakes: Pace,
        refused: Refused = ignore,
    ) -> None:
        self._listener = listener
        self._make = make
        self._book = book
        self._tls = tls
        self._timeout = handshake_timeout
        self._handshakes = handshakes
        self._loop = asyncio.get_running_loop()
        self._refused = refused
        self._connecting: set[asyncio.Task[None]] = set()
        self._refusals = Refusals(self._loop.time)
        self._paused: asyncio.TimerHandle | None = None
        self.accepting = False

    def start(self) -> None:
        """Accept from now on."""
        self._loop.add_reader(self._listener, self._readable)
        self.accepting = True

    def retire(self) -> None:
        """Accept no more but what waits already. Handshakes go on."""
        if self.accepting and self._paused is None:
            self._readable()
            self._loop.remove_reader(self._listener)
        self.accepting = False
        if self._paused is not None:
            self._paused.cancel()
        self._listener.close()

    def close(self) -> None:
        """Accept no more, and give up what is in its handshake. Connections that are made stay."""
        if self.accepting and self._paused is None and self._listener.fileno() != -1:
            self._loop.remove_reader(self._listener)
        self.accepting = False
        if self._paused is not None:
            self._paused.cancel()
        for task in self._connecting:
            task.cancel()
        self._listener.close()

    def _readable(self) -> None:
        for _ in range(_BATCH):
            try:
                connection, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._pause(error)
                    return
                self._loop.remove_reader(self._listener)
                self.accepting = False  # the listener sees it, and ends the process
                logger.error("cannot accept connections: %s", error)
                return
            self._admit(connection, peer)

    def _pause(self, error: OSError) -> None:
        self._refusals.count(f"no connection can be accepted: {error.strerror}")
        self._loop.remove_reader(self._listener)
        self._paused = self._loop.call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._loop.add_reader(self._listener, self._readable)

    def _admit(self, connection: socket.socket, peer: object) -> None:
        try:
            connection.setblocking(False)
            caller = caller_of(connection)
        except OSError:  # it has gone already
            connection.close()
            return
        slot = self._book.enter(caller)
        if isinstance(slot, str):
            self._refuse(connection, caller, slot)
            return
        slot.peer = peer_name(peer)
        task = self._loop.create_task(self._connect(connection, slot))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _refuse(self, connection: socket.socket, caller: str, bound: str) -> None:
        self._refusals.count(f"connections are refused: {bound}, the last from {caller}", bound)
        status = (
            HTTPStatus.TOO_MANY_REQUESTS if self._book.is_full(caller) else HTTPStatus.SERVICE_UNAVAILABLE
        )
        text = f"Too many connections. Consider increasing `{bound}`"
        self._refused(status, caller, text)
        if self._tls is None:
            with suppress(OSError):  # nobody waits for it: what fits into an empty buffer is sent
                connection.send(refusal(status, text))
        connection.close()

    async def _connect(self, connection: socket.socket, slot: Slot) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(lambda: self._make(slot), connection)
                return
            left = self._timeout + self._loop.time()
            async with asyncio.timeout(self._timeout):
                await greeted(connection)
            left -= self._loop.time()
            await self._handshakes.wait(self._handshakes.queue(slot.caller), slot.caller)
            context = self._tls()
            context.sslobject_class = PacedTls
            await self._loop.connect_accepted_socket(
                lambda: self._make(slot), connection, ssl=context, ssl_handshake_timeout=max(left, 0.001)
            )
        except BaseException as error:
            slot.free()
            connection.close()
            # A handshake that fails or takes too long, a client that has gone.
            if not isinstance(error, OSError | EOFError):
                raise


__all__ = ["Acceptor", "refusal"]
