"""What an HTTP request shows of its caller."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final

from aiohttp import web

from pixy.api.identity import API_KEY, single
from pixy.auth.principal import Credentials

_PEER: Final = struct.Struct("3i")
"""``struct ucred``: pid, uid, gid."""


def credentials(request: web.BaseRequest) -> Credentials:
    """Collect what a request and its connection show of the caller. Raises Unauthenticated."""
    headers, transport = request.headers, request.transport
    certificate = uid = None
    if transport is not None:
        tls = transport.get_extra_info("ssl_object")
        certificate = _certificate(tls) if tls is not None else None
        uid = _uid(transport.get_extra_info("socket"))
    return Credentials(
        authorization=single(headers.getall("Authorization", ()), "Authorization"),
        api_key=single(headers.getall(API_KEY, ()), API_KEY),
        certificate=certificate,
        uid=uid,
        trace=headers.get("traceparent", ""),
    )


def address_of(request: web.BaseRequest) -> str:
    """The address of the peer; ``unix`` on a unix socket."""
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    return f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "unix"


def _certificate(tls: ssl.SSLObject) -> bytes | None:
    return tls.getpeercert(binary_form=True)


def _uid(connection: socket.socket | None) -> int | None:
    """The user of the process that has connected to a unix socket, as the kernel says."""
    if connection is None or connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    except OSError:
        return None
    return int(_PEER.unpack(found)[1])


__all__ = ["address_of", "credentials"]
