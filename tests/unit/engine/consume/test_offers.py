"""Offers, acks, retries and limits of one partition, in simulated time."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pixy.engine.consume.offers import AckResult, OfferBook
from pixy.engine.consume.offset_tracker import OffsetTracker
from tests.effort import examples


class Record:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def __len__(self) -> int:
        return 10


def book(
    position: int = 0,
    acked: list[tuple[int, int]] | None = None,
    *,
    max_pending: int = 300,
    max_pending_bytes: int = 1_000_000,
    ack_timeout: float = 10.0,
    max_retries: int = -1,
    offered_below: int = 0,
) -> OfferBook:
    return OfferBook(
        OffsetTracker(position, acked or []),
        max_pending=max_pending,
        max_pending_bytes=max_pending_bytes,
        ack_timeout=ack_timeout,
        max_retries=max_retries,
        offered_below=offered_below,
    )


def fetch(made: OfferBook, *offsets: int) -> OfferBook:
    made.fetched([Record(offset) for offset in offsets])
    return made


def offered(made: OfferBook, now: float = 0.0) -> int | None:
    offer = made.offer(now)
    return None if offer is None else offer.offset


def test_messages_come_in_order_and_acks_move_the_position() -> None:
    made = fetch(book(), 0, 1, 2)
    assert [offered(made) for _ in range(4)] == [0, 1, 2, None]
    assert made.ack(1) is AckResult.DONE
    assert made.position().offset == 0 and made.position().ranges == ((1, 2),)
    made.ack(0)
    assert made.position().offset == 2


def test_a_limit_of_three_allows_four_offers() -> None:
    made = fetch(book(max_pending=3), *range(10))
    assert made.offerable(0) == 4
    assert [offered(made) for _ in range(5)] == [0, 1, 2, 3, None]
    made.ack(2)
    assert offered(made) == 4
    assert offered(made) is None


def test_an_expired_offer_comes_after_the_message_in_hand() -> None:
    made = fetch(book(), 0, 1, 2)
    assert [offered(made, 0), offered(made, 1)] == [0, 1]
    assert offered(made, 10.5) == 2  # taken in hand before offer 0 expired
    assert offered(made, 10.5) == 0
    assert offered(made, 10.5) is None
    assert offered(made, 11.0) == 1


@pytest.mark.parametrize("retries", [0, 3])
def test_max_retries(retries: int) -> None:
    made = fetch(book(max_retries=retries), 0)
    times = 0
    now = 0.0
    while offered(made, now) is not None:
        times += 1
        now += 10.0
    assert times == 1 + retries
    assert [offer.offset for offer in made.dropped] == [0]
    assert made.position().offset == 1


def test_at_the_limit_only_retries_are_offered() -> None:
    made = fetch(book(max_pending=1), 0, 1, 2)
    assert [offered(made) for _ in range(3)] == [0, 1, None]
    assert made.next_deadline() == 10.0
    assert [offered(made, 10.0) for _ in range(3)] == [0, 1, None]


def test_dropping_at_the_limit_makes_room_at_once() -> None:
    made = fetch(book(max_pending=1, max_retries=0), 0, 1, 2, 3)
    assert [offered(made) for _ in range(2)] == [0, 1]
    assert made.offerable(10.0) == 2
    assert [offered(made, 10.0) for _ in range(2)] == [2, 3]


def test_a_message_given_back_is_next_and_no_retry() -> None:
    made = fetch(book(max_retries=0), 0, 1, 2)
    assert offered(made) == 0
    made.give_back(0, 0)
    assert made.pending == 0
    assert made.offerable(0) == 3
    assert [offered(made, 1), offered(made, 1)] == [0, 1]
    assert not made.dropped


def test_a_message_taken_from_its_client_is_next_counts_the_attempt_and_takes_the_late_ack() -> None:
    made = fetch(book(max_retries=0), 0, 1, 2)
    assert [offered(made), offered(made)] == [0, 1]
    assert made.take_back(1) and made.take_back(0) and not made.take_back(0) and not made.take_back(2)
    assert made.offerable(0) == 3 and made.pending == 2
    again = made.offer(1)
    assert again is not None and (again.offset, again.retries) == (0, 1)
    assert made.ack(1) is AckResult.DONE, "the client from which it was taken"
    assert offered(made, 1) == 2
    assert offered(made, 11.0) is None and [each.offset for each in made.dropped] == [0, 2]


def test_the_ack_of_a_message_given_back_counts() -> None:
    made = fetch(book(), 0, 1)
    offered(made)
    made.give_back(0, 0)
    assert made.ack(0) is AckResult.DONE
    assert offered(made) == 1


def test_a_message_given_back_late_is_not_taken_from_the_client_that_has_it_now() -> None:
    """The first client's answer fails after its offer has expired and a second client has the message."""
    made = fetch(book(), 0, 1)
    assert offered(made, 0.0) == 0
    assert [offered(made, 10.0), offered(made, 10.0)] == [1, 0]
    assert not made.give_back(0, 0)
    assert offered(made, 11.0) is None
    assert made.give_back(0, 1) and offered(made, 11.0) == 0


def test_pending_messages_are_bounded_in_bytes() -> None:
    made = fetch(book(max_pending_bytes=25), *range(10))  # of 10 bytes each
    found = 0
    while made.offerable(0):
        assert offered(made) == found
        found += 1
    assert found == 3, "the last one exceeds the bound"
    made.ack(1)
    assert made.offerable(0) == 1 and [offered(made), offered(made)] == [3, None]


def test_a_message_larger_than_the_bound_is_offered_alone() -> None:
    made = fetch(book(max_pending_bytes=1), 0, 1)
    assert [offered(made), offered(made)] == [0, None]
    made.ack(0)
    assert offered(made) == 1


@pytest.mark.slow
def test_deadlines_do_not_add_up_behind_a_slow_client() -> None:
    """A client holds message 0 for five minutes while others take and acknowledge 400 messages a second."""
    made = fetch(book(ack_timeout=300.0), *range(120_001))
    assert offered(made, 0.0) == 0
    for offset in range(1, 120_001):
        now = offset / 400
        if now < 300.0:
            assert offered(made, now) == offset
            made.ack(offset)
    assert len(made._deadlines) < 100 and made.next_deadline() == 300.0


def test_messages_that_are_done_before_their_offer_are_counted_as_skipped() -> None:
    """Acks of an earlier life: the messages hold room in the client's buffer until they are counted."""
    made = fetch(book(0, [(2, 3)], offered_below=10), 0, 1, 2, 3)
    assert (made.skipped, made.skipped_bytes) == (1, 10)
    assert made.offerable(0) == 3  # takes 0 in hand
    made.ack(0)
    made.ack(1)
    assert offered(made) == 3
    assert (made.skipped, made.skipped_bytes) == (3, 30)


def test_acks_of_messages_never_offered_are_refused() -> None:
    made = fetch(book(5), 5, 6)
    assert made.ack(6) is AckResult.NEVER_OFFERED
    assert made.ack(4) is AckResult.DUPLICATE
    offered(made)
    assert made.ack(5) is AckResult.DONE
    assert made.ack(5) is AckResult.DUPLICATE
    assert made.position().offset == 6


def test_a_restarted_owner_skips_sparse_acks_and_takes_acks_of_earlier_offers() -> None:
    made = fetch(book(5, [(6, 8)], offered_below=10), 5, 6, 7, 8, 9)
    assert made.ack(8) is AckResult.DONE
    assert [offered(made) for _ in range(3)] == [5, 9, None]


def test_an_ack_of_an_offer_before_the_restart_reaches_the_message_in_hand() -> None:
    made = fetch(book(5, offered_below=10), 5, 6, 7)
    assert made.offerable(0) == 3  # 5 is taken in hand
    assert made.ack(5) is AckResult.DONE
    assert [offered(made) for _ in range(3)] == [6, 7, None]


def test_gaps_left_by_compaction_do_not_hold_the_position_back() -> None:
    made = fetch(book(), 0, 5, 9)
    for _ in range(3):
        made.ack(offered(made))
    assert made.position().offset == 10 and made.position().ranges == ()


def test_a_closed_book_only_takes_acks() -> None:
    made = fetch(book(), 0, 1)
    offered(made)
    made.closed = True
    assert offered(made) is None and made.offerable(0) == 0
    assert made.outstanding(5.0) == 1 and made.outstanding(10.0) == 0
    made.ack(0)
    assert made.outstanding(5.0) == 0


class Model(RuleBasedStateMachine):
    """In any order of events no message is lost, no acknowledged one comes again, and limits hold."""

    MAX_PENDING = 4

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.fetched = 0
        self.acked: set[int] = set()
        self.out: dict[int, float] = {}
        self.seen: set[int] = set()
        self.book = book(max_pending=self.MAX_PENDING)

    @rule(count=st.integers(1, 4))
    def fetch(self, count: int) -> None:
        fetch(self.book, *range(self.fetched, self.fetched + count))
        self.fetched += count

    @rule()
    def offer(self) -> None:
        expected = self.book.offerable(self.now)
        offer = self.book.offer(self.now)
        assert (offer is not None) == (expected > 0)
        if offer is not None:
            assert offer.offset not in self.acked, "offered again after its ack"
            assert self.out.get(offer.offset, 0.0) <= self.now, "offered to two clients at once"
            self.out[offer.offset] = self.now + 10.0
            self.seen.add(offer.offset)

    @precondition(lambda self: self.seen)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.seen)))
        assert self.book.ack(offset) is not AckResult.NEVER_OFFERED
        self.acked.add(offset)
        self.out.pop(offset, None)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        offer = self.book.pending_offer(offset)
        if offer is not None:
            self.book.give_back(offset, offer.retries)
        self.out.pop(offset)

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.out)))
        if self.book.take_back(offset):
            self.out.pop(offset)

    @rule(seconds=st.floats(0.1, 12.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def limits_and_position(self) -> None:
        assert self.book.pending <= self.MAX_PENDING + 1
        position = self.book.position()
        done = set(range(position.offset)) | {
            offset for start, stop in position.ranges for offset in range(start, stop)
        }
        assert done == self.acked

    def teardown(self) -> None:
        # Every fetched message can still be consumed.
        for _ in range(10 * self.fetched + 10):
            self.now += 10.0
            while (offer := self.book.offer(self.now)) is not None:
                self.book.ack(offer.offset)
        assert self.book.position().offset == self.fetched


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
