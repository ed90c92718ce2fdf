"""An HTTP connection with deadlines: aiohttp's protocol, with what it leaves open for ever bounded.

=====================  ==================================================================================
idle, or never used    closed after ``connections.idle_timeout`` (aiohttp's own timer)
part of a head         408 after ``connections.header_timeout``; 431 beyond ``connections.max_header_bytes``
a body                 :mod:`pixy.api.bodies`, ``body_timeout``
trailers               400 beyond ``connections.max_header_bytes``; the connection ends after the answer
an answer              ended if the client does not take it within ``connections.write_timeout``
closing                aborted after :data:`_LINGER`, if the client does not take what is left
=====================  ==================================================================================
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from pixy.api.edge.acceptor import refusal
from pixy.api.edge.connections import Slot
from pixy.api.edge.heads import Heads
from pixy.api.edge.http_request import HttpRequest
from pixy.api.edge.refusals import Refused, ignore
from pixy.api.edge.trailers import Trailers
from pixy.config.model import Connections

logger = logging.getLogger("pixy.api")

_MAX_LINE = 64 * 1024
_LINGER = 10.0
"""Seconds that a closed connection may take for its last bytes."""
_SMALL = 8 * 1024
"""Bytes of a read whose rest, after a whole request, is not worth counting."""
_END = b"\r\n\r\n"


class HttpServer(web.Server):
    """Makes the connections of one listener.

    Args:
        handler: answers requests.
        settings: the section ``connections``.
        heads: shared by all listeners.
        refused: told the status, the address and the reason of what is refused before it is a request.
    """

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        settings: Connections,
        heads: Heads,
        refused: Refused = ignore,
    ) -> None:
        super().__init__(handler, handler_cancellation=True, request_factory=self._make)
        self._settings = settings
        self._heads = heads
        self.refused = refused

    def connection(self, slot: Slot) -> HttpConnection:
        """Make the protocol of a connection; it frees ``slot`` at its end."""
        return HttpConnection(self, slot, self._settings, self._heads)

    def _make(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        if protocol.held:
            protocol.begins()
        return HttpRequest(message, payload, protocol, writer, task, self._loop)


class HttpConnection(RequestHandler):
    """One connection of a client.

    Args:
        server: its maker.
        slot: its place among all connections.
        settings: the section ``connections``.
        heads: counts the bytes of unfinished heads.
    """

    def __init__(self, server: HttpServer, slot: Slot, settings: Connections, heads: Heads) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]
            auto_decompress=False,
            keepalive_timeout=settings.idle_timeout,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
        )
        self.slot = slot
        self._told = server.refused
        self._settings = settings
        self._heads = heads
        self._body: StreamReader | None = None
        """The body of the latest request; its end begins the next head."""
        self._latest: tuple[Any, Any] = (None, None)
        """The latest request and its body."""
        self._trailers: Trailers | None = None
        """Since the first chunked request."""
        self.final: tuple[Any, Any] | None = None
        """The request after which the connection ends, and its body."""
        self._earlier = b""
        """The last three bytes that have arrived."""
        self._beside = 0
        """Bytes that have come with an open body and are no part of it, such as trailers."""
        self._head = 0
        """Bytes of the head that is arriving."""
        self.held = 0
        """Bytes counted in ``heads``: that head, and requests that wait."""
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.TimerHandle | None = None

    # -- heads ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; see :class:`asyncio.Protocol`."""
        body = self._body
        between = body is None or body.is_eof()
        if between and (self._head or len(data) > _SMALL) and self._is_too_large(data):
            return
        count, before = self._request_count, 0 if between else body.total_bytes  # type: ignore[union-attr]
        RequestHandler.data_received(self, data)
        fresh = self._request_count - count
        if between and fresh == 1 and not self.held and len(data) <= _SMALL and not self._upgraded:
            # Nearly all requests: one that came whole, and nothing else. Saves 1.7 us of each.
            message, body = latest = self._messages[-1]
            alone = len(self._messages) == 1 and self._trailers is None
            if alone and body.is_eof() and not getattr(message, "chunked", False):
                self._latest, self._body, self._earlier = latest, body, data[-3:]
                return
        self._follow_up(data, fresh, None if between else body, before)

    def _is_too_large(self, data: bytes) -> bool:
        """Whether a head has become too large with this data; it is refused then."""
        end = data.find(_END)
        if self._head + (end if end >= 0 else len(data)) <= self._settings.max_header_bytes:
            return False
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"the request's headers are too large, at most {self._settings.max_header_bytes} bytes are read "
            "(`connections.max_header_bytes`)",
        )
        return True

    def _follow_up(self, data: bytes, fresh: int, body: StreamReader | None, before: int) -> None:
        """Count what was just parsed.

        Args:
            data: what has arrived.
            fresh: the number of requests whose heads are whole now.
            body: the body that was open before, if one was.
            before: its bytes then.
        """
        moved = 0 if body is None else body.total_bytes - before
        if fresh:
            self._whole(data)
        if self._trailers is not None or self._upgraded or (fresh and self._begins_chunked(fresh)):
            self._follow(data, moved, fresh)
        self._earlier = data[-3:] if len(data) >= 3 else (self._earlier + data)[-3:]
        if fresh:
            return
        if body is None:
            if data:
                self._part(len(data))
        elif body.is_eof():
            if len(data) > _SMALL or self._beside:
                self._beside = 0 if self.final is None else self._beside
                self._rest(data, moved)
        elif self._beside or moved < len(data):
            self._aside(len(data), moved)

    def _whole(self, data: bytes) -> None:
        """At least one head is whole."""
        self._latest = self._messages[-1]
        self._body = self._latest[1]
        self._beside = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if len(data) > _SMALL and self._body.is_eof():
            self._rest(data, getattr(self._body, "total_bytes", 0))
        else:
            self._head = 0
            self._count()
        if self.held > self._settings.max_header_bytes and not self._buffer_paused:
            self._pause_reading_for_buffer()  # aiohttp resumes once few requests wait

    def _rest(self, data: bytes, body: int) -> None:
        """Count what comes after the last whole request: no such part of a head contains the end of one."""
        last = data.rfind(_END)
        self._head = max(0, min(len(data) - body, len(data) - (last + len(_END) if last >= 0 else 0)))
        self._count()

    def _part(self, size: int) -> None:
        self._head += size
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._settings.header_timeout, self._head_is_late)
        self._count()

    def _count(self) -> None:
        held = self._head + self._beside
        if len(self._messages) > 1:
            held += sum(_size(message) for message, _ in self._messages)
        before, self.held = self.held, held
        if held != before and not self._heads.change(before, held):
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many unfinished headers. Consider increasing `connections.max_unfinished_headers`",
            )

    # -- trailers ---------------------------------------------------------------------------------

    def _begins_chunked(self, fresh: int) -> bool:
        """Whether one of the latest requests has a chunked body; the connection's bodies are followed from then on."""
        found = any(getattr(self._messages[-at][0], "chunked", False) for at in range(1, fresh + 1))
        if found:
            self._trailers = Trailers()
        return found

    def _follow(self, data: bytes, moved: int, fresh: int) -> None:
        """Find out whether a request of these is the last one that can be served."""
        if self.final is None and self._trailers is not None:
            newest = [self._messages[-at] for at in range(fresh, 0, -1)]
            self.final = self._trailers.follow(data, self._earlier, moved, newest)
        if self.final is None and self._upgraded:
            self.final = self._latest  # aiohttp parses what comes next by itself, where it is not followed
        if fresh and self._body is not None and not self._body.is_eof():
            self._beside = max(0, len(data) - self._body.total_bytes)
            self._count()
        if self.final is not None:
            last, body = self.final
            if body.is_eof() and all(message is not last for message, _ in self._messages):
                self._close = True  # its answer may have promised that the connection stays

    def _aside(self, size: int, moved: int) -> None:
        """Count what has come with an open body and is no part of it: sizes of chunks, trailers."""
        if self._reading_paused:
            return  # the parser has not seen it yet
        trailing = self.final is not None or not moved
        self._beside = max(0, size - moved) + (self._beside if trailing else 0)
        self._count()
        most = self._settings.max_header_bytes
        if trailing and self._beside > most:
            text = (
                f"the trailers are too large, at most {most} bytes are read (`connections.max_header_bytes`)"
            )
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)

    def begins(self) -> None:
        """A request begins to be served, and waits no longer."""
        self._count()

    def _head_is_late(self) -> None:
        self._head_timer = None
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the request's headers did not arrive within {self._settings.header_timeout:g} s "
            "(`connections.header_timeout`)",
        )

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer, unless another answer is under way, and end the connection."""
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
            return  # it ends after the requests that are in progress
        self._tell(status, text)
        transport.write(refusal(status, text))
        if transport.can_write_eof():
            # Closing it now would reset it while the client writes, and take the answer away from him.
            transport.write_eof()
            self._head_timer = self._loop.call_later(1.0, self.force_close)
        else:
            self.force_close()

    # -- answers ----------------------------------------------------------------------------------

    def pause_writing(self) -> None:
        """The client does not take the answer for now; see :class:`asyncio.Protocol`."""
        super().pause_writing()
        self._write_timer = self._loop.call_later(self._settings.write_timeout, self._abort)

    def resume_writing(self) -> None:
        """The client takes the answer; see :class:`asyncio.Protocol`."""
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
        self._tell(status, (message or repr(exc)).partition("\n")[0])
        return super().handle_error(request, status, exc, message)

    def _tell(self, status: int, text: str) -> None:
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        self._told(status, f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else self.slot.caller, text)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an error of ours. Neither what a client has malformed nor one that has gone is a reason for a traceback."""
        error = kw.get("exc_info")
        if isinstance(error, ConnectionError):
            logger.debug("a client has gone: %s", error)
        elif isinstance(error, HttpProcessingError):
            logger.debug("a malformed request: %s", error.message.partition("\n")[0])
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
        self._heads.change(self.held, 0)
        self.held = self._head = self._beside = 0
        self.slot.free()


def _size(message: Any) -> int:
    """The bytes of a parsed head; 0 for one that is malformed, of which aiohttp keeps only the error."""
    headers = getattr(message, "raw_headers", ())
    return sum(len(name) + len(value) for name, value in headers) + len(getattr(message, "path", ""))


__all__ = ["HttpConnection", "HttpServer"]
