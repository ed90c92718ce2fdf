"""Classification with vectors agrees with a classification that takes one fact after the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from pixy.journal import Kind
from pixy.pipeline.audit import sketch
from pixy.pipeline.audit.classify import Context, GroupHistory, classify_block
from pixy.pipeline.audit.facts import ARCHIVED, BLOCK_BITS, FACTS, LOGGED, pack, unpack
from pixy.pipeline.audit.tallies import NO_GROUP, TallyKind
from tests.effort import examples

WINDOW, LATE_AFTER = 1000, 1300
TP_ID, BLOCK = 5, 3
BASE = BLOCK << BLOCK_BITS
STREAMS = {0: -1, 1: 0, 2: 0, 3: 1}
"""Group of each stream."""


def run(
    rows: list[dict[str, int]], histories: Any = None, streams_with_holes: tuple[int, ...] = ()
) -> Counter[Any]:
    """Return the tallies by (kind, group, window, bucket)."""
    facts = {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in FACTS.names}
    facts["tp_id"][:], facts["block"][:] = TP_ID, facts["offset"] >> BLOCK_BITS
    context = Context(
        WINDOW,
        LATE_AFTER,
        np.array([STREAMS[at] for at in sorted(STREAMS)]),
        np.array([at in streams_with_holes for at in sorted(STREAMS)]),
        histories or {},
        {TP_ID: (np.array([BASE, BASE + 6]), np.array([700, 2600]))},
    )
    assert {name: column.tolist() for name, column in repacked(facts).items()} == {
        name: column.tolist() for name, column in facts.items()
    }, "packing keeps every fact"
    found = classify_block(facts, context)
    assert set(found["tp_id"].tolist()) <= {TP_ID}
    made: Counter[Any] = Counter()
    for kind, group, window, bucket, n in zip(
        found["kind"], found["group"], found["window"], found["bucket"], found["n"], strict=True
    ):
        made[TallyKind(int(kind)), int(group), int(window), int(bucket)] += int(n)
    return made


def repacked(facts: dict[str, Any]) -> dict[str, Any]:
    """Pack and unpack facts, as Spark shuffles them."""
    packed = pack(facts).to_pylist()
    assert len(packed) == 1, "one block"
    return unpack(packed[0]["tp_id"], packed[0]["block"], [row["facts"] for row in packed])


def counts(made: Counter[Any], kind: TallyKind, group: int = 0) -> int:
    return sum(n for key, n in made.items() if key[:2] == (kind, group))


def ranges(made: Counter[Any], kind: TallyKind, group: int = 0) -> set[int]:
    return {offset - BASE for key in made if key[:2] == (kind, group) for offset in range(key[2], key[3])}


def offer(at: int, stream: int = 1, attempt: int = 0, time: int = 0, took: int = 7000) -> dict[str, int]:
    return {
        "offset": BASE + at,
        "kind": Kind.OFFERED,
        "source": stream,
        "attempt": attempt,
        "time": time,
        "timestamp": 100 * at,
        "took": took,
    }


def event(kind: int, at: int, stream: int = 1, attempt: int = 0, **more: int) -> dict[str, int]:
    return {
        "offset": BASE + at,
        "kind": kind,
        "source": stream,
        "attempt": attempt,
        "timestamp": 100 * at,
        "took": 3000,
        **more,
    }


positions = st.integers(0, 11)
rows = st.lists(
    st.one_of(
        st.builds(
            lambda at, stream, attempt, time: offer(at, stream, attempt, time),
            positions,
            st.sampled_from([1, 2, 3]),
            st.integers(0, 2),
            st.integers(0, 30),
        ),
        st.builds(
            lambda kind, at, stream, attempt: event(kind, at, stream, attempt),
            st.sampled_from([Kind.RETURNED, Kind.ACKED, Kind.DROPPED, Kind.ACK_REFUSED]),
            positions,
            st.sampled_from([1, 2, 3]),
            st.integers(0, 2),
        ),
        st.builds(lambda at: event(Kind.PRODUCED, at, 0), positions),
        st.builds(lambda at: event(LOGGED, at, 0), positions),
        st.builds(
            lambda at, file, row: event(ARCHIVED, at, file, time=row),
            positions,
            st.integers(0, 1),
            st.integers(0, 20),
        ),
    ),
    min_size=1,
    max_size=60,
)


def naive(
    facts: list[dict[str, int]], group: int, history: GroupHistory, streams_with_holes: set[int]
) -> dict[TallyKind, Any]:
    """Compute the group's tallies offset by offset."""
    mine = [row for row in facts if row["kind"] < ARCHIVED and STREAMS[row["source"]] == group]
    reached: Counter[Any] = Counter()
    for row in mine:
        key = row["offset"] - BASE, row["source"], row["attempt"]
        reached[key] += row["kind"] == Kind.OFFERED
    for row in mine:
        key = row["offset"] - BASE, row["source"], row["attempt"]
        if row["kind"] == Kind.RETURNED and reached[key]:
            reached[key] -= 1
    reached = +reached
    firsts = Counter(at for at, _, attempt in reached if attempt == 0)
    retries = Counter(at for at, _, attempt in reached if attempt > 0)
    done = {row["offset"] - BASE for row in mine if row["kind"] in (Kind.ACKED, Kind.DROPPED)}
    exists = {row["offset"] - BASE for row in facts if row["kind"] in (ARCHIVED, LOGGED, Kind.PRODUCED)}
    open_ = {
        at
        for at in exists - done
        if history.start <= BASE + at < history.committed
        and not any(start <= BASE + at < end for start, end in history.skipped)
    }
    unknown = {at for at in open_ if history.hole >= 0 and at * 100_000 <= history.hole}
    return {
        TallyKind.OFFERED: len({row["offset"] for row in mine if row["kind"] == Kind.OFFERED}),
        TallyKind.DELIVERIES: reached.total(),
        TallyKind.ACKED: len({row["offset"] for row in mine if row["kind"] == Kind.ACKED}),
        TallyKind.RETRIED: sum(row["kind"] == Kind.OFFERED and row["attempt"] > 0 for row in mine),
        TallyKind.RETURNED: sum(row["kind"] == Kind.RETURNED for row in mine),
        TallyKind.DUPLICATES_RETRIED: sum(n - (at not in firsts) for at, n in retries.items()),
        TallyKind.DUPLICATES_REASSIGNED: sum(n - 1 for n in firsts.values()),
        TallyKind.DUPLICATES_UNEXPLAINED: sum(
            n - 1 for key, n in reached.items() if key[1] not in streams_with_holes
        ),
        TallyKind.DUPLICATES_UNKNOWN: sum(
            n - 1 for key, n in reached.items() if key[1] in streams_with_holes
        ),
        TallyKind.LOST: len(open_ - unknown),
        TallyKind.UNKNOWN: len(unknown),
        TallyKind.R_LOST: open_ - unknown,
        TallyKind.R_UNKNOWN: unknown,
    }


def misplaced(offers: list[tuple[int, int]]) -> set[int]:
    """Return the offsets that follow a higher one, given (time, offset)."""
    found, most = set(), -1
    for _, at in sorted(offers):
        if at < most:
            found.add(at)
        most = max(most, at)
    return found


@pytest.mark.slow
@settings(max_examples=examples(100), deadline=None)
@given(
    rows,
    st.integers(0, 12),
    st.integers(-1, 12),
    st.integers(-1, 1_200_000),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.sets(st.sampled_from([1, 2, 3])),
)
def test_vectors_agree_with_one_fact_after_the_other(
    facts: list[dict[str, int]],
    start: int,
    committed: int,
    hole: int,
    skip: tuple[int, int],
    streams_with_holes: set[int],
) -> None:
    history = GroupHistory(
        BASE + start,
        BASE + committed if committed >= 0 else -1,
        hole,
        ((BASE + skip[0], BASE + skip[1]),),
    )
    made = run(facts, {(TP_ID, 0): history, (TP_ID, 1): history}, tuple(streams_with_holes))
    for group in (0, 1):
        for kind, wanted in naive(facts, group, history, streams_with_holes).items():
            found: Any = ranges(made, kind, group) if isinstance(wanted, set) else counts(made, kind, group)
            assert found == wanted, (kind.name, group)
        deliveries = counts(made, TallyKind.DELIVERIES, group)
        again = sum(
            counts(made, kind, group)
            for kind in (
                TallyKind.DUPLICATES_RETRIED,
                TallyKind.DUPLICATES_REASSIGNED,
                TallyKind.DUPLICATES_UNEXPLAINED,
                TallyKind.DUPLICATES_UNKNOWN,
            )
        )
        assert 0 <= deliveries - again <= counts(made, TallyKind.OFFERED, group), (
            "each duplicate has one kind"
        )
        wrong = set()
        for stream in (1, 2, 3):
            first: dict[int, int] = {}
            for row in facts:
                if (row["kind"], row["source"], row["attempt"]) == (Kind.OFFERED, stream, 0):
                    at = row["offset"] - BASE
                    first[at] = min(first.get(at, row["time"]), row["time"])
            if STREAMS[stream] == group:
                wrong |= misplaced([(time, at) for at, time in first.items()])
        assert ranges(made, TallyKind.R_OUT_OF_ORDER, group) == wrong


@settings(max_examples=examples(60), deadline=None)
@given(rows)
def test_duplicate_late_and_misplaced_rows_of_the_lake_are_counted(facts: list[dict[str, int]]) -> None:
    made = run(facts)
    archived = Counter(row["offset"] - BASE for row in facts if row["kind"] == ARCHIVED)
    assert counts(made, TallyKind.ARCHIVED, NO_GROUP) == len(archived)
    assert counts(made, TallyKind.ARCHIVE_DUPLICATES, NO_GROUP) == archived.total() - len(archived)
    assert ranges(made, TallyKind.R_ARCHIVED, NO_GROUP) == set(archived)
    assert ranges(made, TallyKind.R_ARCHIVE_DUPLICATES, NO_GROUP) == {
        at for at, n in archived.items() if n > 1
    }
    exists = {row["offset"] for row in facts if row["kind"] in (ARCHIVED, LOGGED, Kind.PRODUCED)}
    assert counts(made, TallyKind.PRODUCED, NO_GROUP) == len(exists)
    late = sum(
        (700 if row["offset"] < BASE + 6 else 2600) > row["timestamp"] + LATE_AFTER
        for row in facts
        if row["kind"] == ARCHIVED
    )
    assert counts(made, TallyKind.ARCHIVE_LATE, NO_GROUP) == late
    assert counts(made, TallyKind.ARCHIVE_DELAY, NO_GROUP) == archived.total()
    files = {row["source"] for row in facts if row["kind"] == ARCHIVED}
    assert ranges(made, TallyKind.R_ARCHIVE_OUT_OF_ORDER, NO_GROUP) == set().union(
        *(
            misplaced(
                [
                    (row["time"], row["offset"] - BASE)
                    for row in facts
                    if (row["kind"], row["source"]) == (ARCHIVED, file)
                ]
            )
            for file in files
        )
    )


def test_events_count_in_the_window_of_their_record() -> None:
    made = run(
        [
            event(ARCHIVED, 3),
            event(LOGGED, 25),
            event(Kind.ACKED, 25, time=10**15),
            event(LOGGED, 4, timestamp=-1),
        ]
    )
    assert made[TallyKind.PRODUCED, NO_GROUP, 0, 0] == 1
    assert made[TallyKind.PRODUCED, NO_GROUP, 2000, 0] == 1
    assert made[TallyKind.PRODUCED, NO_GROUP, -1, 0] == 1
    assert made[TallyKind.ACKED, 0, 2000, 0] == 1


def test_faults_are_found_among_facts_of_all_kinds() -> None:
    made = run(
        [
            event(LOGGED, 9),
            event(Kind.ACKED, 8),
            offer(2, time=2),
            offer(1, time=3),
            event(ARCHIVED, 4, 0, time=0),
            event(ARCHIVED, 3, 0, time=1),
            event(ARCHIVED, 12, 0, time=2),
        ]
    )
    assert ranges(made, TallyKind.R_OUT_OF_ORDER) == {1}
    assert made[TallyKind.OUT_OF_ORDER, 0, 0, 0] == 1
    assert ranges(made, TallyKind.R_ARCHIVE_OUT_OF_ORDER, NO_GROUP) == {3}
    assert made[TallyKind.ARCHIVE_LATE, NO_GROUP, 1000, 0] == 1, "late in the window of offset 12"


def test_failed_messages_without_an_offset_count_in_the_window_of_their_failure() -> None:
    failed = {"offset": -1, "kind": Kind.PRODUCE_FAILED, "time": 2_500_000, "timestamp": -1}
    made = run([failed, failed])
    assert made == {(TallyKind.FAILED, NO_GROUP, 2000, 0): 2}


def test_latencies_come_from_first_offers_and_acks() -> None:
    made = run(
        [
            offer(1, took=5000),
            offer(1, attempt=1, took=900_000),
            event(Kind.ACKED, 1, took=20_000),
            offer(2, took=8000),
            offer(3, took=-1),
        ]
    )
    assert counts(made, TallyKind.PRODUCE_OFFER) == 2
    assert made[TallyKind.MAX_PRODUCE_OFFER, 0, 0, 0] == 8000
    assert made[TallyKind.MAX_OFFER_ACK, 0, 0, 0] == 20_000


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.floats(0, 1))
def test_a_quantile_is_within_one_percent(values: list[int], wanted: float) -> None:
    numbers, n = np.unique(sketch.buckets(np.array(values)), return_counts=True)
    half = len(numbers) // 2
    merged = np.concatenate([numbers[half:], numbers[:half], numbers])
    twice = np.concatenate([n[half:], n[:half], n])
    true = sorted(values)[max(0, int(np.ceil(wanted * len(values))) - 1)]
    for found in (
        *sketch.quantiles(numbers, n, [wanted]),
        *sketch.quantiles(merged, twice, [wanted]),
    ):
        assert abs(found - max(true, 1)) <= 0.0101 * max(true, 1)


def test_an_empty_sketch_has_no_quantiles() -> None:
    nothing = np.zeros(0, np.int64)
    assert all(np.isnan(each) for each in sketch.quantiles(nothing, nothing, [0.5, 0.99]))


def test_facts_of_many_blocks_are_packed_block_by_block() -> None:
    rng = np.random.default_rng(7)
    facts = {name: rng.integers(0, 100, 500) for name in FACTS.names}
    facts["offset"] = rng.integers(-1, 300_000, 500)
    facts["block"] = facts["offset"] >> BLOCK_BITS
    facts["tp_id"] = rng.integers(0, 3, 500)
    packed = pack(facts).to_pylist()
    assert len({(row["tp_id"], row["block"]) for row in packed}) == len(packed)
    found = [unpack(row["tp_id"], row["block"], [row["facts"]]) for row in packed]
    rows = [row for each in found for row in zip(*(each[name].tolist() for name in FACTS.names), strict=True)]
    assert sorted(rows) == sorted(zip(*(facts[name].tolist() for name in FACTS.names), strict=True))
    assert pack({name: np.zeros(0, np.int64) for name in FACTS.names}).num_rows == 0
