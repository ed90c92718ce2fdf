"""Find the scheme, host and path that a client used, in its request or in what a trusted proxy says of it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

_PORTS: Final = {"http": "80", "https": "443"}


def host_of(request: web.BaseRequest) -> str:
    """Return the Host of a request, or the address that was connected to. aiohttp would look up a name, and wait for it."""
    host = request.headers.get("Host")
    if host is not None:
        return host
    name = request.get_extra_info("sockname")
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else "localhost"


def origin_of(request: web.BaseRequest) -> str:
    """Return the scheme and host that the client used (RFC 7239, or its forerunners X-Forwarded-*)."""
    headers = request.headers
    scheme, host = "", host_of(request)
    if request.forwarded:
        first = request.forwarded[0]
        scheme, host = first.get("proto", scheme), first.get("host", host)
    else:
        scheme = _first(headers.get("X-Forwarded-Proto", ""))
        host = _first(headers.get("X-Forwarded-Host", "")) or host
    scheme = scheme.lower() if scheme.lower() in _PORTS else request.scheme
    port = _first(headers.get("X-Forwarded-Port", ""))
    if not request.forwarded and port and urlsplit(f"//{host}").port is None and port != _PORTS[scheme]:
        host = f"{host}:{port}"
    return f"{scheme}://{host}"


def below_of(request: web.BaseRequest) -> str:
    """Return the part of the path before ``/consumers/`` that the client used."""
    headers = request.headers
    path = _first(headers.get("X-Forwarded-Path", ""))
    if path.startswith("/"):
        return path[: path.index("/consumers/")] if "/consumers/" in path else path.rstrip("/")
    path = request.raw_path.partition("?")[0]
    prefix = _first(headers.get("X-Forwarded-Prefix", "")).strip("/")
    below = path[: path.index("/consumers/")] if "/consumers/" in path else ""
    return f"/{prefix}{below}" if prefix else below


def _first(value: str) -> str:
    return value.partition(",")[0].strip()


__all__ = ["below_of", "host_of", "origin_of"]
