"""An HTTP request of a connection with deadlines, and what every answer to one says."""

from __future__ import annotations

import re
from typing import Final

from aiohttp import web
from aiohttp.helpers import reify
from aiohttp.streams import EMPTY_PAYLOAD

from pixy.api.edge.connections import Slot

SERVER: Final = "kafka-pixy"
"""The header Server of every answer; aiohttp's own text would name the versions of Python and aiohttp."""
_ORIGIN: Final = re.compile(r"https?://[^/?#]*", re.IGNORECASE)


class HttpRequest(web.BaseRequest):
    """A request of :class:`pixy.api.edge.http_protocol.HttpConnection`."""

    @property
    def keep_alive(self) -> bool:
        """True if another request may follow on the connection."""
        message = self._message
        final = self._protocol.final  # type: ignore[attr-defined]
        return not message.should_close and (final is None or final[0] is not message)

    @reify
    def raw_path(self) -> str:
        """The target as it was sent, still percent-encoded; without scheme and host, which clients of proxies send (RFC 9112, 3.2.2)."""
        target = self._message.path
        return target if target.startswith("/") else without_origin(target)

    @reify
    def remote(self) -> str | None:
        """The address of the client; None on a unix socket, whose clients choose the name of their end themselves."""
        peer = self._transport_peername
        if isinstance(peer, tuple):
            return str(peer[0])
        # The address of a connection that was reset is gone: it must not be taken for one on a unix socket, which may be trusted.
        slot: Slot | None = getattr(self._protocol, "slot", None)
        return None if slot is None else slot.peer.rpartition(":")[0] or None

    def _finish(self) -> None:
        # Called when the handler has ended, before the answer is written unless the handler has done it.
        if self._post is not None:
            super()._finish()
        body = self._payload
        if body is not EMPTY_PAYLOAD and not body.at_eof():
            self._protocol.unread.ended(body)  # type: ignore[attr-defined]

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        # Called for every answer before its headers are written.
        response.headers["Server"] = SERVER


def without_origin(target: str) -> str:
    """Return a request's target without scheme and host; one that has none (``*``) stays as it is."""
    origin = _ORIGIN.match(target)
    if origin is None:
        return target
    rest = target[origin.end() :]
    return rest if rest.startswith("/") else f"/{rest}"


__all__ = ["SERVER", "HttpRequest", "without_origin"]
