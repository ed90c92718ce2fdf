"""Bound the bytes that have arrived on an HTTP connection and are not read yet: heads, bodies and trailers.

The deadlines of the whole connection are in :mod:`pixy.api.edge.http_protocol`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestHandler

from pixy.api.edge.budget import Budget
from pixy.api.edge.connections import Slot
from pixy.api.edge.deadline import Deadline
from pixy.api.edge.heads import Heads
from pixy.api.edge.pace import Pace
from pixy.api.edge.pieces import AT_ONCE, QUICK, PacedInput
from pixy.api.edge.refusals import Refused
from pixy.api.edge.trailers import CODED, Trailers, is_coded
from pixy.api.edge.unread import FREE, Unread
from pixy.api.edge.waiting import Waiting, begun_in, behind, behind_open, head_size
from pixy.config.model import Connections
from pixy.errors import OverBudget

_MAX_LINE = 64 * 1024
_SMALL = FREE
"""Bytes of a read that is one usual request. Its body holds no more, so it need not be counted."""
_READ_AHEAD = 32 * 1024
_LARGE = 2 * _READ_AHEAD
"""Bytes of a body above which no more is taken from the client until they are read."""
_BODILESS = frozenset({"GET", "HEAD"})
"""Methods whose bodies nobody reads."""
_END = b"\r\n\r\n"


class HttpInput(PacedInput):
    """The receiving side of a connection.

    Args:
        server: aiohttp's.
        refused: told the status, the address and the reason of what is refused before it is a request.
        slot: its place among all connections.
        settings: the section ``connections``.
        heads: counts the bytes of unfinished heads, and of requests that wait.
        budget: counts the bytes of bodies that nobody reads yet.
        body_deadline: for whoever reads a body (``body_timeout``).
        steps: gives turns to what arrives in large pieces.
        arrivals: gives turns to small ones, if many arrive at once.
    """

    def __init__(
        self,
        server: web.Server,
        refused: Refused,
        slot: Slot,
        settings: Connections,
        heads: Heads,
        budget: Budget,
        body_deadline: Deadline,
        steps: Pace,
        arrivals: Pace,
    ) -> None:
        super().__init__(
            server,
            slot,
            refused,
            steps,
            arrivals,
            Unread(budget.share(slot.caller)),
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=settings.idle_timeout,
            max_line_size=_MAX_LINE,
            max_field_size=_MAX_LINE,
            read_bufsize=_READ_AHEAD,
        )
        self._settings = settings
        self._small = min(_SMALL, settings.max_header_bytes)
        self._heads = heads
        self.body_deadline = body_deadline
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
        self._unparsed = b""
        """Bytes that arrived while aiohttp held as many requests as it takes; parsed once it holds fewer."""
        self._waiting: Waiting | None = None
        """While several requests wait."""
        self._crowded = False
        """Whether they hold too much for more to be read."""
        self.held = 0
        """Bytes counted in ``heads``: all of these."""

    # -- heads ------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived; see :class:`asyncio.Protocol`."""
        body = self._body
        between = body is None or body.is_eof()
        size = len(data)
        arrivals = self._arrivals
        arrivals.arrived = arrived = arrivals.arrived + 1
        if (
            (size > QUICK or arrived > AT_ONCE or (self.kept and size))
            and not self._feeding
            and self._keep(data, between or self._trailers is not None)
        ):
            return
        chunks = self._splits() if self._trailers is not None else 0
        if between and (self._head or size > self._small) and self._refuse_large_head(data):
            return
        count, before = self._request_count, 0 if between else body.total_bytes  # type: ignore[union-attr]
        RequestHandler.data_received(self, data)
        fresh = self._request_count - count
        if between and fresh == 1 and not self.held and size <= _SMALL and not self._upgraded:
            # Nearly all requests: one that came whole, and nothing else. Saves 1.7 us of each.
            message, body = latest = self._messages[-1]
            alone = len(self._messages) == 1 and self._trailers is None
            alone = alone and data.find(_END) + len(_END) + body.total_bytes == size
            if alone and body.is_eof() and not getattr(message, "chunked", False):
                self._latest, self._body, self._earlier = latest, body, data[-3:]
                return
        self._follow_up(data, fresh, None if between else body, before, chunks)

    def pause_reading(self) -> None:
        """Read no more for now; see :class:`aiohttp.base_protocol.BaseProtocol`.

        What has arrived is parsed all the same: aiohttp's parser would keep the rest of it, and nobody would know where it stands.
        """
        self._reading_paused = True
        self._pause_transport_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on; see :class:`aiohttp.base_protocol.BaseProtocol`. aiohttp calls it after each body, paused or not."""
        if self._reading_paused:
            super().resume_reading(False)  # the parser has nothing left

    def _refuse_large_head(self, data: bytes) -> bool:
        """Refuse the head if this data makes it too large; return whether it does."""
        if self._head + begun_in(data, self._earlier, self._head) <= self._settings.max_header_bytes:
            return False
        self._refuse_head()
        return True

    def _refuse_head(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            f"the request's headers are too large, at most {self._settings.max_header_bytes} bytes are read "
            "(`connections.max_header_bytes`)",
        )

    def _follow_up(
        self, data: bytes, fresh: int, body: StreamReader | None, before: int, chunks: int
    ) -> None:
        """Count what was just parsed.

        Args:
            data: what has arrived.
            fresh: the number of requests whose heads are whole now.
            body: the body that was open before, if one was.
            before: its bytes then.
            chunks: its unread chunks then.
        """
        if self._close or self._force_close:
            return  # aiohttp has dropped it
        if body is None and not self._head:
            self._earlier = b""  # an empty line behind a request is no end of a head
        moved = 0 if body is None else body.total_bytes - before
        parsed, earlier = self._unparsed + data, self._earlier
        newest = [self._messages[-at] for at in range(fresh, 0, -1)]
        if self._is_unwanted(newest if body is None else [self._latest, *newest]):
            return
        if fresh:
            for message, unread in newest:
                if is_coded(message):
                    self._refuse_body(HTTPStatus.NOT_IMPLEMENTED, CODED, message, unread)
                    return
            self._whole(parsed, newest)
        if self._upgraded:
            self._message_tail = b""  # behind the last request of this connection
        if self._trailers is not None or self._upgraded or self._begins_chunked(newest):
            self._follow(parsed, earlier, moved, newest)
            self._count_chunks(fresh, chunks)
        self._earlier = parsed[-3:] if len(parsed) >= 3 else (earlier + parsed)[-3:]
        if self._body is not None and not self._body.is_eof():
            self._unparsed = b""
            self._goes_on(data, moved, fresh)
        else:
            rest = 0 if self._upgraded else self._behind(parsed, earlier, moved, newest, body)
            self._ended(parsed, rest, fresh)
        self._count_unread()

    def _behind(
        self,
        parsed: bytes,
        earlier: bytes,
        moved: int,
        newest: Sequence[tuple[Any, Any]],
        body: StreamReader | None,
    ) -> int:
        """The bytes behind the last whole request; empty lines between requests do not count."""
        if newest:
            rest = behind(parsed, earlier, moved, newest)
        elif body is None:
            rest = len(parsed)
            if self._head:
                return rest
        elif getattr(self._latest[0], "chunked", False):
            rest = behind_open(parsed, earlier, *self._latest)
        else:
            rest = len(parsed) - moved
        return len(parsed[-rest:].lstrip(b"\r\n")) if rest else 0

    def _ended(self, parsed: bytes, rest: int, fresh: int) -> None:
        """The latest request is whole, and so much has come behind it."""
        full = len(self._messages) >= self._max_msg_queue_size
        self._unparsed = parsed[len(parsed) - rest :] if rest and full else b""
        if not rest and not fresh and not self.held:
            return
        self._beside = 0 if self.final is None else self._beside
        if rest and not full:
            self._part(rest)
        else:
            self._count()

    def _whole(self, parsed: bytes, newest: Sequence[tuple[Any, Any]]) -> None:
        """At least one head is whole."""
        self._latest = newest[-1]
        self._body = self._latest[1]
        before = self._head
        self._beside = self._head = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        most = self._settings.max_header_bytes
        for message, _ in newest if before + len(parsed) > min(FREE, most) else ():
            size = head_size(message)
            self.unread.head(message, size)
            if size > most and len(parsed) > most:
                self._refuse_head()  # it has come as a whole, behind a request or a body

    def _part(self, size: int) -> None:
        """A head goes on."""
        self._head += size
        if self._head_timer is None:
            self._head_timer = self._loop.call_later(self._settings.header_timeout, self._head_is_late)
        self._count()
        if self._head > self._settings.max_header_bytes:
            self._refuse_head()

    def _goes_on(self, data: bytes, moved: int, fresh: int) -> None:
        """The latest request's body goes on."""
        if data and not fresh and (self._beside or moved < len(data)):
            self._aside(len(data), moved)
        elif fresh or self.held or len(self._messages) > 1:
            self._count()

    def _is_unwanted(self, requests: Iterable[tuple[Any, Any]]) -> bool:
        """Whether one of these requests has a long body and needs none; the connection ends then."""
        for message, body in requests:
            if getattr(body, "_size", 0) > _LARGE and getattr(message, "method", "") in _BODILESS:
                text = "the body of a request that needs none is too large"
                self._refuse_body(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, message, body)
                return True
        return False

    def _count_unread(self) -> None:
        # Of several requests that wait, the bodies are counted with their heads.
        try:
            self.unread.count(self._body if len(self._messages) < 2 else None)
        except OverBudget as error:
            self._refuse_body(HTTPStatus.SERVICE_UNAVAILABLE, str(error), *self._latest)

    def _count(self) -> None:
        held, most = self._head + self._beside + len(self._unparsed), self._settings.max_header_bytes
        # While none is served, the first one is about to be.
        if len(self._messages) > (self._waiter is not None):
            self._waiting = self._waiting or Waiting()
            waiting = self._waiting.size(self._messages)
            held += waiting
            self._crowded = waiting > most
            if self._crowded and not self._buffer_paused:
                self._pause_reading_for_buffer()
        elif self._waiting is not None:
            self._waiting, self._crowded = None, False
        before, self.held = self.held, held
        if held != before and not self._heads.change(before, held):
            self._refuse(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "too many unfinished headers, or bytes of requests that wait behind others. Consider increasing "
                "`connections.max_unfinished_headers`",
            )

    def _resume_reading_if_drained(self) -> None:
        """Read on, unless what waits is still too much. aiohttp asks whenever a request begins and few wait."""
        self._count()
        if not self._crowded:
            super()._resume_reading_if_drained()
            self._count()

    # -- trailers ---------------------------------------------------------------------------------

    def _begins_chunked(self, newest: Sequence[tuple[Any, Any]]) -> bool:
        """Whether one of the latest requests has a chunked body; the connection's bodies are followed from then on."""
        found = any(getattr(message, "chunked", False) for message, _ in newest)
        if found:
            self._trailers = Trailers()
        return found

    def _follow(self, parsed: bytes, earlier: bytes, moved: int, newest: Sequence[tuple[Any, Any]]) -> None:
        """Find out whether a request of these is the last one that can be served."""
        if self.final is None and self._trailers is not None:
            self.final = self._trailers.follow(parsed, earlier, moved, newest)
        if self.final is None and self._upgraded:
            self.final = self._latest  # aiohttp parses what comes next by itself, where it is not followed
        if newest and self._body is not None and not self._body.is_eof():
            own = behind(parsed, earlier, moved, newest[:-1])
            self._beside = max(0, own - self._body.total_bytes)
            self._count()
        if self.final is not None:
            last, body = self.final
            if body.is_eof() and all(message is not last for message, _ in self._messages):
                self._close = True  # its answer may have promised that the connection stays

    def _aside(self, size: int, moved: int) -> None:
        """Count what has come with an open body and is no part of it: sizes of chunks, trailers."""
        trailing = self.final is not None or not moved
        self._beside = max(0, size - moved) + (self._beside if trailing else 0)
        self._count()
        most = self._settings.max_header_bytes
        if trailing and self._beside > most:
            text = (
                f"the trailers are too large, at most {most} bytes are read (`connections.max_header_bytes`)"
            )
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, text)

    def begins(self, message: Any) -> None:
        """A request begins to be served, and waits no longer."""
        if self._waiting is not None:
            self._waiting.forget(message)
        self.unread.begins(message)
        self._count()
        self._count_unread()

    def _head_is_late(self) -> None:
        turn = self._arrivals.enter(self._turn_of)
        if turn is None:
            self._refuse_late()
        else:
            self._wait_late(turn)

    def _wait_late(self, turn: asyncio.Future[None]) -> None:
        """Refuse the head in its turn: those that began together are late together."""
        self._head_timer = turn
        turn.add_done_callback(self._late_turn)

    def _late_turn(self, turn: asyncio.Future[None]) -> None:
        if turn is not self._head_timer or turn.cancelled():
            return  # the head is whole, or the connection has ended
        again = self._arrivals.again(self._turn_of)
        if again is None:
            self._refuse_late()
        else:
            self._wait_late(again)

    def _refuse_late(self) -> None:
        self._head_timer = None
        if self._stopped or self.kept:  # it is the daemon that does not read on
            self._part(0)
            return
        self._refuse(
            HTTPStatus.REQUEST_TIMEOUT,
            f"the request's headers did not arrive within {self._settings.header_timeout:g} s "
            "(`connections.header_timeout`)",
        )

    def _forget(self) -> None:
        """Nothing of it is held any more."""
        self._heads.change(self.held, 0)
        self.held = self._head = self._beside = 0
        self.unread.forget()
        self._drop_kept()
        self._unparsed = b""


__all__ = ["HttpInput"]
