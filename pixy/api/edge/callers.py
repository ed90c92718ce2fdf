"""Name the caller whose quota a request is charged to.

It is the principal, once one is recognized (``auth``); otherwise the address: of the connection, or the one that a trusted proxy
names as its own peer.
"""

from __future__ import annotations

import functools
from typing import Final
from urllib.parse import unquote

from aiohttp import web

from pixy.api.edge.connections import share_of, share_of_forwarded
from pixy.api.edge.proxies import TrustedProxies
from pixy.auth.principal import ANONYMOUS, current

_MAX_PEERS: Final = 4096
"""Connections of gRPC whose address is remembered."""


def caller_of_request(request: web.BaseRequest, proxies: TrustedProxies, address: str) -> str:
    """Name the caller of an HTTP request.

    Args:
        request: the request.
        proxies: those that are believed.
        address: of its connection (:func:`address_share`).
    """
    principal = _principal()
    if principal:
        return principal
    forwarded = request.headers.getall("X-Forwarded-For", ()) if proxies.any else ()
    if forwarded and proxies.trusts(request):
        # Some proxies (HAProxy) add a line of their own behind those that the client has sent.
        named = share_of_forwarded(forwarded[-1].rpartition(",")[2].strip())
        if named:
            return named
    return address


def address_share(request: web.BaseRequest) -> str:
    """Name the address of an HTTP request's connection, whoever calls."""
    slot = getattr(request.protocol, "slot", None)
    return slot.caller if slot is not None else ""


def caller_of_call(peer: str) -> str:
    """Name the caller of a gRPC call.

    Args:
        peer: the connection's, as gRPC names it.
    """
    return _principal() or address_of_peer(peer)


def _principal() -> str:
    caller = current.get()
    return "" if caller is None or caller.principal is ANONYMOUS else caller.principal.name


@functools.lru_cache(_MAX_PEERS)
def address_of_peer(peer: str) -> str:
    """Name the address of a gRPC call, whoever calls.

    Args:
        peer: as gRPC names it: ``ipv4:127.0.0.1:5``, ``ipv6:%5B::1%5D:5`` or ``unix:``.
    """
    kind, _, address = peer.partition(":")
    if kind == "ipv4":
        return address.rpartition(":")[0]
    if kind == "ipv6":
        return share_of(unquote(address).rpartition(":")[0].strip("[]"))
    return kind


__all__ = ["address_of_peer", "address_share", "caller_of_call", "caller_of_request"]
