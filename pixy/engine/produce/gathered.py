"""Messages that a topic's producer has taken and not handed over: their order, their bounds, and how long they may wait.

This module has no clock and does no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from pixy.config.model import Producer
from pixy.engine.produce.pending_records import PendingBatch, PendingMessage
from pixy.errors import TooManyRequests
from pixy.kafka.settings import message_timeout

Pending = PendingMessage | PendingBatch

_order = attrgetter("order")


class Gathered:
    """Messages and batches in the order in which they were taken.

    A batch that was handed over in part is one of them until the client has all of it.

    Args:
        conf: the configuration's ``producer``.

    Attributes:
        items: the messages and batches. Whoever removes some from the front calls :meth:`recount` afterwards.
        bytes: of their keys, values and headers.
        newest: the ``order`` of what was taken last; 0 before the first.
    """

    __slots__ = ("_most", "_most_bytes", "_patience", "bytes", "items", "newest")

    def __init__(self, conf: Producer) -> None:
        self._most = conf.channel_buffer_size
        self._most_bytes = conf.buffer_max_bytes
        self._patience = message_timeout(conf)
        self.items: list[Pending] = []
        self.bytes = self.newest = 0

    # -- in and out -------------------------------------------------------------------------------

    def refusal(self) -> TooManyRequests | None:
        """Return why nothing more is taken; None if there is room.

        The bounds are checked before a batch comes, not with it: they never split one.
        """
        if len(self.items) >= self._most:
            return TooManyRequests("producer.channel_buffer_size")
        if self.bytes >= self._most_bytes:
            return TooManyRequests("producer.buffer_max_bytes")
        return None

    @property
    def roomy(self) -> bool:
        """Whether what comes in the next turns of the loop is far from being refused."""
        return len(self.items) < self._most // 2 and self.bytes < self._most_bytes // 2

    def add(self, pending: Pending) -> int:
        """Take a message or a batch. Return how many are here now."""
        items = self.items
        items.append(pending)
        self.bytes += pending.size
        self.newest = pending.order
        return len(items)

    def put_back(self, pending: Iterable[Pending]) -> None:
        """Take what was handed over and came back, in front of what came later."""
        self.items = sorted([*pending, *self.items], key=_order)
        self.recount()

    def recount(self) -> None:
        """Add up the bytes."""
        self.bytes = sum([pending.size for pending in self.items])

    # -- parts of batches -------------------------------------------------------------------------

    def parts(self) -> int:
        """Return how many batches were handed over in part."""
        return sum([isinstance(each, PendingBatch) and each.sent > 0 for each in self.items])

    def unsent(self) -> int:
        """Return how many messages were not handed over."""
        return sum(
            [len(each.records) - each.sent if isinstance(each, PendingBatch) else 1 for each in self.items]
        )

    # -- give up ----------------------------------------------------------------------------------

    def take_all(self) -> list[Pending]:
        """Remove everything."""
        return self._take(lambda _each: True)

    def take_until(self, order: int) -> list[Pending]:
        """Remove what came before or with ``order``."""
        return self._take(lambda each: each.order <= order)

    def take_awaited(self) -> list[Pending]:
        """Remove what has a caller."""
        return self._take(lambda each: each.reply is not None)

    def take_expired(self, now: float) -> list[Pending]:
        """Remove what has waited for its topic as long as it may, at the event-loop time ``now``.

        What came back is in front of what came later, though it may wait longer.
        """
        return self._take(lambda each: self.has_expired(each, now))

    def _take(self, goes: Callable[[Pending], bool]) -> list[Pending]:
        taken = list[Pending]()
        kept = list[Pending]()
        for each in self.items:
            (taken if goes(each) else kept).append(each)
        self.items = kept
        self.recount()
        return taken

    # -- the time that a message may wait for its topic -------------------------------------------

    def begin_to_wait(self, now: float) -> None:
        """Note that the topic is not known from now on, for what has not begun to wait before."""
        for pending in self.items:
            pending.waits_since = pending.waits_since or now

    def has_expired(self, pending: Pending, now: float) -> bool:
        """Return whether a message that has begun to wait has waited as long as it may."""
        return pending.waits_since + self._patience <= now

    def expires_at(self) -> float | None:
        """Return when the first of them has waited as long as it may, in event-loop time; None if nothing is here."""
        if not self.items:
            return None
        return min([each.waits_since for each in self.items]) + self._patience
