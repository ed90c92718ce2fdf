"""Addresses as ``host:port``. Pure."""

from __future__ import annotations

import re

_BROKER = re.compile(r"(?:[A-Za-z0-9_]+://)?(?:\[[^\s\[\]/]+\]|[^\s:/\[\]]+)(?::(?P<port>[0-9]{1,5}))?\Z")


def split_address(address: str) -> tuple[str | None, int]:
    """Split ``host:port``, ``:port`` or ``[::1]:port`` into the host (None for all) and the port.

    Raises:
        ValueError: ``address`` has none of these forms.
    """
    if problem := problem_of_address(address):
        raise ValueError(f"bad address: {address!r} {problem}")
    host, _, port = address.rpartition(":")
    return host.strip("[]") or None, int(port)


def problem_of_address(address: str) -> str:
    """Describe why a text is none of the forms that :func:`split_address` takes, as the rest of a sentence; empty if it is one."""
    _, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal():
        return "is not host:port"
    return "has a port above 65535" if len(port) > 9 or int(port) > 65535 else ""


def is_broker(peer: str) -> bool:
    """Tell whether a text names a broker: ``host``, ``host:port`` or ``[::1]:port``, also after ``PLAINTEXT://``.

    Args:
        peer: one address; white space around it does not count.
    """
    found = _BROKER.match(peer.strip())
    return found is not None and 0 < int(found["port"] or 9092) < 65536


__all__ = ["is_broker", "problem_of_address", "split_address"]
