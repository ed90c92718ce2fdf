"""The offers of one partition: the next message to offer, acks, retries, limits.

Pure: messages, acks and the time go in; messages come out. The partition's owner moves them.

The order is the original's: messages that were given back, then the one in hand, then expired offers
by offset, then fresh messages. ``max_pending`` is compared before a fresh message is taken in hand, so
``max_pending + 1`` messages can be pending, and ``max_pending_bytes`` can be exceeded by one message. A
message that was given back still counts as pending; retries are never held back.
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


_SLACK = 64
"""Stale deadlines that are not worth a clean-up."""


class AckResult(enum.Enum):
    """The outcome of an ack."""

    DONE = "done"
    DUPLICATE = "duplicate"
    NEVER_OFFERED = "never offered"


class Offer:
    """A message that a client has, or that waits to be offered."""

    __slots__ = ("client", "deadline", "first", "offset", "out", "record", "retries", "timestamp")

    def __init__(self, offset: int, record: Record) -> None:
        self.offset = offset
        self.record = record
        self.retries = -1
        """The number of times that it was offered again; -1 before the first offer."""
        self.deadline = 0.0
        self.out = False
        """True if a client has it now."""
        self.client = ""
        """Who got it last."""
        self.first = 0.0
        """When it was offered first."""
        self.timestamp = -1
        """The message's own timestamp in milliseconds; set by the journal when the message is offered."""


class OfferBook:
    """The offers of one partition. All times are seconds of one monotonic clock.

    Args:
        tracker: knows which offsets are done.
        max_pending: the limit of pending messages.
        max_pending_bytes: the limit of their keys and values together.
        ack_timeout: seconds after which an offer expires.
        max_retries: how often a message is offered again before it is given up; -1 means no limit.
        offered_below: an earlier life of the owner may have offered offsets below this one; their acks count.
    """

    def __init__(
        self,
        tracker: OffsetTracker,
        *,
        max_pending: int,
        max_pending_bytes: int,
        ack_timeout: float,
        max_retries: int,
        offered_below: int = 0,
    ) -> None:
        self.tracker = tracker
        self.closed = False
        """Set to make no more offers; acks are still taken."""
        self._max_pending = max_pending
        self._max_bytes = max_pending_bytes
        self._ack_timeout = ack_timeout
        self._max_retries = max_retries
        self._offered_below = offered_below
        self._next_offset = tracker.position
        self._fresh: deque[Offer] = deque()
        self._fresh_bytes = 0
        self._offers: dict[int, Offer] = {}
        self._bytes = 0  # of their messages
        self._unseen = 0  # how many of them were given back by their first client
        self._hand: Offer | None = None
        self._returned: list[int] = []
        self._expired: list[int] = []
        self._deadlines: list[tuple[float, int]] = []
        self.dropped: list[Offer] = []
        """Messages that were given up after ``max_retries``; the caller logs and removes them."""
        self.skipped = self.skipped_bytes = 0
        """Fetched messages that will not be offered, because they were done before; the caller resets both."""

    # -- in -------------------------------------------------------------------------------------

    def fetched(self, records: Sequence[Record]) -> None:
        """Take fetched messages."""
        tracker, fresh = self.tracker, self._fresh
        for record in records:
            offset = record.offset()
            assert offset is not None
            if offset > self._next_offset:
                # No message will ever come from a gap: it is compaction, retention or a control batch.
                tracker.ack(self._next_offset, offset)
            self._next_offset = offset + 1
            if tracker.is_acked(offset):
                self._skip(record)
            else:
                fresh.append(Offer(offset, record))
                self._fresh_bytes += len(record)

    def _skip(self, record: Record) -> None:
        self.skipped += 1
        self.skipped_bytes += len(record)

    def end_reached(self, end: int) -> None:
        """Count the gap up to ``end`` as done: markers of transactions, or messages that were removed."""
        if end > self._next_offset:
            self.tracker.ack(self._next_offset, end)
            self._next_offset = end

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
                self._skip(self._hand.record)
                self._hand = None
            self.tracker.ack(offset)
            return AckResult.DONE
        return AckResult.NEVER_OFFERED

    def give_back(self, offset: int, number: int) -> bool:
        """Take a message back that its client did not get: it is the next one offered, and no retry.

        Args:
            offset: of the message.
            number: which of its offers, counted by ``Offer.retries``. The offer may have expired meanwhile,
                and another client may have the message: then nothing changes.

        Returns:
            Whether the message came back.
        """
        offer = self._offers.get(offset)
        if offer is None or not offer.out or offer.retries != number:
            return False
        offer.out = False
        offer.retries -= 1
        self._unseen += offer.retries < 0
        heapq.heappush(self._returned, offset)
        return True

    def take_back(self, offset: int) -> bool:
        """Take a message from the client that has it: it is the next one offered, whatever ``max_retries`` says, and its attempts count on.

        An ack for the offer that ends here counts like any late one.

        Args:
            offset: of the message.

        Returns:
            Whether a client had it.
        """
        offer = self._offers.get(offset)
        if offer is None or not offer.out:
            return False
        offer.out = False
        heapq.heappush(self._returned, offset)
        return True

    def _drop(self, offer: Offer) -> None:
        del self._offers[offer.offset]
        self._bytes -= len(offer.record)
        self._unseen -= offer.retries < 0
        if self._hand is offer:
            self._hand = None

    # -- out ------------------------------------------------------------------------------------

    def offerable(self, now: float) -> int:
        """Count the calls of :meth:`offer` that would return a message at this moment."""
        if self.closed:
            return 0
        self._expire(now)
        self._fill()
        return (
            sum(1 for at in self._returned if self._waits(at))
            + (self._hand is not None)
            + sum(1 for at in self._expired if self._waits(at))
            + min(len(self._fresh), self._room())
        )

    def _room(self) -> int:
        """Count the fresh messages that can be offered after the one in hand."""
        pending, size = len(self._offers), self._bytes
        if self._hand is not None:
            pending += 1
            size += len(self._hand.record)
        if pending > self._max_pending or size > self._max_bytes:
            return 0
        if size + self._fresh_bytes > self._max_bytes:
            return 1  # at least; the next one is counted once this one is offered
        return self._max_pending + 1 - pending

    def offer(self, now: float, client: str = "") -> Offer | None:
        """Offer the next message, if there is one.

        Args:
            now: the time.
            client: who gets it.
        """
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
        offer.client = client
        offer.deadline = now + self._ack_timeout
        if offer.offset not in self._offers:
            self._offers[offer.offset] = offer
            self._bytes += len(offer.record)
            offer.first = now
        heapq.heappush(self._deadlines, (offer.deadline, offer.offset))
        if len(self._deadlines) > 2 * len(self._offers) + _SLACK:
            self._forget_stale_deadlines()
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
        while self._fresh and len(self._offers) <= self._max_pending and self._bytes <= self._max_bytes:
            offer = self._fresh.popleft()
            self._fresh_bytes -= len(offer.record)
            if not self.tracker.is_acked(offer.offset):
                self._hand = offer
                return
            self._skip(offer.record)

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

    def _forget_stale_deadlines(self) -> None:
        """Drop the deadlines of offers that are done: behind one slow client they would add up for ``ack_timeout``.

        At most every other offer is pending then, so the cost per offer is constant.
        """
        self._deadlines = [(offer.deadline, offer.offset) for offer in self._offers.values() if offer.out]
        heapq.heapify(self._deadlines)

    # -- state ------------------------------------------------------------------------------------

    def pending_offer(self, offset: int) -> Offer | None:
        """Return the offer of this offset, if it was made and is not done."""
        return self._offers.get(offset)

    def unacked(self) -> list[Offer]:
        """Return the offers that were made and are not done, by offset. Those of a crowded partition are some hundreds."""
        return [self._offers[offset] for offset in sorted(self._offers)]

    @property
    def next_offset(self) -> int:
        """The offset after the last fetched message."""
        return self._next_offset

    @property
    def full(self) -> bool:
        """True if fresh messages are held back until some are acknowledged."""
        return bool(self._fresh) and not self._room()

    @property
    def pending(self) -> int:
        """The number of messages that a client has seen and nobody has acknowledged."""
        return len(self._offers) - self._unseen

    def outstanding(self, now: float) -> int:
        """Count the messages that a client has and may still acknowledge in time."""
        return sum(1 for offer in self._offers.values() if offer.out and offer.deadline > now)

    @property
    def buffered(self) -> int:
        """The number of fetched messages that were never offered and will be."""
        return len(self._fresh) + (self._hand is not None and self._hand.retries < 0)

    def next_deadline(self) -> float | None:
        """Return the time at which the next offer expires; None if no client has a message."""
        deadlines = self._deadlines
        while deadlines:
            deadline, offset = deadlines[0]
            offer = self._offers.get(offset)
            if offer is not None and offer.out and offer.deadline == deadline:
                return deadline
            heapq.heappop(deadlines)
        return None

    def position(self) -> Position:
        """Return the position that may be committed now."""
        return self.tracker.snapshot()
