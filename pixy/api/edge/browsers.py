"""Refuse what a web page of somebody else makes a browser send here.

A page anywhere may send simple requests to ``localhost``, which need no permission by CORS, and the browser says where they
come from: in ``Origin``, and in ``Sec-Fetch-Site`` (https://www.w3.org/TR/fetch-metadata/). A page may also give its own
host name this daemon's address (DNS rebinding), and then read what it likes; there the browser sends that name as Host.
Programs other than browsers send neither header, and a Host that they were given on purpose.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from aiohttp import web

from pixy.config.exposure import is_loopback
from pixy.config.model import App

_HARMLESS = frozenset({"/", "/_ping", "/healthy", "/ready", "/docs", "/openapi.json"})
"""Paths that change nothing, and tell nothing about Kafka."""
_KNOWN = 1024
"""Values of Host that are remembered as allowed."""
_LONGEST = 261
"""Characters of those: a name of DNS has 255 at most, a port five."""


class Browsers:
    """Decides whether a request may come from where it comes from.

    Args:
        app: ``allowed_hosts``, the listeners' addresses, and ``rest`` with its origins, peers and advertised URL.
    """

    def __init__(self, app: App) -> None:
        own = [urlsplit(app.rest.advertised_url).hostname or ""]
        own.append(urlsplit(app.rest.peers.get(app.rest.node_id, "")).hostname or "")
        own += [
            address.rpartition(":")[0].strip("[]")
            for address in (app.tcp_addr, app.rest.addr, app.admin_addr)
        ]
        name = socket.gethostname()
        own += [name, name.partition(".")[0]]
        self._hosts = _lower(name for name in (*own, *app.allowed_hosts) if name)
        self._any_host = "*" in self._hosts
        self._domains = tuple(name for name in self._hosts if name.startswith("."))
        self._origins = _lower(app.rest.cors_origins)
        self._seen: set[str] = set()

    def problem(self, request: web.BaseRequest, path: str, checks_host: bool) -> str:
        """Say why a request is refused; empty if it is not.

        Args:
            request: for its method and headers.
            path: still percent-encoded, without the query.
            checks_host: False for a unix socket, which no browser reaches.
        """
        headers = request.headers
        host = headers.get("Host", "")
        if checks_host and host not in self._seen and not self._is_allowed(host):
            return _unknown(host)
        origin = headers.get("Origin")
        site = headers.get("Sec-Fetch-Site")
        if origin is None and site is None:
            return ""
        return self._foreign(request.method, path, host, origin, site)

    def problem_of_call(self, method: str, path: str, headers: Mapping[str, str]) -> str:
        """Say why a gRPC call of a web page is refused; empty if it is not, or no browser has sent it.

        Programs may call the daemon by any name: gRPC does not check it, and they name no page.

        Args:
            method: of HTTP.
            path: of the call.
            headers: ``Host``, ``Origin`` and ``Sec-Fetch-Site``, those that there are.
        """
        origin, site = headers.get("Origin"), headers.get("Sec-Fetch-Site")
        if origin is None and site is None:
            return ""
        host = headers.get("Host", "")
        if host not in self._seen and not self._is_allowed(host):
            return _unknown(host)
        return self._foreign(method, path, host, origin, site)

    def _foreign(self, method: str, path: str, host: str, origin: str | None, site: str | None) -> str:
        if method == "OPTIONS" or path in _HARMLESS or site == "same-origin":
            return ""  # a preflight is answered by CORS
        if origin is not None:
            if "*" in self._origins or origin.rstrip("/").lower() in self._origins:
                return ""
            if site is None and origin.partition("://")[2].lower() == host.lower():
                return ""
            return f"web pages of {origin[:255]!r} may not use this API; add the origin to `rest.cors_origins` if they may"
        if site in ("cross-site", "same-site"):
            return "web pages of other sites may not use this API"
        return ""

    def _is_allowed(self, host: str) -> bool:
        name = _name(host)
        # An address is no name that somebody could have given to this one. HTTP/1.0 needs no Host; browsers send one.
        own = self._any_host or not host or _is_address(name) or is_loopback(name) or name in self._hosts
        if not own and not f".{name}".endswith(self._domains):
            return False
        if len(self._seen) < _KNOWN and len(host) <= _LONGEST:
            self._seen.add(host)
        return True


def _unknown(host: str) -> str:
    return f"the host {host[:255]!r} is not a name of this daemon; add it to `allowed_hosts` if it is one"


def _lower(names: Iterable[str]) -> frozenset[str]:
    return frozenset(name.rstrip("/").lower() for name in names)


def _name(host: str) -> str:
    """Return the name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


__all__ = ["Browsers"]
