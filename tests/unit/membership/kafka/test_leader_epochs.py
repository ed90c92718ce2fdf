"""Which leader epoch a commit names."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from pixy.membership.kafka.leader_epochs import LeaderEpochs
from pixy.membership.start_position import StartPosition, resolve_start


@dataclass
class Record:
    at: int
    epoch: int | None

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int | None:
        return self.epoch


def batch(first: int, *epochs: int | None) -> list[Record]:
    return [Record(first + at, epoch) for at, epoch in enumerate(epochs)]


def test_the_epoch_is_that_of_the_message_before() -> None:
    known = LeaderEpochs(10, 3)
    assert [known.before(offset) for offset in (9, 10, 11)] == [-1, 3, -1]
    known.note(batch(10, 3, 3))
    known.note(batch(12, 3, 4, 4, 6))
    assert [known.before(offset) for offset in range(10, 18)] == [3, 3, 3, 3, 4, 4, 6, -1]


def test_a_position_behind_what_is_no_message_has_no_epoch() -> None:
    """The marker of a transaction that a later leader has written would be below the end of no epoch that is known."""
    known = LeaderEpochs()
    known.note(batch(0, 2, 2))
    assert known.before(3) == -1
    known.note(batch(5, 4))
    assert [known.before(offset) for offset in (2, 3, 5, 6)] == [2, -1, -1, 4]


def test_what_is_fetched_again_counts_as_it_comes_now() -> None:
    known = LeaderEpochs()
    known.note(batch(0, 1, 1, 1, 1))
    known.note(batch(2, 5))
    assert [known.before(offset) for offset in (1, 2, 3, 4)] == [1, 1, 5, -1]


@pytest.mark.parametrize("epoch", [None, -1])
def test_old_message_formats_have_no_epoch(epoch: int | None) -> None:
    known = LeaderEpochs()
    known.note(batch(0, epoch, epoch))
    assert known.before(1) == known.before(2) == -1
    assert LeaderEpochs(5, -1).before(5) == -1


def test_what_is_kept_is_bounded() -> None:
    known = LeaderEpochs()
    for epoch in range(10_000):
        known.note(batch(epoch, epoch))
    assert len(known._ranges) == 64
    assert [known.before(offset) for offset in (10_000, 9_950, 100)] == [9_999, 9_949, -1]


@pytest.mark.parametrize("seed", range(50))
def test_it_agrees_with_a_list_of_all_messages(seed: int) -> None:
    chance = random.Random(seed)
    known, of = LeaderEpochs(), dict[int, int]()
    at = epoch = 0
    for _ in range(30):
        if of and chance.random() < 0.2:  # fetched again, from an earlier offset
            at = chance.choice(sorted(of))
            of = {offset: each for offset, each in of.items() if offset < at}
            epoch = max(of.values(), default=0)
        records = []
        for _ in range(chance.randint(1, 6)):
            epoch += chance.random() < 0.15
            records.append(Record(at, epoch))
            of[at] = epoch
            at += chance.choice((1, 1, 1, 3))
        known.note(records)
        for offset in range(at + 3):
            found = known.before(offset)
            # Between two messages of one epoch, every offset is below its end.
            within = {each for each in of if each < offset}
            expected = of[max(within)] if within else -1
            assert found in (expected, -1)
            if offset - 1 in of:
                assert found == expected


@pytest.mark.parametrize(
    ("committed", "oldest", "end", "epoch_end", "expected"),
    [
        (100, 0, 150, 50, StartPosition(50, new=True)),
        (100, 70, 150, 50, StartPosition(70, new=True)),
        (100, 0, 150, 100, StartPosition(100, new=False, base=100)),
        (100, 0, 150, 120, StartPosition(100, new=False, base=100)),
        (100, 0, 150, None, StartPosition(100, new=False, base=100)),
        (100, 120, 150, 50, StartPosition(120, new=True, base=100)),
        (
            100,
            10,
            90,
            90,
            StartPosition(10, new=True),
        ),  # another topic of the name, maybe: its epochs begin at 0 again
    ],
)
def test_an_epoch_that_ends_below_the_committed_offset_is_a_truncation(
    committed: int, oldest: int, end: int, epoch_end: int | None, expected: StartPosition
) -> None:
    assert resolve_start(committed, oldest, end, from_oldest=False, epoch_end=epoch_end) == expected
