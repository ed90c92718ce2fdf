"""The offers of one partition: the next message to offer, acks, retries, limits.

Pure: messages, acks and the time go in; messages come out. The partition's owner moves them.

The order is the original's: messages that were given back, then the one in hand, then expired offers
by offset, then fresh messages. ``max_pending`` is compared before a fresh message is taken in hand, so
``max_pending + 1`` messages can be pending. A message that was given back still counts as pending;
retries are never held back.
"""

from __future__ import annotations

import enum
import heapq
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from pixy.engine.consume.offset_tracker import OffsetTracker, Position


class Record(Protocol):
    """The part of a fetched message that is needed here (confluent-kafka's ``Message`` fits)."""

    def offset(self) -> int | None: ...
    def __len__(self) -> int: ...


class AckResult(enum.Enum):
    """The outcome of an ack."""

    DONE = "done"
    DUPLICATE = "duplicate"
    NEVER_OFFERED = "never offered"


class Offer:
    """A message that a client has, or that waits to be offered."""

    __slots__ = ("deadline", "offset", "out", "record", "retries", "timestamp")

    def __init__(self, offset: int, record: Record) -> None:
        self.offset = offset
        self.record = record
        self.retries = -1
        """How often it was offered again; -1 before the first offer."""
        self.deadline = 0.0
        self.out = False
        """Whether a client has it now."""
        self.timestamp = -1
        """The message's own timestamp in milliseconds; set by the journal when the message is offered."""


class OfferBook:
    """The offers of one partition. All times are seconds of one monotonic clock.

    Args:
        tracker: knows which offsets are done.
        max_pending: the limit of pending messages.
        ack_timeout: seconds after which an offer expires.
        max_retries: how often a message is offered again before it is given up; -1 means no limit.
        offered_below: an earlier life of the owner may have offered offsets below this one; their acks count.
    """

    def __init__(
        self,
        tracker: OffsetTracker,
        *,
        max_pending: int,
        ack_timeout: float,
        max_retries: int,
        offered_below: int = 0,
    ) -> None:
        self.tracker = tracker
        self.closed = False
        """Set to make no more offers; acks are still taken."""
        self._max_pending = max_pending
        self._ack_timeout = ack_timeout
        self._max_retries = max_retries
        self._offered_below = offered_below
        self._next_offset = tracker.position
        self._fresh: deque[Offer] = deque()
        self._offers: dict[int, Offer] = {}
        self._unseen = 0  # how many of them were given back by their first client
        self._hand: Offer | None = None
        self._returned: list[int] = []
        self._expired: list[int] = []
        self._deadlines: list[tuple[float, int]] = []
        self.dropped: list[Offer] = []
        """Messages that were given up after ``max_retries``; the caller logs and removes them."""

    # -- in -------------------------------------------------------------------------------------

    def fetched(self, records: Sequence[Record]) -> tuple[int, int]:
        """Take fetched messages; return the number and the bytes of those that are done already."""
        skipped = skipped_bytes = 0
        tracker, fresh = self.tracker, self._fresh
        for record in records:
            offset = record.offset()
            assert offset is not None
            if offset > self._next_offset:
                # No message will ever come from a gap: it is compaction, retention or a control batch.
                tracker.ack(self._next_offset, offset)
            self._next_offset = offset + 1
            if tracker.is_acked(offset):
                skipped += 1
                skipped_bytes += len(record)
            else:
                fresh.append(Offer(offset, record))
        return skipped, skipped_bytes

    def ack(self, offset: int) -> AckResult:
        """Mark a message as done."""
        offer = self._offers.get(offset)
        if offer is not None:
            self._drop(offer)
            self.tracker.ack(offset)
            return AckResult.DONE
        if self.tracker.is_acked(offset):
            return AckResult.DUPLICATE
        if offset < self._offered_below:
            if self._hand is not None and self._hand.offset == offset:
                self._hand = None
            self.tracker.ack(offset)
            return AckResult.DONE
        return AckResult.NEVER_OFFERED

    def give_back(self, offset: int) -> None:
        """Take a message back that its client did not get: it is the next one offered, and no retry."""
        offer = self._offers.get(offset)
        if offer is None or not offer.out:
            return
        offer.out = False
        offer.retries -= 1
        self._unseen += offer.retries < 0
        heapq.heappush(self._returned, offset)

    def _drop(self, offer: Offer) -> None:
        del self._offers[offer.offset]
        self._unseen -= offer.retries < 0
        if self._hand is offer:
            self._hand = None

    # -- out ------------------------------------------------------------------------------------

    def offerable(self, now: float) -> int:
        """How many calls of :meth:`offer` would return a message at this moment."""
        if self.closed:
            return 0
        self._expire(now)
        self._fill()
        in_hand = 1 if self._hand is not None else 0
        room = max(0, self._max_pending + 1 - len(self._offers) - in_hand)
        return (
            sum(1 for at in self._returned if self._waits(at))
            + in_hand
            + sum(1 for at in self._expired if self._waits(at))
            + min(len(self._fresh), room)
        )

    def offer(self, now: float) -> Offer | None:
        """Offer the next message, if there is one."""
        if self.closed:
            return None
        self._expire(now)
        offer = self._pop_returned()
        if offer is None:
            self._fill()
            offer, self._hand = self._hand, None
        if offer is None:
            return None
        self._unseen -= offer.offset in self._offers and offer.retries < 0
        offer.retries += 1
        offer.out = True
        offer.deadline = now + self._ack_timeout
        self._offers[offer.offset] = offer
        heapq.heappush(self._deadlines, (offer.deadline, offer.offset))
        self._expire(now)
        self._fill()
        return offer

    def _pop_returned(self) -> Offer | None:
        while self._returned:
            offset = heapq.heappop(self._returned)
            if self._waits(offset):
                return self._offers[offset]
        return None

    def _waits(self, offset: int) -> bool:
        offer = self._offers.get(offset)
        return offer is not None and not offer.out

    def _fill(self) -> None:
        """Take a message in hand: an expired offer, else a fresh message if the limit allows it."""
        if self._hand is not None:
            return
        while self._expired:
            offer = self._offers.get(heapq.heappop(self._expired))
            if offer is not None and not offer.out:
                self._hand = offer
                return
        while self._fresh and len(self._offers) <= self._max_pending:
            offer = self._fresh.popleft()
            if not self.tracker.is_acked(offer.offset):
                self._hand = offer
                return

    def _expire(self, now: float) -> None:
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            deadline, offset = heapq.heappop(deadlines)
            offer = self._offers.get(offset)
            if offer is None or not offer.out or offer.deadline != deadline:
                continue  # acked, given back, or offered again since
            offer.out = False
            if 0 <= self._max_retries <= offer.retries:
                self._drop(offer)
                self.tracker.ack(offset)
                self.dropped.append(offer)
            else:
                heapq.heappush(self._expired, offset)

    # -- state ------------------------------------------------------------------------------------

    def pending_offer(self, offset: int) -> Offer | None:
        """The offer of this offset, if it was made and is not done."""
        return self._offers.get(offset)

    @property
    def pending(self) -> int:
        """How many messages a client has seen and nobody has acknowledged."""
        return len(self._offers) - self._unseen

    def outstanding(self, now: float) -> int:
        """How many messages a client has and may still acknowledge in time."""
        return sum(1 for offer in self._offers.values() if offer.out and offer.deadline > now)

    @property
    def buffered(self) -> int:
        """How many fetched messages were never offered."""
        return len(self._fresh) + (self._hand is not None and self._hand.retries < 0)

    def next_deadline(self) -> float | None:
        """The time at which the next offer expires; None if no client has a message."""
        deadlines = self._deadlines
        while deadlines:
            deadline, offset = deadlines[0]
            offer = self._offers.get(offset)
            if offer is not None and offer.out and offer.deadline == deadline:
                return deadline
            heapq.heappop(deadlines)
        return None

    def position(self) -> Position:
        """The position that may be committed now."""
        return self.tracker.snapshot()
