"""End an HTTP connection: what it sends is refused before it is a request, or nobody reads it.

Every answer belongs to a request. So a refusal is written only where the request that it is for is the next one to be
answered; whoever waits before it keeps his answer, and the end of the connection says that what came behind was not served.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from pixy.api.edge.acceptor import refusal
from pixy.api.edge.connections import UNIX, Slot
from pixy.api.edge.refusals import Refused

_TAKEN = 1.0
"""Seconds in which a client may take a refusal before its connection is closed."""


class Refusing(RequestHandler):
    """A connection that can be ended with a reason.

    Args:
        server: aiohttp's.
        slot: its place among all connections.
        refused: told the status, the address and the reason of what is refused.
        options: aiohttp's.
    """

    def __init__(self, server: web.Server, slot: Slot, refused: Refused, **options: Any) -> None:
        super().__init__(server, **options)
        self.slot = slot
        self._told = refused
        self._body: StreamReader | None = None
        """The body of the latest request; its end begins the next head."""
        self._head_timer: asyncio.TimerHandle | asyncio.Future[None] | None = None
        """Ends the connection if a head is late, in its turn, or a refusal is not taken."""

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer what arrives and is no request yet, and end the connection. Requests that are in progress are answered first,
        and then the connection ends without another word.
        """
        transport = self.transport
        if self._close or transport is None:
            return
        waits = self._waiter is not None and not self._waiter.done()
        idle = waits or not self._request_count  # a request may have been taken and not begun yet
        self._close = True  # what comes is no longer read
        if not idle:
            if self._body is not None and not self._body.is_eof():
                self._lingering_time = 0.0
                self._body.set_exception(web.RequestPayloadError(text))
            return
        self._tell(status, text)
        transport.write(refusal(status, text))
        if transport.can_write_eof():
            # Closing it now would reset it while the client writes, and take the answer away from him.
            transport.write_eof()
            self._head_timer = self._loop.call_later(_TAKEN, self.force_close)
        else:
            self.force_close()

    def _refuse_body(self, status: HTTPStatus, text: str, message: Any, body: StreamReader) -> None:
        """Answer a request whose body nobody reads, and end the connection at once: it would keep the body for as long as the
        request takes.

        Args:
            status: of the answer.
            text: of the answer.
            message: aiohttp's, of the request.
            body: of the request.
        """
        if self._force_close:
            return
        self._tell(status, text)
        if self._is_next(message) and self.transport is not None:
            self.transport.write(refusal(status, text))
            # The end of the connection may be noticed late, over TLS above all: it must not be carried out.
            body.set_exception(web.RequestPayloadError(text))
            if self._current_request is None and self._task_handler is not None:
                self._task_handler.cancel()
        self.force_close()

    def _refuse_unparsed(self, status: HTTPStatus, text: str) -> None:
        """End the connection at once: it would keep data that is not parsed yet. Nobody knows which request that belongs to, so
        it is answered only if there is no other one.
        """
        if self._force_close:
            return
        self._tell(status, text)
        if self._current_request is None and not self._messages and self.transport is not None:
            self.transport.write(refusal(status, text))
        self.force_close()

    def _is_next(self, message: Any) -> bool:
        """Return whether a request is the next one to be answered, and its answer has not begun."""
        request = self._current_request
        if request is not None:
            return request._message is message and not request.writer.output_size
        return bool(self._messages) and self._messages[0][0] is message

    def _tell(self, status: int, text: str) -> None:
        peer = self.slot.peer
        self._told(status, self.slot.caller if peer in ("", UNIX) else peer, text)


__all__ = ["Refusing"]
