"""Find the credentials of an HTTP request's caller."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Final

from aiohttp import hdrs, web
from multidict import istr

from pixy.api.edge.connections import Slot, peer_name
from pixy.api.identity import API_KEY, single
from pixy.auth.authenticator import Authenticator
from pixy.auth.hops import PROOF_HEADER
from pixy.auth.principal import Credentials, current
from pixy.engine.guard import Guard

_PEER: Final = struct.Struct("3i")
"""``struct ucred``: pid, uid, gid."""
_API_KEY: Final = istr(API_KEY)
_TRACE: Final = istr("traceparent")


def credentials(request: web.BaseRequest, authenticator: Authenticator) -> Credentials:
    """Collect what a request and its connection show of the caller.

    Args:
        request: his.
        authenticator: says what it looks at; asking the connection for the rest took 3 us of each request.

    Raises:
        Unauthenticated: a header was sent several times.
    """
    headers, transport = request.headers, request.transport
    certificate = uid = None
    if transport is not None and authenticator.sees_certificates:
        tls = transport.get_extra_info("ssl_object")
        certificate = _certificate(tls) if tls is not None else None
    if transport is not None and authenticator.sees_uids:
        uid = _uid(transport.get_extra_info("socket"))
    return Credentials(
        single(headers.getall(hdrs.AUTHORIZATION, ()), "Authorization"),
        single(headers.getall(_API_KEY, ()), API_KEY),
        certificate,
        uid,
        headers.get(_TRACE, ""),
    )


def again(guard: Guard, request: web.BaseRequest) -> bool:
    """Recognize a caller who sends the same head as before on his connection, and whose credential still counts.

    Most clients do that with each request. Comparing heads takes 0.3 us, and recognizing him again 3.

    Args:
        guard: says whether the credential still counts.
        request: one whose caller gets to be the current one of this task, if he is recognized.

    Returns:
        False: nobody was recognized; identify him by his credentials.
    """
    slot: Slot | None = getattr(request.protocol, "slot", None)
    known = None if slot is None else slot.known
    if known is None or known[0] != request.raw_headers or not guard.authenticator.holds(known[1]):
        return False
    current.set(known[1])
    return True


def remember(request: web.BaseRequest) -> None:
    """Remember the caller who was recognized by a head for :func:`again`: one for each connection. A peer's proof counts once."""
    slot: Slot | None = getattr(request.protocol, "slot", None)
    caller = current.get()
    if slot is not None and caller is not None and PROOF_HEADER not in request.headers:
        slot.known = request.raw_headers, caller


def address_of(request: web.BaseRequest) -> str:
    """Return the address of the peer; ``unix`` on a unix socket."""
    slot: Slot | None = getattr(request.protocol, "slot", None)
    if slot is not None and slot.peer:
        return slot.peer
    peer = request.transport.get_extra_info("peername") if request.transport is not None else None
    address = peer_name(peer)
    if slot is not None and request.transport is not None:
        slot.peer = address
    return address


def _certificate(tls: ssl.SSLObject) -> bytes | None:
    return tls.getpeercert(binary_form=True)


def _uid(connection: socket.socket | None) -> int | None:
    """Return the user of the process that has connected to a unix socket, as the kernel says."""
    if connection is None or connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    try:
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    except OSError:
        return None
    return int(_PEER.unpack(found)[1])


__all__ = ["address_of", "again", "credentials", "remember"]
