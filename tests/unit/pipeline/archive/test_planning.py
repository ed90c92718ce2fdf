"""The next batch follows from the lake's history and the broker's bounds alone; a topic that cannot go on is left out."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings, strategies as st

from pixy.pipeline.archive.planning import BEFORE_START, EXPIRED, Plan, missing_topics, plan_batch, share
from pixy.pipeline.lake.entry import BATCH, Entry, Range, digest_of
from pixy.pipeline.lake.state import Ledger

HUGE = 1 << 40


def ledger(*ranges: tuple[str, str, int, int, int]) -> Ledger:
    """Fold one entry for each (topic, id, partition, start, end)."""
    made = Ledger()
    for seq, each in enumerate(ranges):
        entry = Entry(BATCH, "job", seq, ranges=(Range(*each),), seq=seq, previous=made.digest)
        object.__setattr__(entry, "digest", digest_of(entry))
        made.apply(seq + 1, entry)
    return made


def plan(known: Ledger, ids: dict, bounds: dict, limit: int = HUGE, **more: Any) -> Plan:
    return plan_batch(
        known, ids, bounds, more.pop("starts", {}), limit, **{"until": {}, "skip_lost": False, **more}
    )


def ranges(made: Plan) -> list[tuple[str, str, int, int, int]]:
    return [(each.topic, each.topic_id, each.partition, each.start, each.end) for each in made.ranges]


def skips(made: Plan) -> list[tuple[int, int, int, str]]:
    return [(each.partition, each.start, each.end, each.skipped) for each in made.skipped]


def test_a_batch_continues_where_the_lake_ends() -> None:
    known = ledger(("t", "x", 0, 0, 5), ("t", "x", 1, 0, 9))
    made = plan(known, {"t": "x"}, {("t", 0): (0, 8), ("t", 1): (3, 9)})
    assert ranges(made) == [("t", "x", 0, 5, 8)] and not made.skipped and not made.events
    assert not plan(known, {"t": "x"}, {("t", 0): (0, 5), ("t", 1): (0, 9)})
    assert ranges(plan(known, {"t": "x"}, {("t", 0): (0, 8)}, until={("t", 0): 6})) == [("t", "x", 0, 5, 6)]
    # Another job is ahead of where this one was to stop.
    made = plan(known, {"t": "x"}, {("t", 0): (0, 8)}, until={("t", 0): 3})
    assert not made and not made.failed


def test_an_added_topic_begins_at_its_oldest_offset_or_where_it_was_asked_to() -> None:
    made = plan(ledger(), {"t": "x"}, {("t", 0): (3, 8)})
    assert ranges(made) == [("t", "x", 0, 3, 8)]
    assert skips(made) == [(0, 0, 3, EXPIRED)] and made.events == ["topic t: added"]
    made = plan(ledger(), {"t": "x"}, {("t", 0): (3, 8)}, starts={("t", 0): 8})
    assert not made.ranges and skips(made) == [(0, 0, 3, EXPIRED), (0, 3, 8, BEFORE_START)]


def test_an_added_partition_is_read_from_its_beginning() -> None:
    known = ledger(("t", "x", 0, 0, 5))
    made = plan(known, {"t": "x"}, {("t", 0): (0, 5), ("t", 1): (0, 4)}, starts={("t", 1): 4})
    assert ranges(made) == [("t", "x", 1, 0, 4)] and made.events == ["topic t: partition 1 was added"]


def test_a_topic_created_again_begins_anew() -> None:
    known = ledger(("t", "x", 0, 0, 50))
    made = plan(known, {"t": "y"}, {("t", 0): (0, 4)})
    assert ranges(made) == [("t", "y", 0, 0, 4)]
    assert made.events == ["topic t: created again: its id was x and is y, and its offsets begin anew"]
    # A broker that gave no ids before, or gives none now, says nothing about it.
    assert ranges(plan(ledger(("t", "", 0, 0, 5)), {"t": "y"}, {("t", 0): (0, 8)})) == [("t", "", 0, 5, 8)]
    assert ranges(plan(known, {"t": ""}, {("t", 0): (0, 51)})) == [("t", "x", 0, 50, 51)]


def test_a_topic_that_lost_records_or_its_end_fails_alone() -> None:
    known = ledger(("t", "x", 0, 0, 5), ("u", "z", 0, 0, 5), ("v", "w", 0, 0, 5))
    ids = {"t": "x", "u": "z", "v": "w"}
    bounds = {("t", 0): (7, 9), ("u", 0): (0, 4), ("v", 0): (0, 6)}
    made = plan(known, ids, bounds)
    assert ranges(made) == [("v", "w", 0, 5, 6)]
    assert "offsets 5 to 6 of t/0 are out of range" in str(made.failed["t"])
    assert "u/0 ends at offset 4, but it was archived up to 5" in str(made.failed["u"])
    made = plan(known, ids, bounds, skip_lost=True)
    assert skips(made) == [(0, 5, 7, EXPIRED)] and sorted(made.failed) == ["u"]
    assert made.events == ["topic t: offsets 5 to 6 of partition 0 were lost"]
    assert made.only("t").events == made.events and ranges(made.only("v")) == [("v", "w", 0, 5, 6)]
    assert made.topics() == ["t", "v"]


def test_a_topic_that_is_gone_is_named() -> None:
    found = missing_topics(["a", "t", "u"], {"u": 1}, ledger(("t", "x", 0, 0, 5)))
    assert str(found["a"]) == "topic a does not exist"
    assert str(found["t"]) == "topic t does not exist: it was deleted; the lake keeps what was archived of it"


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(0, 20), st.tuples(st.integers(0, 99), st.integers(1, 999)), min_size=1),
    st.integers(1, 5000),
)
def test_a_limit_is_shared_in_proportion(parts: dict[int, tuple[int, int]], limit: int) -> None:
    todo = {("t", "x", number): (start, start + length) for number, (start, length) in parts.items()}
    ends = share(todo, limit)
    assert all(start < ends[epoch] <= end for epoch, (start, end) in todo.items())
    taken = sum(ends[epoch] - start for epoch, (start, _) in todo.items())
    assert taken < limit + len(todo), "each partition gets at least one offset"
    if sum(end - start for start, end in todo.values()) <= limit:
        assert ends == {epoch: end for epoch, (_, end) in todo.items()}
