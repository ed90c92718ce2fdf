"""An answer whose head costs little.

aiohttp makes each head anew: seven coroutines and a dozen look-ups in a multidict, 8 us of processor for an answer of two
bytes. Nearly all answers of this daemon have the same head but for the length and the date.
"""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_exceptions import ClientConnectionResetError

from pixy.api.edge.http_request import SERVER, HttpRequest

_BODILESS: Final = frozenset({204, 205, 304})
PIECE: Final = 128 * 1024
"""Bytes of an answer that are written in one turn of the loop. What the client does not take is then held once, not twice."""
_MOST: Final = 256
"""Kinds of heads that are remembered."""
_kinds: dict[tuple[int, str], bytes] = {}
"""The beginning of a head by status and content type."""
_date: tuple[int, bytes] = (0, b"")
"""Now in seconds, and the end of a head that says so."""


class Answer(web.Response):
    """A response with a body of bytes. What has more headers than Content-Type is written as aiohttp does it.

    The bytes on the wire are the same.
    """

    _head: bytes | None = None

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """See :class:`aiohttp.web.StreamResponse`."""
        if self._payload_writer is None and not self._eof_sent and type(request) is HttpRequest:
            kind = self._kind(request)
            if kind is not None:
                self._head = b"%b%d%b" % (kind, len(self._body or b""), _end())  # type: ignore[arg-type]
                self._keep_alive = True
                self._req = request
                self._payload_writer = request._payload_writer
                return self._payload_writer
        return await super().prepare(request)

    def _kind(self, request: web.BaseRequest) -> bytes | None:
        """Return the beginning of the head, if it is one of the usual ones."""
        headers = self._headers
        if (
            len(headers) != 1
            or self._keep_alive is False
            or request.version != (1, 1)
            or request.method == "HEAD"
            or not request.keep_alive
            or self._cookies
            or self._compression
            or self._chunked
        ):
            return None
        content_type = headers.get("Content-Type")
        if content_type is None or self._status < 200 or self._status in _BODILESS:
            return None
        key = (self._status, content_type)
        return _kinds.get(key) or _made(key, str(self._reason))

    async def write_eof(self, data: bytes = b"") -> None:
        """See :class:`aiohttp.web.StreamResponse`."""
        head, writer = self._head, self._payload_writer
        long = self._body if isinstance(self._body, bytes) and len(self._body) > PIECE else None
        if head is None or writer is None:
            if long and not (self._eof_sent or self._must_be_empty_body or self._compressed_body):
                await self._write_pieces(long)
            else:
                await super().write_eof(data)
            return
        if long:
            _send(writer, head)
            for at in range(0, len(long), PIECE):
                _send(writer, long[at : at + PIECE])
                await writer.drain()
                await asyncio.sleep(0)
        else:
            _send(writer, head + self._body if self._body else head)  # type: ignore[operator]
            await writer.drain()
        self._body_length = writer.output_size
        self._eof_sent = True
        self._head = self._req = self._payload_writer = None

    async def _write_pieces(self, body: bytes) -> None:
        """Write a long body behind a head of aiohttp's."""
        for at in range(0, len(body), PIECE):
            await self.write(body[at : at + PIECE])
            await asyncio.sleep(0)
        self._body = None  # it is written
        try:
            await super().write_eof()
        finally:
            self._body = body


def _send(writer: AbstractStreamWriter, data: bytes) -> None:
    transport = writer.transport
    if transport is None or transport.is_closing():
        raise ClientConnectionResetError("Cannot write to closing transport")
    writer.output_size += len(data)
    try:
        transport.write(data)
    except RuntimeError as error:  # uvloop's, of a connection that another part of a stop has closed
        raise ClientConnectionResetError("Cannot write to closed transport") from error


def _made(key: tuple[int, str], reason: str) -> bytes | None:
    status, content_type = key
    if not (content_type.isascii() and content_type.isprintable() and reason.isprintable()):
        return None
    kind = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: ".encode()
    if len(_kinds) < _MOST:
        _kinds[key] = kind
    return kind


def _end() -> bytes:
    global _date
    now = int(time.time())
    if now != _date[0]:
        _date = now, f"\r\nDate: {formatdate(now, usegmt=True)}\r\nServer: {SERVER}\r\n\r\n".encode()
    return _date[1]


__all__ = ["PIECE", "Answer"]
