"""The bytes of a connection's requests that wait behind the one that is served (pipelining). Pure.

aiohttp goes on reading while a request is served: up to 32 requests with their bodies wait then. A byte budget counts a
body when its handler reads it, so what waits is counted here, with the heads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from pixy.api.edge.trailers import ChunkedBody, end_of_head
from pixy.api.edge.unread import size_of

_END: Final = b"\r\n\r\n"


class Waiting:
    """Adds those bytes up, looking at each head once."""

    __slots__ = ("_heads",)

    def __init__(self) -> None:
        self._heads: dict[int, int] = {}

    def size(self, messages: Collection[tuple[Any, Any]]) -> int:
        """Return the bytes of requests that wait: their heads, and of several what has arrived of their bodies.

        The body of a single one counts in the byte budget (:mod:`pixy.api.edge.unread`).

        Args:
            messages: aiohttp's message and body of each.
        """
        heads, size, several = self._heads, 0, len(messages) > 1
        for message, body in messages:
            head = heads.get(id(message))
            if head is None:
                head = heads[id(message)] = head_size(message)
            size += head + (size_of(body) if several else 0)
        return size

    def forget(self, message: Any) -> None:
        """Forget a request that waits no longer."""
        self._heads.pop(id(message), None)


def head_size(message: Any) -> int:
    """Return the bytes of a parsed head; 0 for one that is malformed, of which aiohttp keeps only the error."""
    headers = getattr(message, "raw_headers", ())
    return sum(len(name) + len(value) for name, value in headers) + len(getattr(message, "path", ""))


def begun_in(data: bytes, earlier: bytes, before: int) -> int:
    """Count the bytes of the head that begins or goes on there; empty lines before a head do not count.

    Args:
        data: what has arrived.
        earlier: the last three bytes that came before.
        before: the head's bytes among them and earlier; 0: it has not begun.
    """
    if before and _END in earlier + data[: len(earlier)]:
        return 0  # its end was divided
    begin = 0 if before else len(data) - len(data.lstrip(b"\r\n"))
    end = data.find(_END, begin)
    return (end if end >= 0 else len(data)) - begin


def behind(data: bytes, earlier: bytes, at: int, requests: Sequence[tuple[Any, Any]]) -> int:
    """Count the bytes after the last of some requests, which may be the beginning of the next one.

    Args:
        data: what has arrived.
        earlier: the last three bytes that came before.
        at: where in ``data`` a body ends that had begun earlier.
        requests: aiohttp's message and body of each request whose head ``data`` has completed.
    """
    for message, body in requests:
        at = end_of_head(data, earlier, at, getattr(message, "method", ""))
        if at >= 0:
            chunked = getattr(message, "chunked", False)
            at = ChunkedBody().feed(data, at) if chunked else at + body.total_bytes
        if at < 0:
            return behind_open(data, earlier, *requests[-1])
    return max(0, len(data) - at)


def behind_open(data: bytes, earlier: bytes, message: Any, body: Any) -> int:
    """Count as :func:`behind` does after a body that was not followed: behind the last empty line, which an unfinished head lacks.

    Args:
        data: what has arrived.
        earlier: the last three bytes that came before.
        message: of the body.
        body: aiohttp's.
    """
    last = (earlier + data).rfind(_END)
    after = len(data) if last < 0 else len(data) + len(earlier) - last - len(_END)
    return max(0, after if getattr(message, "chunked", False) else after - body.total_bytes)


__all__ = ["Waiting", "begun_in", "behind", "behind_open", "head_size"]
