"""Find the requests after which a connection must end: those with trailers (RFC 9112, section 7.1.2).

aiohttp's parser keeps the last trailer of a chunked request, and makes it a header of the next request on the connection.
Behind a proxy that shares its connections, that request is somebody else's. The parser tells nobody that there was a
trailer, so the chunks are followed here as well. Where what is followed and what the parser says do not agree, the
connection ends, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

_END: Final = b"\r\n\r\n"
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;[^\r\n]*)?\r\n\Z")
"""The line before a chunk."""
_MAX_LINE: Final = 1024
"""Bytes of such a line. One that is longer is not followed."""
_MAX_CHUNKS: Final = 5_000
"""Chunks that are followed in one piece of data, in some 5 ms."""


CODED: Final = "of the transfer codings, only chunked is implemented"


def is_coded(message: Any) -> bool:
    """Return whether a request's body has a transfer coding besides ``chunked``, which the parser takes for nothing but chunks.

    Its answer is 501 (RFC 9112, section 6.1). A coding without ``chunked`` has no end, and the parser refuses it.

    Args:
        message: aiohttp's.
    """
    if not getattr(message, "chunked", False):
        return False
    named = ",".join(message.headers.getall("Transfer-Encoding", ()))
    return named.strip().lower() != "chunked"


class ChunkedBody:
    """Follows one body through the pieces in which it arrives.

    Attributes:
        size: bytes in its chunks so far.
        trailers: whether there are any, or the body could not be followed; known at its end.
    """

    __slots__ = ("_last", "_left", "_line", "size", "trailers")

    def __init__(self) -> None:
        self._left = 0
        self._line = b""
        self._last = False
        self.size = 0
        self.trailers = False

    def feed(self, data: bytes, at: int) -> int:
        """Follow the body further.

        Args:
            data: what has arrived.
            at: where in ``data`` the body begins, or goes on.

        Returns:
            Where it ends, which is at the first trailer if there is one; -1: not in ``data``.
        """
        for _ in range(_MAX_CHUNKS):
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                if self._left:
                    return -1
            end = data.find(b"\n", at)
            line = self._line + data[at : at + _MAX_LINE + 1 if end < 0 else end + 1]
            if len(line) > _MAX_LINE:
                break
            if end < 0:
                self._line = line
                return -1
            self._line, at = b"", end + 1
            if self._last:
                self.trailers = line != b"\r\n"
                return at
            found = _SIZE.match(line)
            if found is None:
                break
            size = int(found[1], 16)
            self._last = size == 0
            self._left = size + 2 if size else 0
            self.size += size
        self.trailers = True
        return at


class Trailers:
    """Follows the chunked bodies of one connection."""

    __slots__ = ("_open", "_request")

    def __init__(self) -> None:
        self._open: ChunkedBody | None = None
        self._request: tuple[Any, Any] = (None, None)

    def follow(
        self, data: bytes, earlier: bytes, at: int, fresh: Sequence[tuple[Any, Any]]
    ) -> tuple[Any, Any] | None:
        """Follow what has arrived, after it was parsed.

        Args:
            data: what has arrived.
            earlier: the last three bytes that came before.
            at: where in ``data`` a body without chunks ends that had begun earlier.
            fresh: the requests whose heads ``data`` has completed: aiohttp's message and body of each.

        Returns:
            The request after which the connection must end, of those in ``fresh`` or earlier; None: it may stay.
        """
        followed, self._open = self._open, None
        requests = list(fresh)
        if followed is not None:
            requests.insert(0, self._request)
            at = 0
        first = next((each for each in requests if getattr(each[0], "chunked", False)), None)
        if first is None:
            return None
        for message, body in requests:
            if followed is None:
                at = end_of_head(data, earlier, at, getattr(message, "method", ""))
                if at < 0:
                    return first
                if not getattr(message, "chunked", False):
                    at += getattr(body, "total_bytes", 0)
                    continue
                followed = ChunkedBody()
            at = followed.feed(data, at)
            if at < 0 and not body.is_eof() and message is requests[-1][0]:
                self._open, self._request = followed, (message, body)
                return None
            differs = at < 0 or (body.is_eof() and body.total_bytes != followed.size)
            if followed.trailers or differs:
                return first
            followed = None
        return None


def end_of_head(data: bytes, earlier: bytes, at: int, method: str) -> int:
    """Find the end of the head of a request.

    Args:
        data: what has arrived.
        earlier: the last three bytes that came before.
        at: where in ``data`` the head begins; 0: there, or before.
        method: the request's; a head that begins there begins with it.

    Returns:
        The index in ``data`` after the head; -1: it has no end there.
    """
    if at == 0 and (crossing := (earlier + data[:4]).find(_END)) >= 0:
        return crossing + len(_END) - len(earlier)
    begin = len(data) - len(data[at:].lstrip(b"\r\n"))
    if data.startswith(method.encode() + b" ", begin):
        end = data.find(_END, begin)
        return end + len(_END) if end >= 0 else -1
    end = (earlier + data).find(_END) if at == 0 else -1
    return end + len(_END) - len(earlier) if end >= 0 else -1


__all__ = ["CODED", "ChunkedBody", "Trailers", "end_of_head", "is_coded"]
