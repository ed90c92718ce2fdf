"""Read the body of a request in chunks, and stop where the caller's limit is reached."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import cast

from aiohttp import web

from pixy.api.edge.budget import Share
from pixy.api.edge.http_input import HttpInput
from pixy.errors import PixyError

_LONG = 16 * 1024
"""Bytes of a body that is not looked at before it is its turn. What is shorter is parsed in a millisecond or two, whatever is in it."""


_PLAIN = frozenset({"", "identity"})
_SHOWN = 100


def coding_of(request: web.BaseRequest) -> str:
    """Return how the body is packed (Content-Encoding), in lower case; empty if it is not. Nothing here unpacks it."""
    lines = request.headers.getall("Content-Encoding", ())
    coding = ", ".join(each.strip().lower() for each in lines)
    return "" if coding in _PLAIN else coding


def packed(request: web.BaseRequest) -> str:
    """Say that the body is packed, to where nothing unpacks it: parsed as it is, it would mean nothing, or something else. Else empty."""
    coding = coding_of(request)
    if not coding or not request.body_exists:
        return ""
    return f"the body has Content-Encoding {coding[:_SHOWN]}, and none is taken here: send it as it is"


class UnreadableBody(Exception):
    """The body is not valid HTTP; the text says why."""


async def read(
    request: web.BaseRequest,
    share: Share,
    grows: Callable[[int], None],
    promised: Callable[[int], None] | None = None,
) -> bytes:
    """Return the whole body, chunked or not, as it was sent.

    Args:
        request: of a connection with deadlines; its body must arrive within ``body_timeout``.
        share: in which ``grows`` counts the body.
        grows: called with the total number of bytes before they are kept. It raises a PixyError to stop the reading.
        promised: called first, with Content-Length (0 without one); ``grows`` by default. A client that expects
            ``100 Continue`` (RFC 9110, section 10.1.1) gets it after that call.

    Raises:
        UnreadableBody: the body is not valid HTTP, or did not arrive in time.
        ConnectionError: the client has gone.
    """
    (promised or grows)(request.content_length or 0)
    if not request.body_exists:
        return b""
    content, connection = request.content, cast(HttpInput, request.protocol)
    unread = connection.unread
    if content.is_eof() and content.exception() is None:  # the usual case: it came with the head
        if unread.share.held:
            unread.reads(content, share)
        grows(content.total_bytes)
        body = content.read_nowait(-1)
        if len(body) > _LONG:
            await connection.take_turn()
        return body
    if request.headers.get("Expect", "").lower() == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    unread.reads(content, share)
    whole, total = io.BytesIO(), 0  # putting pieces together at the end would take milliseconds
    chunk = b""
    try:
        with connection.body_deadline:
            async for chunk in content.iter_any():
                total += len(chunk)
                grows(total)
                whole.write(chunk)
    except (PixyError, ConnectionError):
        raise
    except TimeoutError:
        seconds = connection.body_deadline.seconds
        raise UnreadableBody(f"it did not arrive within {seconds:g} s (`body_timeout`)") from None
    except Exception as error:  # any error of aiohttp's parser
        raise UnreadableBody(str(error)) from error
    if total > _LONG:
        await connection.take_turn()  # the ends of many bodies may come at the same time
    return chunk if len(chunk) == total else whole.getvalue()
