"""The owner of one partition: it moves messages between the group and the partition's offers.

:mod:`pixy.engine.consume.offers` holds the rules: what is offered next, acks, retries. This actor feeds
it with messages, acks and the time, and reports to the group and the committer.
"""

from __future__ import annotations

import base64
import logging
from dataclasses import dataclass
from typing import Any

from actors import ActorRef, handles
from pixy.config.model import Consumer
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.assignment import Assignment
from pixy.engine.consume.journaling import OwnerJournal
from pixy.engine.consume.long_polls import Answered, Delivery, Poll
from pixy.engine.consume.offers import AckResult, Offer, OfferBook
from pixy.engine.consume.offset_committer import Moved, OffsetCommitter
from pixy.engine.consume.offset_tracker import OffsetTracker, Position, resume_at
from pixy.engine.consume.partition_messages import (
    Ack,
    Announce,
    DrainPartition,
    EndReached,
    PartitionDrained,
    Ready,
    Records,
    Serve,
    TakeBack,
    Unserved,
)
from pixy.engine.consume.views import (
    MessageView,
    OffersView,
    ViewMessage,
    ViewOffers,
    view_message,
    view_offers,
)
from pixy.engine.counters import ConsumeCounters
from pixy.engine.journal.buffer import Journal
from pixy.engine.restarting import Restartable
from pixy.errors import IllegalState, LongPollTimeout, NeverOffered, PartitionLost
from pixy.membership import Session

logger = logging.getLogger("pixy.engine")

_SHOWN = 100
"""The most ranges of acknowledged messages in one line of the log."""


@dataclass(frozen=True, slots=True)
class _DeadlineDue:
    """An offer may have expired."""


@dataclass(frozen=True, slots=True)
class _DrainTimeout:
    """The drain has waited for acks long enough."""


class PartitionOwner(Restartable):
    """One per assigned partition, child of the group's actor.

    Args:
        assignment: outlives this actor's restarts.
        group: the group's name.
        group_ref: gets :class:`Ready`, :class:`Unserved` and :class:`PartitionDrained`.
        committer: gets each new position.
        session: fetches; it gets credit for the messages that were let go of.
        conf: the limits and timeouts.
        journal: notes what happens to each message; None for no journal.
        counters: of the group and the topic.
    """

    def __init__(
        self,
        assignment: Assignment,
        group: str,
        group_ref: ActorRef[Any],
        committer: ActorRef[OffsetCommitter],
        session: Session,
        conf: Consumer,
        journal: Journal | None = None,
        counters: ConsumeCounters | None = None,
    ) -> None:
        super().__init__()
        self._counters = counters or ConsumeCounters()
        self._journal = journal
        self._notes: OwnerJournal | None = None
        assignment.lives += 1
        self._assignment = assignment
        self._life = assignment.lives
        self._fetch_epoch = assignment.epoch
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
        self._reported: Position

    def on_start(self) -> None:
        """Begin at the assignment's position; after a restart, where the life before was."""
        start = self._assignment.start
        position = self._assignment.position
        if position is None:
            base = start.position if start.base is None else start.base
            position = resume_at(start.position, base, self._acknowledged(base))
        if self._life > 1:
            self._fetch_epoch = self._session.next_epoch()
            self._session.seek(self._partition, position.offset, self._fetch_epoch)
            self._tell_group(Ready(self._partition, start.epoch, 0, restarted=True))
        self._book = OfferBook(
            OffsetTracker(position.offset, position.ranges),
            max_pending=self._conf.max_pending_messages,
            max_pending_bytes=self._conf.max_pending_bytes,
            ack_timeout=self._conf.ack_timeout,
            max_retries=self._conf.max_retries,
            offered_below=self._assignment.offered_below,
        )
        self._reported = self._book.position()
        self._assignment.pending = 0
        if self._journal is not None:
            self._notes = OwnerJournal(
                self._journal, self._partition, self._group, self._fetch_epoch, self._conf.ack_timeout
            )
            self._notes.assigned(position.offset, self._life - 1)
        if start.new and self._life == 1:
            self._assignment.position = self._reported
            self._committer.tell(
                Moved(self._partition, start.epoch, self._reported, at_once=True), urgent=True
            )

    def on_receive(self, message: Any) -> Any:
        """Handle the message, then report what it changed."""
        reply = super().on_receive(message)
        self._report()
        return reply

    def on_failure(self, *_exc_info: Any) -> None:
        """Return the requests that were being served: the next life or another partition serves them.

        No further ones come: the next life begins after a pause, announces anew what it has, and a request that lies here
        until then could time out.
        """
        self._tell_group(Ready(self._partition, self._assignment.epoch, 0, restarted=True))
        message = self.failed_message
        if type(message) is Serve:
            self._return_polls(tuple(poll for poll in message.polls if not poll.reply.done()))

    def on_stop(self) -> None:
        """Note the end of the assignment."""
        if self._notes is not None:
            self._notes.revoked(self._book.position().offset, drained=self._was_drained)

    # -- offers -----------------------------------------------------------------------------------

    @handles(Records)
    def _fetched(self, batch: Records) -> None:
        if batch.epoch != self._fetch_epoch:
            return  # of an earlier assignment, or fetched before a seek
        self._book.fetched(batch.records)

    @handles(EndReached)
    def _end_reached(self, message: EndReached) -> None:
        if message.epoch == self._fetch_epoch:
            self._book.end_reached(message.offset)

    @handles(Serve)
    def _serve(self, message: Serve) -> None:
        now = self._now()
        self._announced = max(0, self._announced - len(message.polls))
        unserved: list[Poll] = []
        for poll in message.polls:
            if poll.reply.done():
                continue
            if poll.deadline <= now:
                poll.reply.try_fail(LongPollTimeout())
                continue
            offer = self._book.offer(now, poll.client)
            if offer is None:
                unserved.append(poll)
                continue
            self._count_offered(offer)
            delivery = Delivery(
                offer.record,  # type: ignore[arg-type]
                self._partition[1],
                offer.offset,
                self.actor_ref,
                self._life,
                offer.retries,
                poll.auto_ack,
            )
            if self._notes is not None:
                self._notes.offered(offer, now)
            if not poll.reply.try_set(delivery):
                self._take_back(offer.offset, offer.retries)
        self._return_polls(tuple(unserved))

    @handles(Answered)
    def _answered(self, message: Answered) -> None:
        if self._assignment.released:
            return  # too late: the group has taken the last position
        if not message.sent:
            if message.life == self._life:  # this life offers the messages of the earlier ones anyway
                self._take_back(message.offset, message.number)
            return
        offer = self._book.pending_offer(message.offset)
        if self._book.ack(message.offset) is AckResult.DONE:
            self._counters.acked += 1
        if self._notes is not None and offer is not None:
            self._notes.acked(offer, auto=True)

    def _take_back(self, offset: int, number: int) -> None:
        offer = self._book.pending_offer(offset)
        if self._book.give_back(offset, number):
            self._counters.returned += 1
            if self._notes is not None and offer is not None:
                self._notes.returned(offer)

    def _return_polls(self, polls: tuple[Poll, ...]) -> None:
        if polls:
            self._tell_group(Unserved(self._partition, polls))

    def _count_offered(self, offer: Offer) -> None:
        offset = offer.offset
        self._counters.offered += 1
        if offer.retries:
            self._counters.repeated += 1
        if offset >= self._credited_below:
            self._credited_below = offset + 1
            self._credit += 1
            self._credit_bytes += len(offer.record)
            if offset >= self._assignment.offered_below:
                self._assignment.offered_below = offset + 1

    @handles(Ack)
    def _ack(self, request: Ack) -> None:
        offset = request.offset
        reply = self.take_reply()
        if self._assignment.released:
            self._counters.refused += 1
            if self._notes is not None:
                self._notes.not_owned(offset)
            reply.try_fail(PartitionLost(self._group, *self._partition))
            return
        offer = self._book.pending_offer(offset)
        result = self._book.ack(offset)
        if self._notes is not None:
            self._notes.answered(offset, offer, result)
        if result is AckResult.DONE:
            self._counters.acked += 1
        else:
            logger.info("%s: bad ack of offset %d: %s", self.path, offset, result.value)
        if result is AckResult.NEVER_OFFERED:
            self._counters.refused += 1
            reply.try_fail(NeverOffered(*self._partition, offset))
        else:
            reply.try_set(None)

    @handles(TakeBack)
    def _take_from_client(self, request: TakeBack) -> None:
        reply, offset = self.take_reply(), request.offset
        offer = self._book.pending_offer(offset)
        if self._assignment.released:
            reply.try_fail(PartitionLost(self._group, *self._partition))
        elif offer is not None and self._book.take_back(offset):
            reply.try_set(offer.retries + 1)
        else:
            name = "{}/{}/{}".format(*self._partition, offset)
            state = "waits to be offered again" if offer is not None else "is not offered, or acknowledged"
            reply.try_fail(IllegalState(f"no client has {name}: it {state}"))

    @handles(ViewOffers)
    def _view(self, query: ViewOffers) -> OffersView:
        return view_offers(self._book, self._conf.ack_timeout, query)

    @handles(ViewMessage)
    def _view_message(self, query: ViewMessage) -> MessageView:
        own = self._assignment
        return view_message(self._book, self._conf.ack_timeout, query.offset, own.epoch, own.since)

    @handles(Announce)
    def _announce(self, _message: Announce) -> None:
        self._announced = 0  # the report that follows does it

    # -- after each message -----------------------------------------------------------------------

    def _report(self) -> None:
        """Tell the group, the committer, the log and the session what has changed."""
        book = self._book
        now = self._now()
        offerable = book.offerable(now)  # may give messages up, and so move the position
        position = book.position()
        moved = position != self._reported
        self._assignment.pending = book.pending
        if moved:  # noted first: a failure below must not lose an ack that was answered
            self._reported = self._assignment.position = position
        if self._draining:
            if not book.outstanding(now):
                self._drained()
        else:
            if offerable > self._announced:
                more = offerable - self._announced
                self._announced = offerable
                self._tell_group(Ready(self._partition, self._assignment.epoch, more))
            self._watch_deadline()
        for offer in book.dropped:
            self._counters.given_up += 1
            self._log_dropped(offer)
            if self._notes is not None:
                self._notes.dropped(offer)
        book.dropped.clear()
        if moved:
            self._committer.tell(Moved(self._partition, self._assignment.epoch, position), urgent=True)
        if book.skipped:
            self._credit += book.skipped
            self._credit_bytes += book.skipped_bytes
            book.skipped = book.skipped_bytes = 0
        if self._credit >= self._credit_batch or (self._credit and not book.buffered):
            self._session.credit(self._partition, self._credit, self._credit_bytes)
            self._credit = self._credit_bytes = 0

    def _watch_deadline(self) -> None:
        deadline = self._book.next_deadline()
        if deadline is None or (
            self._timer_at is not None and self._timer_at <= deadline and self.has_timer("deadline")
        ):
            return  # a timer that fires too early only checks again
        self._timer_at = deadline
        self.set_timer("deadline", max(0.0, deadline - self._now()), _DeadlineDue())

    @handles(_DeadlineDue)
    def _deadline_due(self, _message: _DeadlineDue) -> None:
        """Do nothing: the report that follows each message finds the expired offers."""

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

    # -- draining ---------------------------------------------------------------------------------

    @handles(DrainPartition)
    def _drain(self, message: DrainPartition) -> None:
        self._draining = self._book.closed = True
        self.cancel_timer("deadline")
        self.set_timer("drain", message.timeout, _DrainTimeout())

    @handles(_DrainTimeout)
    def _drain_timeout(self, _message: _DrainTimeout) -> None:
        if self._draining:
            self._drained()

    def _drained(self) -> None:
        self._draining = False
        self._was_drained = True
        self.cancel_timer("drain")
        self._tell_group(PartitionDrained(self._partition, self._assignment.epoch, self._book.position()))

    def _tell_group(self, message: Any) -> None:
        self._group_ref.notify(message, urgent=True)

    def _now(self) -> float:
        return self.system.loop.time()

    def _acknowledged(self, offset: int) -> list[sparse_acks.Range]:
        start = self._assignment.start
        try:
            ranges = sparse_acks.acknowledged(offset, start.metadata, start.end)
        except ValueError as error:
            logger.warning("%s: Bad sparse acks %r: %s", self.path, start.metadata, error)
            return []
        if ranges and self._life == 1:
            shown = ", ".join(f"{first}-{stop - 1}" for first, stop in ranges[:_SHOWN])
            more = f" and {len(ranges) - _SHOWN} more" if len(ranges) > _SHOWN else ""
            logger.info("%s: acknowledged, so not delivered: offsets %s%s", self.path, shown, more)
        return ranges


__all__ = ["PartitionOwner"]
