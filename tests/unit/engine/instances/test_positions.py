"""The positions of a reader, and the queue of fetched records."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pixy.engine.instances.positions import FetchedRecords, Positions
from pixy.kafka.consumer import Commit
from pixy.kafka.instance_consumer import BEGINNING, END
from pixy.kafka.partition_logs import FirstAttempt
from pixy.membership.instances import EarlierPosition
from tests.unit.engine.records import Record

A, B = ("t", 0), ("t", 1)


def book(**starts: int) -> Positions:
    made = Positions()
    made.assign({("t", int(name[1:])): start for name, start in starts.items()})
    return made


def test_only_what_was_handed_out_is_committed() -> None:
    made = book(p0=5, p1=7)
    assert made.uncommitted() == () and made.progress() == []
    made.handed_out([Record(0, 5), Record(0, 6)], made.epochs())
    assert made.uncommitted() == (Commit("t", 0, 7, ""),)
    assert made.progress() == [(A, 6, None)]
    made.committed(made.uncommitted())
    assert made.uncommitted() == () and made.progress() == [(A, 6, 6)]


def test_a_read_confirms_what_was_handed_out_before_it_and_a_seek_itself() -> None:
    made = book(p0=5, p1=7)
    made.handed_out([Record(0, 5)], made.epochs())
    assert made.confirmed() == ()
    made.confirm()
    made.handed_out([Record(0, 6), Record(1, 7)], made.epochs())
    assert made.confirmed() == (Commit("t", 0, 6, ""),)
    assert made.uncommitted() == (Commit("t", 0, 7, ""), Commit("t", 1, 8, ""))
    made.seek({B: 3})
    assert made.confirmed() == (Commit("t", 0, 6, ""), Commit("t", 1, 3, ""))
    made.drop([A])
    made.assign({A: 50})
    assert made.confirmed() == (Commit("t", 1, 3, ""),)


def test_the_start_of_a_new_partition_is_committed_until_the_reader_moves_on() -> None:
    made = Positions()
    made.assign({A: 5, B: 7}, {B})
    assert made.confirmed() == made.uncommitted() == (Commit("t", 1, 7, ""),)
    assert made.progress() == []
    made.handed_out([Record(1, 7)], made.epochs())
    assert (made.confirmed(), made.uncommitted()) == ((Commit("t", 1, 7, ""),), (Commit("t", 1, 8, ""),))
    made.committed(made.confirmed())
    assert (made.confirmed(), made.uncommitted()) == ((), (Commit("t", 1, 8, ""),))


def test_a_restart_confirms_nothing_by_itself() -> None:
    made = book(p0=5)
    made.handed_out([Record(0, 5)], made.epochs())
    made.begin_again()
    made.assign({A: 6})
    assert made.confirmed() == ()
    made.confirm()
    assert made.confirmed() == (Commit("t", 0, 6, ""),)


def test_records_read_before_a_seek_do_not_move_the_position() -> None:
    made = book(p0=5)
    epochs = made.epochs()
    made.seek({A: 100})
    made.handed_out([Record(0, 5)], epochs)
    assert made.offsets == {A: 100}
    assert made.uncommitted() == (Commit("t", 0, 100, ""),), "a seek is a position, as in Kafka's own clients"


def test_a_partition_that_was_revoked_and_assigned_again_has_not_moved() -> None:
    made = book(p0=5, p1=5)
    epochs = made.epochs()
    made.handed_out([Record(0, 5), Record(1, 5)], epochs)
    made.drop([A])
    made.assign({A: 9})
    made.handed_out([Record(0, 5)], epochs)
    assert made.offsets == {A: 9, B: 6}
    assert made.uncommitted() == (Commit("t", 1, 6, ""),)


def test_a_restart_resumes_at_the_positions_and_still_commits_them() -> None:
    made = book(p0=5, p1=5)
    made.handed_out([Record(0, 5)], made.epochs())
    assert made.begin_again() == {
        A: EarlierPosition(6, frozenset({5})),
        B: EarlierPosition(5, frozenset({5})),
    }
    assert made.partitions == [] and made.epochs() == {}
    made.assign({A: 6, B: 5})
    assert made.uncommitted() == (Commit("t", 0, 6, ""),)


def test_a_restart_that_begins_elsewhere_has_nothing_to_commit() -> None:
    made = book(p0=5)
    made.handed_out([Record(0, 5)], made.epochs())
    made.begin_again()
    made.assign({A: 50})
    assert made.uncommitted() == ()


def test_a_restart_tells_what_the_group_may_have_committed() -> None:
    made = book(p0=5, p1=5)
    made.handed_out([Record(0, 5), Record(1, 5)], made.epochs())
    made.committed((Commit("t", 0, 6, ""),))
    made.confirm()
    made.handed_out([Record(0, 6), Record(0, 7), Record(1, 6)], made.epochs())
    made.confirm()
    made.handed_out([Record(0, 8)], made.epochs())
    first = {A: EarlierPosition(9, frozenset({6, 8})), B: EarlierPosition(7, frozenset({5, 7}))}
    assert made.begin_again() == first, "the last commit, and the one that the failed session still makes"
    assert made.begin_again() == first, "nothing was assigned in between"
    made.assign({A: 9})
    assert made.begin_again() == {**first, A: EarlierPosition(9, frozenset({6, 8, 9}))}
    made.assign({A: 500})
    made.drop([A])
    made.forget_earlier()
    assert made.begin_again() == {}


def test_a_restart_keeps_a_position_at_which_nothing_was_read() -> None:
    """It was the end once. What was written since is the reader's."""
    made = Positions()
    made.assign({A: 5, B: 7, ("t", 2): -1}, {B})
    kept = {A: EarlierPosition(5, frozenset({5})), B: EarlierPosition(7, frozenset({7}))}
    assert made.begin_again() == made.begin_again() == kept
    made.assign({A: 5, B: 7})
    assert made.progress() == [], "nothing was read"
    assert made.confirmed() == made.uncommitted() == (Commit("t", 1, 7, ""),), (
        "the start is still to be committed"
    )
    assert made.begin_again() == kept
    made.assign({A: 6, B: 8})
    assert made.uncommitted() == (), "they begin elsewhere"


def test_a_restart_keeps_the_oldest_record_for_a_position_wherever_it_is() -> None:
    made = book(p0=BEGINNING)
    assert made.begin_again() == {A: EarlierPosition(BEGINNING, frozenset({BEGINNING}))}
    assert not made.resuming, "there is nothing to commit"


def test_a_restart_keeps_since_when_a_partition_waits_for_its_beginning() -> None:
    """Until it begins, is sought, or goes; and from one restart to the next."""
    made, first, second = Positions(), FirstAttempt(), FirstAttempt()
    made.wait({A: first, B: second})
    made.assign({A: END, B: END})
    assert made.begin_again() == {} and made.late == {A: first, B: second}
    made.assign({A: END})
    made.begin_again()
    assert made.late == {A: first, B: second}, "B was not assigned in between"
    made.assign({A: 70, B: END})
    assert made.late == {B: second}
    made.seek({B: 7})
    assert made.late == {}
    made.wait({A: first, B: second})
    made.drop([A])
    assert made.late == {B: second}
    made.drop([B])
    made.wait({B: second})
    made.forget_earlier()
    assert made.late == {}, "it is not chosen any more"


def test_a_position_that_begins_elsewhere_after_a_restart_has_no_commit_yet() -> None:
    made = book(p0=5)
    made.handed_out([Record(0, 5)], made.epochs())
    made.committed(made.uncommitted())
    made.begin_again()
    made.assign({A: 500})
    made.seek({A: 6})
    assert made.uncommitted() == (Commit("t", 0, 6, ""),), "the group's offset is another one by now"


def test_a_client_that_commits_confirms() -> None:
    made = book(p0=5)
    made.handed_out([Record(0, at) for at in range(5, 9)], made.epochs())
    made.committed((Commit("t", 0, 7, ""),))
    assert made.confirmed() == () and made.uncommitted() == (Commit("t", 0, 9, ""),)
    made.committed((Commit("t", 0, 20, ""),))
    assert made.confirmed() == (Commit("t", 0, 7, ""),), "what was not handed out cannot be confirmed"


def test_an_earlier_commit_is_valid_until_its_partition_moves_or_a_later_one_is_made() -> None:
    made = book(p0=5, p1=5)
    made.handed_out([Record(0, 5), Record(1, 5)], made.epochs())
    commits, epochs = made.uncommitted(), made.epochs()
    assert made.still_valid(commits, epochs) == commits
    made.seek({A: 2})
    assert made.still_valid(commits, epochs) == commits[1:]
    made.committed((Commit("t", 1, 7, ""),))
    assert made.still_valid(commits, epochs) == ()


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), max_size=30),
    st.integers(0, 120),
    st.integers(1, 9),
)
def test_takes_lose_nothing_and_return_at_least_one_record(
    sizes: list[tuple[int, int]], max_bytes: int, most: int
) -> None:
    records = [Record(partition, at, size) for at, (partition, size) in enumerate(sizes)]
    shelf = FetchedRecords()
    shelf.put(records, sum(len(record) for record in records))
    taken: list[Record] = []
    while shelf:
        batch = shelf.take(most, max_bytes)
        assert batch, "one record always fits"
        assert len(batch) <= most
        assert len(batch) == 1 or sum(map(len, batch)) <= max_bytes
        taken += batch  # type: ignore[arg-type]
    assert taken == records and shelf.size == 0


def test_records_put_back_come_first() -> None:
    shelf = FetchedRecords()
    shelf.put([Record(0, at) for at in range(6)], 60)
    batch = shelf.take(3, 100)
    shelf.put_back(batch)
    assert shelf.size == 60
    assert [record.offset() for record in shelf.take(10, 1000)] == list(range(6))


def test_records_of_a_revoked_partition_are_dropped() -> None:
    shelf = FetchedRecords()
    shelf.put([Record(at % 2, at) for at in range(6)], 60)
    shelf.drop([A])
    assert (len(shelf), shelf.size) == (3, 30)
    assert [record.offset() for record in shelf.take(10, 1000)] == [1, 3, 5]


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_last_record_of_each_partition_sets_its_position(partitions: int) -> None:
    made = Positions()
    made.assign({("t", number): 0 for number in range(partitions)})
    made.handed_out([Record(at % partitions, at) for at in range(9)], made.epochs())
    assert made.offsets == {("t", number): 9 - (partitions - number) + 1 for number in range(partitions)}
