"""Send the answers of aiohttp's handlers over ASGI."""

from __future__ import annotations

import zlib
from typing import Any, Final

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from multidict import CIMultiDict

from pixy.api.asgi.types import Send

_OF_CONNECTIONS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "date", "server"})
"""Headers of an answer that the hosting server writes by itself."""
_BODILESS: Final = frozenset({204, 304})
_GZIP: Final = 31
"""zlib's window bits for a gzip member."""


class AsgiWriter(AbstractStreamWriter):
    """What a :class:`aiohttp.web.StreamResponse` writes to.

    Each write waits until the server has taken it, also the last one: so it is known whether the client was still there.

    Args:
        send: takes the answer.
        transport: of the request.
    """

    def __init__(self, send: Send, transport: Any) -> None:
        self._send = send
        self._transport = transport
        self._packer: Any = None
        self.started = False
        """Whether the headers were sent."""

    @property
    def transport(self) -> Any:
        """See :class:`aiohttp.abc.AbstractStreamWriter`."""
        return self._transport

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """See :class:`aiohttp.abc.AbstractStreamWriter`."""
        self.started = True
        await self._pass(_start(int(status_line.split(" ", 2)[1]), headers))

    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        """See :class:`aiohttp.abc.AbstractStreamWriter`."""
        data = bytes(chunk)
        if self._packer is not None:
            data = self._packer.compress(data)
        if data:
            await self._body(data)

    async def write_eof(self, chunk: bytes = b"") -> None:
        """See :class:`aiohttp.abc.AbstractStreamWriter`."""
        data = bytes(chunk)
        if self._packer is not None:
            data = self._packer.compress(data) + self._packer.flush()
        if data:
            await self._body(data)
        await self._pass({"type": "http.response.body", "body": b""})

    async def drain(self) -> None:
        """See :class:`aiohttp.abc.AbstractStreamWriter`."""

    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        """See :class:`aiohttp.abc.AbstractStreamWriter`."""
        del strategy
        self._packer = zlib.compressobj(wbits=_GZIP if encoding == "gzip" else zlib.MAX_WBITS)

    def enable_chunking(self) -> None:
        """See :class:`aiohttp.abc.AbstractStreamWriter`. The server does it where the protocol has it."""

    async def _body(self, data: bytes) -> None:
        self.output_size += len(data)
        await self._pass({"type": "http.response.body", "body": data, "more_body": True})

    async def _pass(self, event: dict[str, Any]) -> None:
        try:
            await self._send(event)
        except OSError as error:
            raise ConnectionResetError("the client has gone") from error


async def send_whole(response: web.StreamResponse, send: Send, *, is_head: bool) -> bool:
    """Send an answer of bytes that nobody has begun to write, without aiohttp's part.

    Args:
        response: the answer.
        send: takes it.
        is_head: whether the request's method is HEAD.

    Returns:
        False: it is another kind of answer, and nothing was sent.
    """
    if (
        not isinstance(response, web.Response)
        or response.prepared
        or response.compression
        or response.cookies
    ):
        return False
    body = response.body
    if body is not None and not isinstance(body, bytes):
        return False
    start = _start(response.status, response.headers)
    if response.status not in _BODILESS:
        start["headers"].append((b"content-length", b"%d" % len(body or b"")))
    await send(start)
    await send({"type": "http.response.body", "body": b"" if is_head or body is None else body})
    return True


def _start(status: int, headers: Any) -> dict[str, Any]:
    found = [
        (name.lower().encode("latin-1"), value.encode("utf-8"))
        for name, value in headers.items()
        if name.lower() not in _OF_CONNECTIONS
    ]
    return {"type": "http.response.start", "status": status, "headers": found}


__all__ = ["AsgiWriter", "send_whole"]
