"""The requests of one connection that wait for a response, and how responses are matched with them.

A broker answers in the order of requests, except for Produce with acks=0, which it never answers (and which is
never added here), and for the raw SASL tokens that follow SaslHandshake v0, which have no header.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final, NamedTuple, cast

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
    """The time at which the request passed, in seconds since 1970."""
    queued: float = 0.0
    """Seconds that it waited in the tap before."""

    @property
    def is_token(self) -> bool:
        """True if it is a SASL token, which has no correlation id."""
        return self.key == SASL_TOKEN


class Repeated:
    """The last heartbeat of a connection that the observer has seen whole, and its response."""

    __slots__ = ("at", "first", "key", "request", "response", "version")

    def __init__(self, key: int, version: int, request: bytes, at: float, first: int) -> None:
        self.key, self.version, self.at = key, version, at
        self.first = first
        """The number of the first request with these bytes."""
        self.request = request
        """The request behind its correlation id."""
        self.response: bytes | None = None
        """The response behind its correlation id; None until it has come."""


class Passed(PendingRequest):
    """A request that was forwarded without a look at its body, so its response may be, too."""

    repeats: Repeated | None
    """The heartbeat that it repeats; None if it was left out by sampling."""


class Run:
    """Requests that repeat a heartbeat, one right after the other.

    Args:
        repeats: the heartbeat.
        at: the time at which they passed, in seconds since 1970.
        number: the first one's position among the connection's requests.
        numbers: their correlation ids, four bytes each.
        queued: seconds that they waited in the tap.
    """

    __slots__ = ("at", "number", "numbers", "queued", "repeats")

    is_token = False

    def __init__(
        self, repeats: Repeated, at: float, number: int, numbers: bytes, queued: float = 0.0
    ) -> None:
        self.repeats, self.at, self.number, self.numbers = repeats, at, number, numbers
        self.queued = queued

    def __len__(self) -> int:
        return len(self.numbers) // 4

    @property
    def key(self) -> int:
        """API key."""
        return self.repeats.key

    def first(self) -> Passed:
        """Return the first request alone."""
        correlation_id = int.from_bytes(self.numbers[:4], "big", signed=True)
        made = Passed(
            self.repeats.key, self.repeats.version, correlation_id, self.number, self.at, self.queued
        )
        made.repeats = self.repeats
        return made

    def without(self, count: int) -> Run:
        """Return the run without its first ``count`` requests."""
        return Run(self.repeats, self.at, self.number + count, self.numbers[4 * count :], self.queued)


class InFlight:
    """A bounded queue of pending requests. Counts ``unanswered`` requests and ``unmatched`` responses."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.pending: deque[PendingRequest | Run] = deque()
        """The requests, oldest first."""
        self._more = 0  # requests in runs, without one for each run
        self._strays = 0  # unmatched responses

    def __len__(self) -> int:
        return len(self.pending) + self._more

    @property
    def lost(self) -> bool:
        """True if so many responses were unmatched that this cannot be Kafka's protocol."""
        return self._strays >= MAX_STRAYS

    def clear(self) -> None:
        """Drop all requests."""
        self.pending.clear()
        self._more = 0

    def add(self, request: PendingRequest, counts: Counter[str]) -> None:
        """Append a request; at the limit, drop the oldest one and count it as unanswered.

        Args:
            request: the request.
            counts: the connection's counters.
        """
        self._make_room(1, counts)
        self.pending.append(request)

    def add_run(self, run: Run, counts: Counter[str]) -> None:
        """Append a run of requests, see :meth:`add`."""
        self._make_room(len(run), counts)
        self.pending.append(run)
        self._more += len(run) - 1

    def drop(self, count: int) -> None:
        """Remove the first ``count`` requests of the run at the front."""
        run = self.pending.popleft()
        assert isinstance(run, Run)
        self._more -= min(count, len(run) - 1)
        if count < len(run):
            self.pending.appendleft(run.without(count))

    def split(self) -> None:
        """Take the first request out of the run at the front, if one is there, so that it can be looked at alone."""
        if self.pending and isinstance(run := self.pending[0], Run):
            self.drop(1)
            self.pending.appendleft(run.first())

    def _make_room(self, count: int, counts: Counter[str]) -> None:
        while self.pending and len(self) + count > self._limit:
            self.split()
            self.pending.popleft()
            counts["unanswered"] += 1

    @property
    def _singles(self) -> deque[PendingRequest]:
        return cast("deque[PendingRequest]", self.pending)

    def _split_all(self) -> None:
        found = list(self.pending)
        self.clear()
        for each in found:
            if not isinstance(each, Run):
                self.pending.append(each)
                continue
            left = each
            while len(left):
                self.pending.append(left.first())
                left = left.without(1)

    def take_token(self) -> bool:
        """Remove the oldest request if it is a SASL token; return whether it was one."""
        self.split()
        if not self.pending or not self.pending[0].is_token:
            return False
        self.pending.popleft()
        return True

    def match(self, correlation_id: int, counts: Counter[str]) -> PendingRequest | None:
        """Remove and return the request that a response answers; None if there is none.

        Requests before the match will not be answered any more: they are removed and counted.

        Args:
            correlation_id: the first four bytes of the response.
            counts: the connection's counters.
        """
        self.split()
        pending = self._singles
        if pending and not pending[0].is_token and pending[0].correlation_id == correlation_id:
            return pending.popleft()
        self._split_all()
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


__all__ = ["MAX_STRAYS", "SASL_TOKEN", "InFlight", "Passed", "PendingRequest", "Repeated", "Run"]
