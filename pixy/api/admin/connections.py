"""The admin listener's HTTP server: the edge's connections, with their deadlines and bounds, for an aiohttp application.

The console's page uses a WebSocket. Once one is open, what arrives are frames, which aiohttp's own parser bounds; the edge's
counting of heads and bodies has nothing to count there.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from pixy.api.edge.connections import Slot
from pixy.api.edge.http_protocol import HttpConnection, HttpServer
from pixy.api.edge.http_request import HttpRequest

MAX_BODY = 64 * 1024
"""Bytes of a request's body; nothing that is sent here is longer."""


class AdminRequest(HttpRequest, web.Request):
    """A request of an aiohttp application on one of the edge's connections."""


class AdminConnection(HttpConnection):
    """A connection on which WebSockets may begin."""

    def data_received(self, data: bytes) -> None:
        """Pass frames of a WebSocket on; see :class:`asyncio.Protocol`."""
        if self._payload_parser is not None:
            RequestHandler.data_received(self, data)
        else:
            super().data_received(data)


class AdminHttp(HttpServer):
    """Makes the connections of the admin listener; see :class:`HttpServer`."""

    def connection(self, slot: Slot) -> HttpConnection:
        """Make the protocol of a connection; it frees ``slot`` at its end."""
        return AdminConnection(
            self,
            self.refused,
            slot,
            self._settings,
            self._heads,
            self._budget,
            self._body_deadline,
            self._steps,
            self._arrivals,
        )

    def _make(
        self, message: Any, payload: Any, protocol: Any, writer: Any, task: asyncio.Task[None]
    ) -> web.BaseRequest:
        unread = protocol.unread
        unread.served = payload
        if protocol.held or unread.heads:
            protocol.begins(message)
            if protocol.transport is None:
                raise asyncio.CancelledError  # the connection has just been ended
        return AdminRequest(message, payload, protocol, writer, task, self._loop, client_max_size=MAX_BODY)


__all__ = ["AdminConnection", "AdminHttp", "AdminRequest"]
