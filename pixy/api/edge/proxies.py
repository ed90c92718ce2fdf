"""Believe ``Forwarded`` and ``X-Forwarded-*`` headers only of the proxies configured, and of peers."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from pixy.config.model import App

logger = logging.getLogger("pixy.api")

HOP_HEADER: Final = "X-Kafka-Pixy-Forwarded-By"
"""Names the node that has forwarded a request. It counts only from an address of that peer."""

FORWARDED: Final = frozenset(
    {
        "forwarded",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-port",
        "x-forwarded-proto",
        "x-forwarded-path",
        "x-forwarded-prefix",
    }
)
"""The headers, in lower case, by which a proxy speaks of the client behind it."""

_EVERY = 10.0
"""Seconds between two look-ups of the peers' names."""
_LOOKUP = 5.0
"""Seconds that a look-up may take."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def networks(entries: Iterable[str]) -> tuple[Network, ...]:
    """Parse addresses and networks (``10.0.0.0/8``); ``unix`` is left out. Raises ValueError with the wrong entry."""
    return tuple(ipaddress.ip_network(entry, strict=False) for entry in entries if entry != "unix")


class TrustedProxies:
    """Decides it for one process.

    Args:
        app: ``trusted_proxies`` and ``rest.peers``.
    """

    def __init__(self, app: App) -> None:
        self._networks = networks(app.trusted_proxies)
        self._unix = "unix" in app.trusted_proxies
        peers: Mapping[str, str] = app.rest.peers
        self._peers = {
            name: urlsplit(url).hostname or "" for name, url in peers.items() if name != app.rest.node_id
        }
        self._addresses: dict[str, frozenset[str]] = {}
        self._looked_up = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    @property
    def any(self) -> bool:
        """True if any proxy is trusted."""
        return self._unix or bool(self._networks or self._peers)

    def trusts(self, request: web.BaseRequest) -> bool:
        """Return whether to believe the forwarding headers of a request."""
        remote = request.remote
        if not remote:
            return self._unix
        if self._networks:
            address = ipaddress.ip_address(remote.partition("%")[0])
            address = getattr(address, "ipv4_mapped", None) or address
            if any(address in network for network in self._networks):
                return True
        hops = request.headers.getall(HOP_HEADER, ())
        if len(hops) != 1 or hops[0] not in self._peers:
            return False
        self._refresh()
        return remote in self._addresses.get(hops[0], ())

    async def start(self) -> None:
        """Look the peers' names up for the first time."""
        if self._peers:
            self._refresh()
            if self._looking is not None:
                await asyncio.wait((self._looking,), timeout=_LOOKUP)

    def _refresh(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_up < _EVERY:
            return
        self._looked_up = loop.time()
        self._looking = loop.create_task(self._look_up())

    async def _look_up(self) -> None:
        loop = asyncio.get_running_loop()
        for name, host in self._peers.items():
            try:
                async with asyncio.timeout(_LOOKUP):
                    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except (OSError, TimeoutError) as error:
                logger.info("the peer %s is not found: %s", name, error)
                continue
            self._addresses[name] = frozenset(str(info[4][0]) for info in found)


__all__ = ["FORWARDED", "HOP_HEADER", "TrustedProxies", "networks"]
