"""The requests of one connection that wait for a response, and how responses are matched with them.

A broker answers in the order of requests, except for Produce with acks=0, which it never answers (and which is
never added here), and for the raw SASL tokens that follow SaslHandshake v0, which have no header.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple

MAX_STRAYS: Final = 1_000
"""Unmatched responses after which a connection is no longer observed."""

SASL_TOKEN: Final = -1
"""The ``key`` of a raw SASL token."""


class PendingRequest(NamedTuple):
    """A request that waits for its response."""

    key: int
    """API key, or :data:`SASL_TOKEN`."""
    version: int
    correlation_id: int
    number: int
    """Position among the connection's requests, from 1."""
    at: float
    """When the request passed, in seconds since the epoch."""

    @property
    def is_token(self) -> bool:
        """Whether it is a SASL token, which has no correlation id."""
        return self.key == SASL_TOKEN


class InFlight:
    """A bounded queue of pending requests. Counts ``unanswered`` requests and ``unmatched`` responses."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending: deque[PendingRequest] = deque()
        self._strays = 0  # unmatched responses

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def lost(self) -> bool:
        """Whether so many responses were unmatched that this cannot be Kafka's protocol."""
        return self._strays >= MAX_STRAYS

    def clear(self) -> None:
        """Drop all requests."""
        self._pending.clear()

    def add(self, request: PendingRequest, counts: Counter[str]) -> None:
        """Append a request; at the limit, drop the oldest one and count it as unanswered.

        Args:
            request: the request.
            counts: the connection's counters.
        """
        if len(self._pending) >= self._limit:
            self._pending.popleft()
            counts["unanswered"] += 1
        self._pending.append(request)

    def take_token(self) -> bool:
        """Remove the oldest request if it is a SASL token; return whether it was one."""
        if not self._pending or not self._pending[0].is_token:
            return False
        self._pending.popleft()
        return True

    def match(self, correlation_id: int, counts: Counter[str]) -> PendingRequest | None:
        """Remove and return the request that a response answers; None if there is none.

        Requests before the match will not be answered any more: they are removed and counted.

        Args:
            correlation_id: the first four bytes of the response.
            counts: the connection's counters.
        """
        pending = self._pending
        if pending and not pending[0].is_token and pending[0].correlation_id == correlation_id:
            return pending.popleft()
        # The last tokens may have no answer, and the limit may have dropped the request.
        index = next(
            (
                i
                for i, each in enumerate(pending)
                if not each.is_token and each.correlation_id == correlation_id
            ),
            None,
        )
        if index is None:
            if pending and pending[0].is_token:
                return pending.popleft()
            counts["unmatched"] += 1
            self._strays += 1
            return None
        self._strays = 0
        for _ in range(index):
            if not pending.popleft().is_token:
                counts["unanswered"] += 1
        return pending.popleft()


__all__ = ["MAX_STRAYS", "SASL_TOKEN", "InFlight", "PendingRequest"]
