"""The owner of one partition: fetched messages, offers, acks, retries, deadlines.

The rules are in :mod:`pixy.engine.consume.offers`; this actor moves messages and keeps the time.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass
from typing import Any

from actors import Actor, ActorRef
from pixy.config.model import Consumer
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.journaling import OwnerJournal
from pixy.engine.consume.long_polls import Answered, Delivery, Poll
from pixy.engine.consume.offers import AckResult, Offer, OfferBook
from pixy.engine.consume.offset_committer import LastKnown, Moved
from pixy.engine.consume.offset_tracker import OffsetTracker, Position
from pixy.engine.journal.buffer import Journal
from pixy.errors import LongPollTimeout, NeverOffered
from pixy.membership import AssignedPartition, Session
from pixy.wire.types import TopicPartition

logger = logging.getLogger("pixy.engine")


@dataclass(frozen=True, slots=True)
class Records:
    """Fetched messages, with the epoch of the assignment (or seek) that they belong to."""

    epoch: int
    records: list[Any]


@dataclass(frozen=True, slots=True)
class Serve:
    """Hand out a message to each of these requests."""

    polls: tuple[Poll, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """A client is done with a message. The reply is None, or the reason why not."""

    offset: int


@dataclass(frozen=True, slots=True)
class CountPending:
    """Ask how many messages were offered and not acknowledged."""


@dataclass(frozen=True, slots=True)
class DrainPartition:
    """Offer nothing more; say :class:`PartitionDrained` when all acks are in, or after ``timeout``."""

    timeout: float


@dataclass(frozen=True, slots=True)
class _Tick:
    pass


@dataclass(frozen=True, slots=True)
class _DrainOver:
    pass


# What the owner tells the group's actor; each carries the epoch of its assignment.


@dataclass(frozen=True, slots=True)
class Ready:
    """The owner can hand out ``messages`` more; ``reborn`` voids what it announced before."""

    partition: TopicPartition
    epoch: int
    messages: int
    reborn: bool = False


@dataclass(frozen=True, slots=True)
class Unserved:
    """Requests for which nothing was left."""

    partition: TopicPartition
    epoch: int
    polls: tuple[Poll, ...]


@dataclass(frozen=True, slots=True)
class PartitionDrained:
    """All that will be acknowledged has been; ``position`` is the last one."""

    partition: TopicPartition
    epoch: int
    position: Position


class Assignment:
    """What outlives a restart of the owner: the start, and what was offered so far."""

    __slots__ = ("lives", "offered_below", "start")

    def __init__(self, start: AssignedPartition) -> None:
        self.start = start
        self.lives = 0
        self.offered_below = 0

    @property
    def partition(self) -> TopicPartition:
        """Topic and partition."""
        return self.start.topic, self.start.partition


class PartitionOwner(Actor):
    """One per assigned partition, child of the group's actor."""

    def __init__(
        self,
        assignment: Assignment,
        group: str,
        group_ref: ActorRef[Any],
        committer: ActorRef[Any],
        session: Session,
        conf: Consumer,
        journal: Journal | None = None,
    ) -> None:
        super().__init__()
        self._journal = journal
        self._notes: OwnerJournal | None = None
        assignment.lives += 1
        self._assignment = assignment
        self._life = assignment.lives
        self._epoch = assignment.start.epoch
        self._partition = assignment.partition
        self._group = group
        self._group_ref = group_ref
        self._committer = committer
        self._session = session
        self._conf = conf
        self._announced = 0
        self._draining = self._was_drained = False
        self._credit = 0
        self._credit_bytes = 0
        self._credited_below = 0
        self._credit_batch = max(1, conf.prefetch_max_messages // 8)
        self._timer_at: float | None = None
        self._book: OfferBook
        self._told: Position

    async def on_start(self) -> None:  # type: ignore[override]
        """First life: begin where the group said. Later: where the committer last knew us."""
        start = self._assignment.start
        position = Position(start.position, self._decode(start.position, start.metadata))
        if self._life > 1:
            known = await self._committer.ask(LastKnown(self._partition), block=False)
            position = known or position
            self._epoch = self._session.next_epoch()
            self._session.seek(self._partition, position.offset, self._epoch)
            self._tell_group(Ready(self._partition, start.epoch, 0, reborn=True))
        self._book = OfferBook(
            OffsetTracker(position.offset, position.ranges),
            max_pending=self._conf.max_pending_messages,
            ack_timeout=self._conf.ack_timeout,
            max_retries=self._conf.max_retries,
            offered_below=self._assignment.offered_below,
        )
        self._told = self._book.position()
        if self._journal is not None:
            self._notes = OwnerJournal(
                self._journal, self._partition, self._group, self._epoch, self._conf.ack_timeout
            )
            self._notes.assigned(position.offset, self._life - 1)
        if start.new and self._life == 1:
            self._committer.tell(Moved(self._partition, self._told, at_once=True), urgent=True)

    def on_receive(self, message: Any) -> Any:
        """See the messages of this module."""
        kind = type(message)
        if kind is Serve:
            self._serve(message.polls)
        elif kind is Answered:
            if message.life == self._life:
                self._answered(message)
        elif kind is Records:
            self._fetched(message)
        elif kind is Ack:
            self._ack(message.offset)
        elif kind is CountPending:
            return self._book.pending
        elif kind is DrainPartition:
            self._drain(message.timeout)
        elif kind is _DrainOver:
            self._drained()
        elif kind is not _Tick:
            return super().on_receive(message)
        self._after()
        return None

    def on_failure(self, *_exc_info: Any) -> None:
        """Requests that were just being served wait for the next life, or another partition."""
        message = self.failed_message
        if type(message) is Serve:
            self._give_up(tuple(poll for poll in message.polls if not poll.reply.done()))

    def on_stop(self) -> None:
        """The assignment is over."""
        if self._notes is not None:
            self._notes.revoked(self._book.position().offset, drained=self._was_drained)

    # -- offers ---------------------------------------------------------------------------------

    def _fetched(self, batch: Records) -> None:
        if batch.epoch != self._epoch:
            return  # fetched before a seek
        skipped, size = self._book.fetched(batch.records)
        self._credit += skipped
        self._credit_bytes += size

    def _serve(self, polls: tuple[Poll, ...]) -> None:
        now = self._now()
        self._announced = max(0, self._announced - len(polls))
        unserved: list[Poll] = []
        for poll in polls:
            if poll.reply.done():
                continue
            if poll.deadline <= now:
                poll.reply.try_fail(LongPollTimeout())
                continue
            offer = self._book.offer(now)
            if offer is None:
                unserved.append(poll)
                continue
            self._note_offered(offer)
            delivery = Delivery(
                offer.record,  # type: ignore[arg-type]
                self._partition[1],
                offer.offset,
                self.actor_ref,
                self._life,
                poll.auto_ack,
            )
            if self._notes is not None:
                self._notes.offered(offer, now)
            if not poll.reply.try_set(delivery):
                self._take_back(offer.offset)
        self._give_up(tuple(unserved))

    def _answered(self, message: Answered) -> None:
        if not message.sent:
            self._take_back(message.offset)
            return
        offer = self._book.pending_offer(message.offset)
        self._book.ack(message.offset)
        if self._notes is not None and offer is not None:
            self._notes.acked(offer, auto=True)

    def _take_back(self, offset: int) -> None:
        offer = self._book.pending_offer(offset)
        if self._notes is not None and offer is not None and offer.out:
            self._notes.returned(offer)
        self._book.give_back(offset)

    def _give_up(self, polls: tuple[Poll, ...]) -> None:
        if polls:
            self._tell_group(Unserved(self._partition, self._assignment.start.epoch, polls))

    def _note_offered(self, offer: Offer) -> None:
        offset = offer.offset
        if offset >= self._credited_below:
            self._credited_below = offset + 1
            self._credit += 1
            self._credit_bytes += len(offer.record)
            if offset >= self._assignment.offered_below:
                self._assignment.offered_below = offset + 1

    def _ack(self, offset: int) -> None:
        reply = self.take_reply()
        offer = self._book.pending_offer(offset)
        result = self._book.ack(offset)
        if self._notes is not None:
            self._notes.answered(offset, offer, result)
        if result is not AckResult.DONE:
            logger.info("%s: bad ack of offset %d: %s", self.path, offset, result.value)
        if result is AckResult.NEVER_OFFERED:
            reply.try_fail(NeverOffered(*self._partition, offset))
        else:
            reply.try_set(None)

    # -- after each message -----------------------------------------------------------------------

    def _after(self) -> None:
        book = self._book
        if self._draining:
            if not book.outstanding(self._now()):
                self._drained()
        else:
            offerable = book.offerable(self._now())
            if offerable > self._announced:
                more = offerable - self._announced
                self._announced = offerable
                self._tell_group(Ready(self._partition, self._assignment.start.epoch, more))
            self._watch_deadline()
        for offer in book.dropped:
            self._log_dropped(offer)
            if self._notes is not None:
                self._notes.dropped(offer)
        book.dropped.clear()
        position = book.position()
        if position != self._told:
            self._told = position
            self._committer.tell(Moved(self._partition, position), urgent=True)
        if self._credit >= self._credit_batch or (self._credit and not book.buffered):
            self._session.credit(self._partition, self._credit, self._credit_bytes)
            self._credit = self._credit_bytes = 0

    def _watch_deadline(self) -> None:
        deadline = self._book.next_deadline()
        if deadline is None or (
            self._timer_at is not None and self._timer_at <= deadline and self.has_timer("deadline")
        ):
            return  # a timer that fires too early just looks again
        self._timer_at = deadline
        self.set_timer("deadline", max(0.0, deadline - self._now()), _Tick())

    def _log_dropped(self, offer: Offer) -> None:
        record: Any = offer.record
        logger.error(
            "%s: too many retries: retryNo=%d, offset=%d, key=%r, msg=%s",
            self.path,
            offer.retries,
            offer.offset,
            record.key(),
            base64.b64encode(record.value() or b"").decode(),
        )

    # -- the end --------------------------------------------------------------------------------

    def _drain(self, timeout: float) -> None:
        self._draining = self._book.closed = True
        self.cancel_timer("deadline")
        self.set_timer("drain", timeout, _DrainOver())

    def _drained(self) -> None:
        if not self._draining:
            return
        self._draining = False
        self._was_drained = True
        self.cancel_timer("drain")
        self._tell_group(
            PartitionDrained(self._partition, self._assignment.start.epoch, self._book.position())
        )

    def _tell_group(self, message: Any) -> None:
        self._group_ref.notify(message, urgent=True)

    def _now(self) -> float:
        return self.system.loop.time()

    def _decode(self, offset: int, metadata: str) -> tuple[tuple[int, int], ...]:
        try:
            return tuple(sparse_acks.decode(offset, metadata))
        except ValueError as error:
            logger.warning("%s: Bad sparse acks %r: %s", self.path, metadata, error)
            return ()


__all__ = [
    "Ack",
    "Assignment",
    "CountPending",
    "DrainPartition",
    "PartitionDrained",
    "PartitionOwner",
    "Ready",
    "Records",
    "Serve",
    "Unserved",
]
