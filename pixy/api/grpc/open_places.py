"""Places of calls that need no caller: health checks and, without ``auth``, reflection."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pixy.engine.shares import Shares

Leave = Callable[[Any], None]
"""Gives a place back; its argument, the call, does not matter."""


class OpenPlaces:
    """Places that all addresses share, and beyond them one for each connection, which leaves the places of others free.

    Args:
        most: places that they share; one address may have three quarters.
        each: calls of one connection.
    """

    def __init__(self, most: int, each: int) -> None:
        self._shares = Shares(most, total=True)
        self._each = each
        self._of: dict[str, int] = {}
        self._alone: set[str] = set()
        """Connections with a call beyond the places."""

    @property
    def held(self) -> int:
        """Calls under way."""
        return self._shares.held + len(self._alone)

    def enter(self, peer: str, address: str) -> Leave | None:
        """Take a place for a call.

        Args:
            peer: the connection's, as gRPC names it.
            address: the peer's.

        Returns:
            What gives it back; None: there is none.
        """
        if self._of.get(peer, 0) >= self._each:
            return None
        shared = self._shares.enter(address)
        if not shared:
            if peer in self._alone:
                return None
            self._alone.add(peer)
        self._of[peer] = self._of.get(peer, 0) + 1
        return functools.partial(self._leave, peer, address if shared else None)

    def _leave(self, peer: str, address: str | None, _call: Any) -> None:
        if address is None:
            self._alone.discard(peer)
        else:
            self._shares.leave(address)
        left = self._of[peer] - 1
        if left:
            self._of[peer] = left
        else:
            del self._of[peer]


__all__ = ["Leave", "OpenPlaces"]
