"""Count in the byte budget the bytes that a connection holds: bodies that nobody reads yet, unparsed data, long heads.

A body is counted for its request once its handler reads it. Until then it is counted here: the request waits for its turn,
or for its caller to be recognized, or its handler reads no body at all. What comes after the handler has ended is dropped.

aiohttp keeps the head of a request, its bytes and the headers that it has made of them, until the next request of the
connection begins, however long that takes.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp.streams import StreamReader

from pixy.api.edge.budget import Share

FREE: Final = 8 * 1024
"""Bytes of a connection that do not count: about as many as it takes by itself."""
_PIECE: Final = 100
"""Bytes that each piece of a body costs besides its own; a chunked body may come in pieces of one byte."""
_COPIES: Final = 2
"""Copies of a head that are held: its bytes, and the headers made of them."""


class Unread:
    """Counts them for one connection.

    Args:
        share: the connection's part of the byte budget.
    """

    __slots__ = ("_begun", "_dropped", "_latest", "_taken", "heads", "kept", "served", "share")

    def __init__(self, share: Share) -> None:
        self.share = share
        """Holds what is counted now."""
        self.kept = 0
        """Bytes of it that wait to be parsed."""
        self.served: StreamReader | None = None
        """The body of the request that is served, until somebody reads it."""
        self.heads: dict[int, int] = {}
        """Bytes of the long heads that are held, by the ids of their messages."""
        self._begun = 0
        """The id of the latest request that has begun."""
        self._latest: StreamReader | None = None
        self._taken: StreamReader | None = None
        """The body that is read, or dropped, as it arrives."""
        self._dropped: StreamReader | None = None

    def count(self, latest: StreamReader | None) -> None:
        """Count what has arrived.

        Args:
            latest: the body of the latest request; None: it is counted elsewhere.

        Raises:
            OverBudget: the budget has no room for it.
        """
        self._latest = latest
        served = self.served
        size = 0 if served is None else self._size(served)
        if latest is not None and latest is not served:
            size += self._size(latest)
        if self.heads:
            size += sum(self.heads.values())
        more = (size if size > FREE else 0) + self.kept - self.share.held
        if more > 0:
            self.share.take(more)
        elif more < 0:
            self.share.give_back(-more)

    def head(self, message: Any, size: int) -> None:
        """Count the head of a request from now on, if it has more than :data:`FREE` bytes.

        Args:
            message: aiohttp's; it identifies the request.
            size: bytes of the head as they arrived.
        """
        if size > FREE:
            self.heads[id(message)] = _COPIES * size

    def begins(self, message: Any) -> None:
        """Note that a request begins: the head of the one before is no longer held."""
        if id(message) != self._begun:
            self.heads.pop(self._begun, None)
            self._begun = id(message)

    def keep(self, size: int) -> None:
        """Count data that waits to be parsed. Raises OverBudget, and then counts as much as before."""
        self.share.take(size)
        self.kept += size

    def parsed(self, size: int) -> None:
        """Count less: some of the data that waited was parsed."""
        self.share.give_back(size)
        self.kept -= size

    def reads(self, body: StreamReader, share: Share) -> None:
        """Leave a body to its handler, which reads it from now on, and counts it in a share of its own.

        Args:
            body: of the request that is served.
            share: the request's.
        """
        self.served, self._taken = None, body
        self.share.goes_with(share)
        if self.share.held:
            self.count(self._latest)

    def ended(self, body: StreamReader) -> None:
        """Drop what the handler of a body's request has left unread at its end, and what still comes."""
        self.served, self._taken, self._dropped = None, body, body
        _drop(body)
        if self.share.held:
            self.count(self._latest)

    def forget(self) -> None:
        """Count nothing any more: the connection has ended."""
        self.served = self._latest = self._taken = self._dropped = None
        self.share.give_back()
        self.share.goes_alone()
        self.heads.clear()
        self.kept = 0

    def _size(self, body: StreamReader) -> int:
        if body is not self._taken:
            return size_of(body)
        if body is self._dropped:
            _drop(body)
        return 0


def size_of(body: Any) -> int:
    """Return the bytes that a body holds of what has arrived."""
    size: int = getattr(body, "_size", 0)
    return size + _PIECE * len(body._buffer) if size else 0


def _drop(body: StreamReader) -> None:
    # Piece by piece: below its low water mark aiohttp reads on at once, which may come here again and take the rest.
    while body._buffer and body.exception() is None:
        body._read_nowait_chunk(-1)


__all__ = ["FREE", "Unread", "size_of"]
