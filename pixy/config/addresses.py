"""Addresses as ``host:port``. Pure."""

from __future__ import annotations

import re

_BROKER = re.compile(r"(?:[A-Za-z0-9_]+://)?(?:\[[^\s\[\]/]+\]|[^\s:/\[\]]+)(?::(?P<port>[0-9]{1,5}))?\Z")


def split_address(address: str) -> tuple[str | None, int]:
    """Split ``host:port``, ``:port`` or ``[::1]:port`` into the host (None for all) and the port.

    Raises:
        ValueError: ``address`` has none of these forms.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or len(port) > 9 or int(port) > 65535:
        raise ValueError(f"bad address: {address!r} is not host:port")
    return host.strip("[]") or None, int(port)


def is_broker(peer: str) -> bool:
    """Tell whether a text names a broker: ``host``, ``host:port`` or ``[::1]:port``, also after ``PLAINTEXT://``.

    Args:
        peer: one address; white space around it does not count.
    """
    found = _BROKER.match(peer.strip())
    return found is not None and 0 < int(found["port"] or 9092) < 65536


__all__ = ["is_broker", "split_address"]
