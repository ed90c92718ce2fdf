"""The journal entries of a partition owner."""

from __future__ import annotations

from pixy.engine.consume.offers import AckResult, Offer
from pixy.engine.journal.buffer import AUTO, Journal, Kind, Refusal, Stream
from pixy.wire.types import TopicPartition

# Plain numbers: comparing a member of an enumeration costs 0.1 microseconds.
_OFFERED, _RETURNED, _ACKED, _DROPPED = (
    int(kind) for kind in (Kind.OFFERED, Kind.RETURNED, Kind.ACKED, Kind.DROPPED)
)
_REFUSED = {
    AckResult.DUPLICATE: Refusal.DUPLICATE,
    AckResult.NEVER_OFFERED: Refusal.NEVER_OFFERED,
}


class OwnerJournal:
    """Adds the events of one life of an owner to the journal, each with the epoch of its assignment.

    Args:
        journal: the cluster's journal.
        partition: the owner's partition.
        group: the group's name.
        epoch: the owner's fetch epoch; the journal stores it as ``generation``.
        ack_timeout: seconds from an offer to its deadline.
    """

    __slots__ = ("_ack_timeout", "_journal", "_stream")

    def __init__(
        self,
        journal: Journal,
        partition: TopicPartition,
        group: str,
        epoch: int,
        ack_timeout: float,
    ) -> None:
        self._journal = journal
        self._ack_timeout = ack_timeout
        self._stream = Stream(*partition, group, epoch)

    def assigned(self, position: int, restarts: int) -> None:
        """Add that the owner begins.

        Args:
            position: the offset at which it begins.
            restarts: owners that the assignment had before; the journal stores it as ``attempt``.
        """
        journal = self._journal
        journal.add(int(Kind.ASSIGNED), journal.clock(), self._stream, position, restarts)

    def revoked(self, position: int, *, drained: bool) -> None:
        """Add that the assignment ends.

        Args:
            position: the offset that the owner has reached.
            drained: the owner has told the group its position at the end of a drain.
        """
        journal = self._journal
        journal.add(int(Kind.REVOKED), journal.clock(), self._stream, position, code=0 if drained else 1)

    def offered(self, offer: Offer, now: float) -> None:
        """Add that a message was offered to a request.

        Args:
            offer: gets its record's timestamp, for the events that follow.
            now: event-loop time, in seconds.
        """
        journal, record = self._journal, offer.record
        timestamp = offer.timestamp = record.timestamp()[1]  # type: ignore[attr-defined]
        took = -1.0 if timestamp < 0 else max(0.0, now + journal.shift - timestamp / 1000)
        journal.put(
            (_OFFERED, now, self._stream, offer.offset, offer.retries, timestamp, took, 0, 0, offer.client)
        )

    def returned(self, offer: Offer) -> None:
        """Add that a message came back, because its client was gone."""
        self._note(_RETURNED, offer)

    def acked(self, offer: Offer, *, auto: bool) -> None:
        """Add that a message was acknowledged.

        Args:
            offer: of the message.
            auto: because its answer was sent, and not by a client.
        """
        self._note(_ACKED, offer, AUTO if auto else 0)

    def answered(self, offset: int, offer: Offer | None, result: AckResult) -> None:
        """Add the result of a client's ack.

        Args:
            offset: the one that he acknowledged.
            offer: the offer that it was for; None: none was pending.
            result: what he was told.
        """
        journal = self._journal
        if result is not AckResult.DONE:
            journal.add(
                int(Kind.ACK_REFUSED), journal.clock(), self._stream, offset, code=int(_REFUSED[result])
            )
        elif offer is not None:
            self._note(_ACKED, offer)
        else:  # an earlier life of the owner offered it
            journal.add(int(Kind.ACKED), journal.clock(), self._stream, offset)

    def not_owned(self, offset: int) -> None:
        """Add that a client's ack came too late: the partition has been released."""
        journal = self._journal
        code = int(Refusal.NOT_OWNED)
        journal.add(int(Kind.ACK_REFUSED), journal.clock(), self._stream, offset, code=code)

    def dropped(self, offer: Offer) -> None:
        """Add that a message was given up after too many retries."""
        self._note(_DROPPED, offer)

    def _note(self, kind: int, offer: Offer, flags: int = 0) -> None:
        journal = self._journal
        now = journal.clock()
        took = now - offer.deadline + self._ack_timeout
        journal.put(
            (
                kind,
                now,
                self._stream,
                offer.offset,
                offer.retries,
                offer.timestamp,
                took if took > 0.0 else 0.0,
                0,
                flags,
                offer.client,
            )
        )


__all__ = ["OwnerJournal"]
