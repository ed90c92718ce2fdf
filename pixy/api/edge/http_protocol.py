"""An HTTP connection with deadlines: aiohttp's protocol, with what it leaves open for ever bounded.

=====================  ==================================================================================
idle, or never used    closed after ``connections.idle_timeout`` (aiohttp's own timer)
part of a head         408 after ``connections.header_timeout``; 431 beyond ``connections.max_header_bytes``
waiting requests       no more is read beyond ``connections.max_header_bytes``, bodies included
a body                 :mod:`pixy.api.bodies`, ``body_timeout``; unread, 503 beyond ``max_buffered_bytes``
chunks                 400 for many small ones; much at once is parsed in turns (:mod:`pixy.api.edge.pieces`)
trailers               400 beyond ``connections.max_header_bytes``; the connection ends after the answer
an answer              ended if the client does not take it within ``connections.write_timeout``
closing                aborted after :data:`_LINGER`, if the client does not take what is left
=====================  ==================================================================================
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError, InvalidURLError

from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_input import HttpInput
from pixy.api.edge.http_request import HttpRequest
from pixy.api.edge.pace import STEPS, Pace
from pixy.api.edge.pieces import AT_ONCE
from pixy.api.edge.refusals import Refused, ignore
from pixy.api.edge.tls_records import RECORDS, PacedTls, RecordTurns
from pixy.config.model import Connections

logger = logging.getLogger("pixy.api")


_NAMED = re.compile(r"(?:Missing|Duplicate) '[A-Za-z-]{1,40}' header[a-z .]{1,20}\Z")
"""Errors that name a header only."""
_UNSENT: Final = 32 * 1024
"""Bytes of answers that a client has not taken, above which the next answer waits for him, and counts until he has. By
default it is 64 KiB, and 512 KiB over TLS, which 4,000 connections of one address could make two gigabytes.
"""
_LINGER = 10.0
"""Seconds that a closed connection may take for its last bytes."""


class HttpServer(web.Server):
    """Makes the connections of one listener.

    Args:
        handler: answers requests.
        settings: the section ``connections``.
        heads: shared by all listeners.
        budget: counts the bytes of bodies that nobody reads yet; shared likewise.
        body_deadline: for whoever reads a body (``body_timeout``); shared likewise.
        refused: told the status, the address and the reason of what is refused before it is a request.
        steps: gives turns to what arrives in large pieces; shared likewise.
        arrivals: gives turns to small ones, if many arrive at once; shared likewise.
        records: gives turns to TLS records; shared likewise.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        settings: Connections,
        heads: Heads,
        budget: Budget,
        body_deadline: Deadline,
        refused: Refused = ignore,
        steps: Pace | None = None,
        arrivals: Pace | None = None,
        records: Pace | None = None,
    ) -> None:
        super().__init__(handler, handler_cancellation=True, request_factory=self._make)
        self._settings = settings
        self._heads = heads
        self._budget = budget
        self._body_deadline = body_deadline
        self.refused = refused
        self._steps = steps or Pace(time.monotonic, STEPS)
        self._arrivals = arrivals or Pace(time.monotonic, AT_ONCE)
        self.records = records or Pace(time.monotonic, RECORDS)

    def connection(self, slot: Slot) -> HttpConnection:
        """Make the protocol of a connection; it frees ``slot`` at its end."""
        return HttpConnection(
            self,
            self.refused,
            slot,
            self._settings,
            self._heads,
            self._budget,
            self._body_deadline,
            self._steps,
            self._arrivals,
        )

    async def catch_up(self, seconds: float) -> None:
        """Parse what has arrived by now, and let its requests begin.

        Args:
            seconds: the longest wait.
        """
        left = [each for each in self.connections if isinstance(each, HttpConnection) and each.waits]
        until = self._loop.time() + seconds
        while left and self._loop.time() < until:
            await asyncio.sleep(0)
            left = [each for each in left if each.waits]
        await asyncio.sleep(0)

    def _make(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        unread = protocol.unread
        unread.served = payload
        if protocol.held or unread.heads:
            protocol.begins(message)
            if protocol.transport is None:
                # The connection has just been ended. Its task is cancelled, but the handler might begin before it notices.
                raise asyncio.CancelledError
        return HttpRequest(message, payload, protocol, writer, task, self._loop)


class HttpConnection(HttpInput):
    """One connection of a client."""

    _write_timer: asyncio.TimerHandle | None = None
    _closing: asyncio.TimerHandle | None = None
    _records: RecordTurns | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a client that has connected; see :class:`asyncio.Protocol`."""
        cast(asyncio.WriteTransport, transport).set_write_buffer_limits(_UNSENT)
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if isinstance(tls, PacedTls):
            records = self._manager.records  # type: ignore[union-attr]
            self._records = tls.turns = RecordTurns(
                cast(asyncio.Transport, transport), records, self.slot.caller
            )

    # -- answers ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """Note that the client does not take the answer for now; see :class:`asyncio.Protocol`."""
        super().pause_writing()
        self._write_timer = self._loop.call_later(self._settings.write_timeout, self._abort)

    def resume_writing(self) -> None:
        """Note that the client takes the answer again; see :class:`asyncio.Protocol`."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is malformed, or an error of ours."""
        if isinstance(exc, HttpProcessingError):
            message = without_data(exc)
        self._tell(status, (message or repr(exc)).partition("\n")[0])
        return super().handle_error(request, status, exc, message)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an error of ours. Neither what a client has malformed nor one that has gone is a reason for a traceback."""
        error = kw.get("exc_info")
        if isinstance(error, ConnectionError):
            logger.debug("a client has gone: %s", error)
        elif isinstance(error, HttpProcessingError):
            logger.debug("a malformed request: %s", without_data(error))
        elif isinstance(error, web.RequestPayloadError):
            logger.debug("a body was refused after its answer: %s", error)
        else:
            super().log_exception(*args, **kw)

    # -- the end ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Serve requests until the connection ends."""
        try:
            await super().start()
        finally:
            self._ends(self.transport)

    def force_close(self) -> None:
        """Close the connection now."""
        transport = self.transport
        super().force_close()
        self._ends(transport)

    def _ends(self, transport: asyncio.Transport | None) -> None:
        if transport is not None and self._closing is None:
            self._closing = self._loop.call_later(_LINGER, transport.abort)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free what the connection held; see :class:`asyncio.Protocol`."""
        super().connection_lost(exc)
        for timer in (self._head_timer, self._write_timer, self._closing):
            if timer is not None:
                timer.cancel()
        if self._records is not None:
            self._records.end()
        self._forget()
        self.slot.free()


def without_data(error: HttpProcessingError) -> str:
    """Say what is wrong with a malformed request, without the bytes that aiohttp shows: they may be a credential."""
    if isinstance(error, InvalidURLError):
        return "Invalid URL"
    line = error.message.partition("\n")[0]
    return line if _NAMED.match(line) else re.split("[:'\"]", line, maxsplit=1)[0].strip() or "Bad request"


__all__ = ["HttpConnection", "HttpServer", "without_data"]
