"""What a group and an owner say about themselves when somebody looks: plain data, and the messages that ask for it.

Nothing of it is kept: an actor makes the view when it is asked. Times are those of the event loop, in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from actors import Request
from pixy.engine.consume.offers import Offer, OfferBook

MOST_OFFERS: Final = 500
"""Offers in one answer of an owner."""


@dataclass(frozen=True, slots=True)
class OfferView:
    """A message that a client has, or that was taken back and waits to be offered again.

    Attributes:
        offset: its offset.
        attempts: how often it was offered.
        out: whether a client has it now.
        first: when it was offered first.
        offered: when it was last offered.
        deadline: when the last offer ends.
        client: who got it last: a principal, or an address without ``auth``; empty if it was the program itself.
    """

    offset: int
    attempts: int
    out: bool
    first: float
    offered: float
    deadline: float
    client: str


@dataclass(frozen=True, slots=True)
class OffersView:
    """The un-acked messages of a partition, by offset, and what is around them.

    Attributes:
        offers: a page of them.
        total: all of them.
        buffered: fetched messages that wait for a first offer.
        position: the position that may be committed: the lowest offset that is not done.
        done_above: messages above the position that are done.
        oldest: the offer whose message was offered first; None if there is none.
        most_tried: the one that was offered most often.
        full: whether the limit of pending messages keeps further ones back.
    """

    offers: tuple[OfferView, ...]
    total: int
    buffered: int
    position: int
    done_above: int
    oldest: OfferView | None
    most_tried: OfferView | None
    full: bool


@dataclass(frozen=True, slots=True)
class ViewOffers(Request[OffersView]):
    """Ask an owner for its un-acked messages.

    Attributes:
        after: offsets above this one.
        limit: how many, at most :data:`MOST_OFFERS`; 0 for the sums only.
    """

    after: int = -1
    limit: int = 0


@dataclass(frozen=True, slots=True)
class ViewPartition(Request[OffersView]):
    """Ask a group for the un-acked messages of one of its partitions; its owner replies. The reply may be NotConsumed."""

    topic: str
    partition: int
    after: int = -1
    limit: int = MOST_OFFERS


@dataclass(frozen=True, slots=True)
class MessageView:
    """Where one message stands at the owner of its partition.

    Attributes:
        state: ``done``; ``held`` by a client; ``waits again`` to be offered once more; ``fetched``, so it waits for a first
            offer; or ``not fetched``.
        offer: of a message that is held or waits again.
        position: the position that may be committed: the lowest offset that is not done.
        epoch: of the assignment, and ``since`` when it is assigned; the owner's answers count from then on.
    """

    state: str
    offer: OfferView | None
    position: int
    epoch: int
    since: float


@dataclass(frozen=True, slots=True)
class ViewMessage(Request[MessageView]):
    """Ask a group for one message of one of its partitions; its owner replies. The reply may be NotConsumed."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition that this member owns.

    Attributes:
        epoch: of the assignment.
        since: when it was assigned.
        position: the lowest offset that is not done.
        pending: messages that are offered and not acknowledged.
        lives: owners that the assignment has had; more than 1 after failures.
        draining: whether it is about to be released.
    """

    topic: str
    partition: int
    epoch: int
    since: float
    position: int
    pending: int
    lives: int
    draining: bool


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic for which clients ask.

    Attributes:
        polls: requests that wait.
        oldest_poll: when the one that waits longest arrived; None if none waits.
        last_request: when somebody last asked for it.
        joined: whether the group has got an assignment that counts for it.
        missing: whether it does not exist.
    """

    topic: str
    polls: int
    oldest_poll: float | None
    last_request: float
    joined: bool
    missing: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """This member of a group.

    Attributes:
        failure: why it cannot consume now; empty if it can.
        leaving: whether it is about to leave.
    """

    group: str
    topics: tuple[TopicView, ...]
    partitions: tuple[PartitionView, ...]
    failure: str
    leaving: bool


@dataclass(frozen=True, slots=True)
class ViewGroup(Request[GroupView]):
    """Ask a group for its topics and partitions."""


def view_offers(book: OfferBook, ack_timeout: float, query: ViewOffers) -> OffersView:
    """Describe the un-acked messages of a partition.

    Args:
        book: of its owner.
        ack_timeout: seconds from an offer to its deadline.
        query: which page.
    """

    def view(offer: Offer) -> OfferView:
        return view_offer(offer, ack_timeout)

    unacked = book.unacked()
    page = [each for each in unacked if each.offset > query.after] if query.limit else []
    oldest = min(unacked, key=lambda each: each.first, default=None)
    most_tried = max(unacked, key=lambda each: each.retries, default=None)
    return OffersView(
        tuple(map(view, page[: min(query.limit, MOST_OFFERS)])),
        len(unacked),
        book.buffered,
        book.tracker.position,
        book.tracker.done_above,
        None if oldest is None else view(oldest),
        None if most_tried is None else view(most_tried),
        book.full,
    )


def view_offer(offer: Offer, ack_timeout: float) -> OfferView:
    """Describe an un-acked message; arguments as in :func:`view_offers`."""
    offered = offer.deadline - ack_timeout
    return OfferView(
        offer.offset, offer.retries + 1, offer.out, offer.first, offered, offer.deadline, offer.client
    )


def view_message(book: OfferBook, ack_timeout: float, offset: int, epoch: int, since: float) -> MessageView:
    """Describe where a message stands.

    Args:
        book: of the owner of its partition.
        ack_timeout: seconds from an offer to its deadline.
        offset: of the message.
        epoch: of the assignment.
        since: when it was assigned.
    """
    offer = book.pending_offer(offset)
    if offer is not None:
        state = "held" if offer.out else "waits again"
    elif book.tracker.is_acked(offset):
        state = "done"
    else:
        state = "fetched" if offset < book.next_offset else "not fetched"
    return MessageView(
        state, None if offer is None else view_offer(offer, ack_timeout), book.tracker.position, epoch, since
    )


__all__ = [
    "MOST_OFFERS",
    "GroupView",
    "MessageView",
    "OfferView",
    "OffersView",
    "PartitionView",
    "TopicView",
    "ViewGroup",
    "ViewMessage",
    "ViewOffers",
    "ViewPartition",
    "view_message",
    "view_offers",
]
