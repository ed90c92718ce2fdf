"""Addresses as ``host:port``. Pure."""

from __future__ import annotations


def split_address(address: str) -> tuple[str | None, int]:
    """Split ``host:port``, ``:port`` or ``[::1]:port`` into the host (None for all) and the port.

    Raises:
        ValueError: ``address`` has none of these forms.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or len(port) > 9 or int(port) > 65535:
        raise ValueError(f"bad address: {address!r} is not host:port")
    return host.strip("[]") or None, int(port)


__all__ = ["split_address"]
