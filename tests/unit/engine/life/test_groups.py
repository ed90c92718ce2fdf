"""Where a message stands in a group, by its owner and by committed offsets."""

from __future__ import annotations

import pytest

from pixy.engine.admin_messages import PartitionOffset
from pixy.engine.consume import sparse_acks
from pixy.engine.consume.offers import OfferBook
from pixy.engine.consume.offset_tracker import OffsetTracker
from pixy.engine.consume.views import MessageView, view_message
from pixy.engine.life.groups import Clock, standing

CLOCK = Clock(100.0, 1_000_000.0)


class Record:
    """A fetched message."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def offset(self) -> int:
        return self._offset

    def __len__(self) -> int:
        return 1


def book() -> OfferBook:
    made = OfferBook(
        OffsetTracker(10), max_pending=100, max_pending_bytes=1000, ack_timeout=5.0, max_retries=-1
    )
    made.fetched([Record(at) for at in range(10, 20)])
    return made


def view(made: OfferBook, offset: int) -> MessageView:
    return view_message(made, 5.0, offset, 1, 90.0)


def test_an_owner_tells_what_it_does_with_a_message() -> None:
    made = book()
    for _ in range(4):
        made.offer(100.0, "10.0.0.9")
    made.ack(11)
    made.give_back(12, 0)
    made.offerable(100.0)
    states = {offset: view(made, offset).state for offset in (9, 10, 11, 12, 15, 20)}
    assert states == {
        9: "done", 10: "held", 11: "done", 12: "waits again", 15: "fetched", 20: "not fetched",
    }  # fmt: skip
    made.offerable(105.0)
    assert view(made, 10).state == "waits again", "its deadline has passed"
    held = view(made, 13).offer
    assert held is not None and (held.client, held.attempts, held.deadline) == ("10.0.0.9", 1, 105.0)


def test_times_of_the_loop_become_dates() -> None:
    made = book()
    made.offer(98.0, "10.0.0.9")
    found = standing("g", 10, view(made, 10), None, CLOCK)
    assert (found.state, found.owner, found.committed) == ("held", "here", None)
    assert found.detail["last_offered"] == 999_998.0 and found.detail["deadline"] == 1_000_003.0
    assert found.detail["owned_since"] == 999_990.0 and found.detail["client"] == "10.0.0.9"


@pytest.mark.parametrize(
    ("offset", "state"), [(9, "done"), (10, "not done"), (12, "done"), (13, "done"), (14, "not done")]
)
def test_committed_offsets_with_sparse_acks_tell_about_groups_elsewhere(offset: int, state: str) -> None:
    committed = PartitionOffset(0, 0, 30, 10, sparse_acks.encode(10, [(12, 14)]))
    found = standing("g", offset, None, committed, CLOCK)
    assert (found.state, found.owner, found.committed) == (state, "", 10)


def test_metadata_of_other_programs_says_nothing() -> None:
    assert standing("g", 12, None, PartitionOffset(0, 0, 30, 10, "not ours!"), CLOCK).state == "not done"


def test_the_owner_knows_better_than_the_committed_offset() -> None:
    made = book()
    made.offer(100.0)
    made.ack(10)
    found = standing("g", 10, view(made, 10), PartitionOffset(0, 0, 30, 10, ""), CLOCK)
    assert found.state == "done" and found.detail["committed"] is False
