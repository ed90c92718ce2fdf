"""Find the listeners that can be reached from other hosts, and tell whether that is allowed. Pure."""

from __future__ import annotations

import ipaddress

from pixy.config.model import App


def is_loopback(host: str) -> bool:
    """Return whether a host is this one's loopback: ``localhost``, ``127.0.0.0/8``, ``::1``; an empty one means all."""
    host = host.strip("[]").lower().rstrip(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def exposed(app: App) -> list[str]:
    """List the addresses, ``key address``, that other hosts may reach.

    An address with a colon is TCP, be it that of ``unix_addr`` (the original's rule); one without is a path.
    """
    addresses = {
        "grpc_addr": app.grpc_addr,
        "tcp_addr": app.tcp_addr,
        "unix_addr": app.unix_addr,
        "rest.addr": app.rest.addr,
        "admin_addr": app.admin_addr,
    }
    return [
        f"{key} {address}"
        for key, address in addresses.items()
        if ":" in address and not is_loopback(address.rpartition(":")[0])
    ]


def address_problem(app: App) -> str:
    """Describe the first address that is only half of one: a host or a port alone would become a socket's file."""
    if app.admin_addr and ":" not in app.admin_addr:
        return f"admin_addr {app.admin_addr!r} must be HOST:PORT, such as 127.0.0.1:19093"
    for key, address in {"tcp_addr": app.tcp_addr, "rest.addr": app.rest.addr}.items():
        if address and ":" not in address and "/" not in address:
            meant = f"127.0.0.1:{address}" if address.isdecimal() else f"{address}:19092"
            return f"{key} {address!r} must be HOST:PORT, such as {meant}, or a path with a slash"
    return ""


def may_be_exposed(app: App) -> bool:
    """Return whether listeners may be reached from other hosts: the one place that decides it."""
    return app.insecure or app.auth.enabled


def exposure_problem(app: App) -> str:
    """Describe the first listener that must not be reached from other hosts; empty if there is none."""
    found = exposed(app)
    if not found or may_be_exposed(app):
        return ""
    return (
        f"{found[0]} can be reached from other hosts, and the daemon asks nobody who he is: listen on 127.0.0.1, "
        "set up `auth`, or say `insecure: true` (--insecure) where the network keeps strangers away"
    )


__all__ = ["address_problem", "exposed", "exposure_problem", "is_loopback", "may_be_exposed"]
