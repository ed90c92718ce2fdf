"""What a worker's configuration has for itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pixy.config.model import App

ADMIN_KEY: Final = "admin_addr"
KEYS: Final = ("grpc_addr", "tcp_addr", "rest.addr", "unix_addr", ADMIN_KEY)
"""The keys of TCP addresses, which all workers share. An address with a colon is TCP, also that of ``unix_addr``."""


def shared_addresses(app: App) -> dict[str, str]:
    """Return the TCP addresses that are served, by their keys."""
    found = (app.grpc_addr, app.tcp_addr, app.rest.addr, app.unix_addr, app.admin_addr)
    return {key: address for key, address in zip(KEYS, found, strict=True) if ":" in address}


def adapted(app: App, number: int, addresses: Mapping[str, str]) -> App:
    """Give a worker's configuration its own names and the addresses that all workers share; return it.

    Args:
        app: the daemon's; it is changed.
        number: the worker's.
        addresses: by their keys, with ports that are not 0.
    """
    app.grpc_addr = addresses.get("grpc_addr", app.grpc_addr)
    app.tcp_addr = addresses.get("tcp_addr", app.tcp_addr)
    app.rest.addr = addresses.get("rest.addr", app.rest.addr)
    app.unix_addr = addresses.get("unix_addr", app.unix_addr)
    app.admin_addr = addresses.get(ADMIN_KEY, app.admin_addr)
    for proxy in app.proxies.values():
        proxy.client_id = f"{proxy.client_id}-{number}"
        if proxy.consumer.group_instance_id:  # two members of a group may not have the same
            proxy.consumer.group_instance_id = f"{proxy.consumer.group_instance_id}-{number}"
    return app


__all__ = ["ADMIN_KEY", "KEYS", "adapted", "shared_addresses"]
