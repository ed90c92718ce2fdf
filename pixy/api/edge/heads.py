"""The bytes of request heads that have arrived but not been served, over all connections.

aiohttp keeps what has come of a head until it is whole, up to 64 KiB a line and 128 lines, and up to 32 requests that
wait behind the one that is served. A connection has its own bound for them (``connections.max_header_bytes``); all of
them together have this one. An honest request comes whole and is served at once, so it holds nothing here.
"""

from __future__ import annotations


class Heads:
    """Counts those bytes. For one event loop, so it needs no lock.

    Beyond the limit each connection may hold an equal share of it, so who holds much is refused and who holds little is
    not: all together hold at most twice the limit.

    Args:
        limit: bytes (``connections.max_unfinished_headers``).
    """

    __slots__ = ("_holders", "_limit", "held", "most")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders = 0
        self.held = 0
        self.most = 0
        """The largest sum so far."""

    def change(self, before: int, after: int) -> bool:
        """Replace what one connection holds, and return whether it may hold that much.

        Args:
            before: bytes that it held.
            after: bytes that it holds now.
        """
        self.held += after - before
        self._holders += (after > 0) - (before > 0)
        self.most = max(self.most, self.held)
        return self.held <= self._limit or after <= before or after * self._holders <= self._limit
