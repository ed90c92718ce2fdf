"""Parse what arrives in pieces, so that much of it on many connections does not hold up everybody else.

The loop hands over what all ready connections have received in one turn, up to 256 KiB each, and 40,000 chunks of a byte
in 256 KiB take the parser some 50 ms. So whatever has more than a usual request's bytes or lines waits until others have
had their turn, and what has many lines is parsed 4 KiB at a time. Usual requests have turns as well if hundreds arrive at
once, but their own, so that they do not wait behind what takes long; while one waits, those that come later wait behind it.
Meanwhile the connection is not read from, and what waits counts in the byte budget. A body of a thousand chunks and more is
refused if they are small: a byte takes a hundred times as long there as in a large one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

from pixy.api.edge.connections import Slot
from pixy.api.edge.pace import Pace
from pixy.api.edge.refusals import Refused
from pixy.api.edge.refusing import Refusing
from pixy.api.edge.unread import FREE, Unread
from pixy.errors import OverBudget

QUICK: Final = 1024
"""Bytes that wait only if much else arrives, of which others are parsed first."""
AT_ONCE: Final = 128
"""Such small pieces that are parsed in one turn of the event loop before more have to wait, and those parsed in a turn after
they have waited. They take 2 or 3 ms."""
_LINES: Final = 128
"""Line ends of data that is parsed as a whole. A chunk has two, a head some ten."""
PIECE: Final = 4096
"""Bytes of other data that are parsed at once: at most 700 chunks, in a millisecond or two."""
MOST_SMALL_CHUNKS: Final = 1_000
"""Chunks that a body may have, however small they are."""
LEAST_CHUNK: Final = 32
"""Bytes that the chunks of a body with more of them must have on average."""


def _has_many_lines(data: bytes) -> bool:
    # Counting all of them takes 1 ns a byte, which is a third of the time that a body of 20 KiB takes otherwise.
    at = -1
    for _ in range(_LINES):
        at = data.find(b"\r", at + 1)
        if at < 0:
            return False
    return True


class PacedInput(Refusing):
    """A connection whose data is parsed by :meth:`data_received`, at once or in its turn.

    Args:
        server: aiohttp's.
        slot: its place among all connections; its caller's turn it is.
        refused: told of what is refused.
        steps: gives turns to what takes a while.
        arrivals: gives turns to what does not.
        unread: counts the bytes that wait.
        options: aiohttp's.
    """

    def __init__(
        self,
        server: web.Server,
        slot: Slot,
        refused: Refused,
        steps: Pace,
        arrivals: Pace,
        unread: Unread,
        **options: Any,
    ) -> None:
        super().__init__(server, slot, refused, **options)
        self._steps = self._pace = steps
        """The latter has given the latest turn."""
        self._arrivals = arrivals
        self._turn_of = slot.caller
        self.unread = unread
        self._latest: tuple[Any, Any] = (None, None)
        """The latest request and its body."""
        self.kept: deque[bytes] = deque()
        """Pieces of data that have arrived and wait."""
        self._begin = 0
        """The index at which the rest of the first of these begins."""
        self._dense = False
        """True if that one has many lines."""
        self._turn: asyncio.Future[None] | None = None
        self._feeding = False
        self._chunks = 0
        """Its chunks that have been parsed."""

    # -- turns ------------------------------------------------------------------------------------

    def _keep(self, data: bytes, lines: bool) -> bool:
        """Take data, to parse it in its turn; False: it is to be parsed now, as a whole.

        Args:
            data: what has arrived.
            lines: whether its line ends may be those of heads or chunks.
        """
        if self._close or self._force_close:
            return True  # aiohttp would drop it
        if not self.kept and not (lines and _has_many_lines(data)):
            if len(data) > FREE:
                self._pace = self._steps
            elif self._arrivals.arrived <= AT_ONCE:
                return False
            else:
                self._pace = self._arrivals
            turn = self._pace.enter(self._turn_of)
            if turn is None:
                return False
            self._wait(turn)
        try:
            self.unread.keep(len(data))
        except OverBudget as error:
            self._drop_kept()
            if self._body is None or self._body.is_eof():
                self._refuse_unparsed(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
            else:
                self._refuse_body(HTTPStatus.SERVICE_UNAVAILABLE, str(error), *self._latest)
            return True
        self.kept.append(data)
        if self._turn is None and not self._stopped:
            self._go_on()
        return True

    async def take_turn(self) -> None:
        """Wait until a request of this connection may do what takes a while."""
        turn = self._steps.enter(self._turn_of)
        if turn is not None:
            await self._steps.wait(turn, self._turn_of)

    @property
    def _stopped(self) -> bool:
        """True if what has been parsed must be taken before more is parsed."""
        return self._reading_paused or self._buffer_paused

    @property
    def waits(self) -> bool:
        """True if what has arrived waits for its turn."""
        return self._turn is not None

    def _enter(self) -> asyncio.Future[None] | None:
        """Ask for the turn of the next piece."""
        data = self.kept[0]
        small = not self._begin and len(data) <= FREE and not _has_many_lines(data)
        self._pace = self._arrivals if small else self._steps
        return self._pace.enter(self._turn_of)

    def _wait(self, turn: asyncio.Future[None]) -> None:
        self._turn = turn
        turn.add_done_callback(self._turn_came)
        self._pause_transport_reading()

    def _turn_came(self, turn: asyncio.Future[None]) -> None:
        if turn is not self._turn:
            return
        self._turn = None
        if self.kept and not self._stopped:
            again = self._pace.again(self._turn_of)
            if again is not None:
                self._wait(again)
                return
            self._feed()
        self._go_on()

    def _go_on(self) -> None:
        """Parse pieces until it is the turn of others, or enough waits behind the parser."""
        while self.kept and not self._stopped:
            turn = self._enter()
            if turn is not None:
                self._wait(turn)
                return
            self._feed()
        if self.kept:
            self._pause_transport_reading()
        elif not self._stopped:
            super()._resume_transport_reading()

    def _feed(self) -> None:
        """Parse a piece."""
        if self._close or self._force_close:
            self._drop_kept()  # aiohttp would drop it, too
            return
        data, begin = self.kept[0], self._begin
        if not begin:
            self._dense = _has_many_lines(data)
        piece = data[begin : begin + PIECE] if self._dense else data
        self._begin += len(piece)
        if self._begin >= len(data):
            self.kept.popleft()
            self._begin = 0
        self.unread.parsed(len(piece))
        self._feeding = True
        try:
            self.data_received(piece)
        finally:
            self._feeding = False

    def _resume_transport_reading(self) -> None:
        """Read on once nothing waits any more; see :class:`aiohttp.base_protocol.BaseProtocol`."""
        if not self.kept:
            super()._resume_transport_reading()
        elif self._turn is None and not self._feeding:
            turn = self._enter()
            if turn is None:  # not here: a body is being read
                turn = self._loop.create_future()
                turn.set_result(None)
            self._wait(turn)

    def _process_keepalive(self) -> None:
        # aiohttp calls it once the connection has been idle for as long as it may.
        if self.kept:  # the client waits for the daemon
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def _drop_kept(self) -> None:
        """Drop what waits: nothing of it is parsed any more."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.cancel()
        self.kept.clear()
        self._begin = 0
        self.unread.parsed(self.unread.kept)

    # -- chunks -----------------------------------------------------------------------------------

    def _splits(self) -> int:
        """Return the unread chunks of the latest body."""
        return 0 if self._body is None else len(getattr(self._body, "_http_chunk_splits", None) or ())

    def _count_chunks(self, fresh: int, before: int) -> None:
        """Count the chunks that were just parsed, and refuse their body if there are many small ones.

        Args:
            fresh: the number of requests whose heads are whole now; the latest body is another one then.
            before: the unread chunks before.
        """
        parsed, body = self._splits(), self._body
        self._chunks = parsed if fresh else self._chunks + max(0, parsed - before)
        if self._chunks <= MOST_SMALL_CHUNKS or body is None:
            return
        if body.total_bytes < LEAST_CHUNK * self._chunks:
            self._refuse(
                HTTPStatus.BAD_REQUEST,
                f"the body's chunks are too small: those of a body with more than {MOST_SMALL_CHUNKS} have at least "
                f"{LEAST_CHUNK} bytes on average",
            )


__all__ = ["AT_ONCE", "LEAST_CHUNK", "MOST_SMALL_CHUNKS", "PIECE", "QUICK", "PacedInput"]
