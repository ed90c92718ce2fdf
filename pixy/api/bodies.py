"""The body of a request, read piece by piece and never further than its reader allows."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from pixy.errors import PixyError


class UnreadableBody(Exception):
    """It is no valid body; the text says what is wrong with it."""


async def read(request: web.BaseRequest, grows: Callable[[int], None]) -> bytes:
    """The whole body, chunked or not, as it was sent.

    Args:
        grows: called with the number of bytes before they are kept, first with what the request says
            of itself (0 if it does not); raises a PixyError where that is too much. A client that
            waits for leave (RFC 9110, section 10.1.1) is told to go on after the first call.

    Raises:
        UnreadableBody: see there.
        ConnectionError: the client has gone.
    """
    grows(request.content_length or 0)
    if not request.body_exists:
        return b""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    chunks: list[bytes] = []
    total = 0
    try:
        async for chunk in request.content.iter_any():
            total += len(chunk)
            grows(total)
            chunks.append(chunk)
    except (PixyError, ConnectionError):
        raise
    except Exception as error:  # whatever aiohttp's parser finds wrong with it
        raise UnreadableBody(str(error)) from error
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
