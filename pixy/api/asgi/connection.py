"""The connection of an HTTP request as :mod:`pixy.api.rest` and :mod:`pixy.api.restv1` see it, for requests that come over ASGI.

Connections themselves, their deadlines and bounds are the hosting server's.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Final

from pixy.api.asgi.types import Scope, certificate_of
from pixy.api.edge.connections import Slot, peer_name, share_of
from pixy.api.edge.edge import Edge
from pixy.api.edge.unread import Unread

_TLS: Final = object()
"""Stands for a TLS context: the request came over TLS."""


class AsgiTransport:
    """The part of :class:`asyncio.Transport` that is asked for."""

    __slots__ = ("_scope", "_tls")

    def __init__(self, scope: Scope, tls: bool) -> None:
        self._scope = scope
        self._tls = tls

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        if name == "peername":
            return self._scope.get("client") or default
        if name == "sockname":
            return self._scope.get("server") or default
        if name == "sslcontext":
            return _TLS if self._tls else default
        if name == "ssl_object" and self._tls:
            return _Certificate(certificate_of(self._scope))
        return default

    def is_closing(self) -> bool:
        """Return False: sending says whether the client has gone."""
        return False

    def write(self, data: bytes) -> None:
        """Drop ``100 Continue``: the server has sent it."""


class _Certificate:
    __slots__ = ("_pem",)

    def __init__(self, pem: str) -> None:
        self._pem = pem

    def getpeercert(self, binary_form: bool = False) -> bytes | None:
        """Return the client's certificate in DER; see :meth:`ssl.SSLSocket.getpeercert`."""
        del binary_form
        return ssl.PEM_cert_to_DER_cert(self._pem) if self._pem else None


class AsgiConnection:
    """The part of :class:`pixy.api.edge.http_input.HttpInput` that endpoints use, for one request.

    Args:
        scope: of the request.
        edge: counts bytes, and gives turns.
        tls: whether the connection has TLS. The scheme of the scope does not tell: Envoy takes it from the request's target, if that
            has one (RFC 9112, 3.2.2), or from X-Forwarded-Proto, whoever sends that.
    """

    final = None
    """No request is known to be the last one."""
    connected = True
    """A client that goes is known by an error of its body, or when the answer is sent."""
    _reading_paused = False

    def __init__(self, scope: Scope, edge: Edge, tls: bool) -> None:
        client = scope.get("client")
        caller = share_of(client[0]) if client else ""
        self._steps = edge.steps
        self.transport = AsgiTransport(scope, tls)
        self.peername = client
        self.sockname = scope.get("server")
        self.ssl_context = _TLS if tls else None
        self.slot = Slot(caller, _nothing)
        self.slot.peer = peer_name(client)
        self.unread = Unread(edge.budget.share(caller))
        self.body_deadline = edge.body_deadline
        self.readable = asyncio.Event()
        """Set while more of the body may be taken."""
        self.readable.set()

    async def take_turn(self) -> None:
        """See :class:`pixy.api.edge.pieces.PacedInput`."""
        turn = self._steps.enter(self.slot.caller)
        if turn is not None:
            await self._steps.wait(turn, self.slot.caller)

    def pause_reading(self) -> None:
        """Note that enough of the body waits to be read."""
        self._reading_paused = True
        self.readable.clear()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Note that more of the body may come."""
        del resume_parser
        self._reading_paused = False
        self.readable.set()


def _nothing(_caller: str) -> None:
    pass


__all__ = ["AsgiConnection", "AsgiTransport"]
