"""The judge against a judge that takes one fact after the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

from pixy.journal import Kind
from pixy.pipeline.audit import sketch
from pixy.pipeline.audit.classify import Context, Watch, judge
from pixy.pipeline.audit.facts import (
    ARCHIVED,
    BLOCK_BITS,
    FACTS,
    LOGGED,
    NO_GROUP,
    What,
    pack,
    unpack,
)

WINDOW, WATERMARK = 1000, 500
TP, BLOCK = 5, 3
BASE = BLOCK << BLOCK_BITS
STREAMS = {0: -1, 1: 0, 2: 0, 3: 1}
"""Group of each stream."""


def run(rows: list[dict[str, int]], watches: Any = None, holed: tuple[int, ...] = ()) -> Counter[Any]:
    """Tallies of (what, group, window, bucket)."""
    facts = {name: np.array([row.get(name, 0) for row in rows], np.int64) for name in FACTS.names}
    facts["tp"][:], facts["block"][:] = TP, facts["offset"] >> BLOCK_BITS
    context = Context(
        WINDOW,
        WATERMARK,
        np.array([STREAMS[at] for at in sorted(STREAMS)]),
        np.array([at in holed for at in sorted(STREAMS)]),
        watches or {},
        {TP: (np.array([BASE, BASE + 6]), np.array([700, 2600]))},
    )
    assert {name: column.tolist() for name, column in repacked(facts).items()} == {
        name: column.tolist() for name, column in facts.items()
    }, "packing keeps all"
    found = judge(facts, context)
    assert set(found["tp"].tolist()) <= {TP}
    made: Counter[Any] = Counter()
    for what, group, window, bucket, n in zip(
        found["what"], found["group"], found["window"], found["bucket"], found["n"], strict=True
    ):
        made[What(int(what)), int(group), int(window), int(bucket)] += int(n)
    return made


def repacked(facts: dict[str, Any]) -> dict[str, Any]:
    """Through what Spark shuffles."""
    packed = pack(facts).to_pylist()
    assert len(packed) == 1, "one block"
    return unpack(packed[0]["tp"], packed[0]["block"], [row["facts"] for row in packed])


def counts(made: Counter[Any], what: What, group: int = 0) -> int:
    return sum(n for key, n in made.items() if key[:2] == (what, group))


def ranges(made: Counter[Any], what: What, group: int = 0) -> set[int]:
    return {offset - BASE for key in made if key[:2] == (what, group) for offset in range(key[2], key[3])}


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


places = st.integers(0, 11)
rows = st.lists(
    st.one_of(
        st.builds(
            lambda at, stream, attempt, time: offer(at, stream, attempt, time),
            places,
            st.sampled_from([1, 2, 3]),
            st.integers(0, 2),
            st.integers(0, 30),
        ),
        st.builds(
            lambda kind, at, stream, attempt: event(kind, at, stream, attempt),
            st.sampled_from([Kind.RETURNED, Kind.ACKED, Kind.DROPPED, Kind.ACK_REFUSED]),
            places,
            st.sampled_from([1, 2, 3]),
            st.integers(0, 2),
        ),
        st.builds(lambda at: event(Kind.PRODUCED, at, 0), places),
        st.builds(lambda at: event(LOGGED, at, 0), places),
        st.builds(
            lambda at, file, row: event(ARCHIVED, at, file, time=row),
            places,
            st.integers(0, 1),
            st.integers(0, 20),
        ),
    ),
    min_size=1,
    max_size=60,
)


def naive(facts: list[dict[str, int]], group: int, watch: Watch, holed: set[int]) -> dict[What, Any]:
    """What the group's tallies must be, per offset."""
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
        if watch.start <= BASE + at < watch.committed
        and not any(start <= BASE + at < end for start, end in watch.skipped)
    }
    unknown = {at for at in open_ if watch.hole >= 0 and at * 100_000 <= watch.hole}
    return {
        What.OFFERED: len({row["offset"] for row in mine if row["kind"] == Kind.OFFERED}),
        What.DELIVERIES: reached.total(),
        What.ACKED: len({row["offset"] for row in mine if row["kind"] == Kind.ACKED}),
        What.RETRIED: sum(row["kind"] == Kind.OFFERED and row["attempt"] > 0 for row in mine),
        What.RETURNED: sum(row["kind"] == Kind.RETURNED for row in mine),
        What.DUPLICATES_RETRIED: sum(n - (at not in firsts) for at, n in retries.items()),
        What.DUPLICATES_REASSIGNED: sum(n - 1 for n in firsts.values()),
        What.DUPLICATES_UNEXPLAINED: sum(n - 1 for key, n in reached.items() if key[1] not in holed),
        What.DUPLICATES_UNKNOWN: sum(n - 1 for key, n in reached.items() if key[1] in holed),
        What.LOST: len(open_ - unknown),
        What.UNKNOWN: len(unknown),
        What.R_LOST: open_ - unknown,
        What.R_UNKNOWN: unknown,
    }


def misplaced(offers: list[tuple[int, int]]) -> set[int]:
    """Of (time, offset), each offset once: which come after a higher one."""
    found, most = set(), -1
    for _, at in sorted(offers):
        if at < most:
            found.add(at)
        most = max(most, at)
    return found


@settings(max_examples=100, deadline=None)
@given(
    rows,
    st.integers(0, 12),
    st.integers(-1, 12),
    st.integers(-1, 1_200_000),
    st.tuples(st.integers(0, 12), st.integers(0, 12)),
    st.sets(st.sampled_from([1, 2, 3])),
)
def test_the_vectors_agree_with_one_fact_after_the_other(
    facts: list[dict[str, int]],
    start: int,
    committed: int,
    hole: int,
    skip: tuple[int, int],
    holed: set[int],
) -> None:
    watch = Watch(
        BASE + start,
        BASE + committed if committed >= 0 else -1,
        hole,
        ((BASE + skip[0], BASE + skip[1]),),
    )
    made = run(facts, {(TP, 0): watch, (TP, 1): watch}, tuple(holed))
    for group in (0, 1):
        for what, wanted in naive(facts, group, watch, holed).items():
            found: Any = ranges(made, what, group) if isinstance(wanted, set) else counts(made, what, group)
            assert found == wanted, (what.name, group)
        deliveries = counts(made, What.DELIVERIES, group)
        again = sum(
            counts(made, what, group)
            for what in (
                What.DUPLICATES_RETRIED,
                What.DUPLICATES_REASSIGNED,
                What.DUPLICATES_UNEXPLAINED,
                What.DUPLICATES_UNKNOWN,
            )
        )
        assert 0 <= deliveries - again <= counts(made, What.OFFERED, group), "each kind is told once"
        wrong = set()
        for stream in (1, 2, 3):
            first: dict[int, int] = {}
            for row in facts:
                if (row["kind"], row["source"], row["attempt"]) == (Kind.OFFERED, stream, 0):
                    at = row["offset"] - BASE
                    first[at] = min(first.get(at, row["time"]), row["time"])
            if STREAMS[stream] == group:
                wrong |= misplaced([(time, at) for at, time in first.items()])
        assert ranges(made, What.R_OUT_OF_ORDER, group) == wrong


@settings(max_examples=60, deadline=None)
@given(rows)
def test_the_lake_is_compared_with_itself(facts: list[dict[str, int]]) -> None:
    made = run(facts)
    archived = Counter(row["offset"] - BASE for row in facts if row["kind"] == ARCHIVED)
    assert counts(made, What.ARCHIVED, NO_GROUP) == len(archived)
    assert counts(made, What.ARCHIVE_DUPLICATES, NO_GROUP) == archived.total() - len(archived)
    assert ranges(made, What.R_ARCHIVED, NO_GROUP) == set(archived)
    assert ranges(made, What.R_ARCHIVE_DUPLICATES, NO_GROUP) == {at for at, n in archived.items() if n > 1}
    exists = {row["offset"] for row in facts if row["kind"] in (ARCHIVED, LOGGED, Kind.PRODUCED)}
    assert counts(made, What.PRODUCED, NO_GROUP) == len(exists)
    late = sum(
        (700 if row["offset"] < BASE + 6 else 2600)
        > row["timestamp"] - row["timestamp"] % WINDOW + WINDOW + WATERMARK
        for row in facts
        if row["kind"] == ARCHIVED
    )
    assert counts(made, What.ARCHIVE_LATE, NO_GROUP) == late
    assert counts(made, What.ARCHIVE_DELAY, NO_GROUP) == archived.total()


def test_counts_go_to_the_window_of_the_record_and_not_of_the_event() -> None:
    made = run(
        [
            event(ARCHIVED, 3),
            event(LOGGED, 25),
            event(Kind.ACKED, 25, time=10**15),
            event(LOGGED, 4, timestamp=-1),
        ]
    )
    assert made[What.PRODUCED, NO_GROUP, 0, 0] == 1
    assert made[What.PRODUCED, NO_GROUP, 2000, 0] == 1
    assert made[What.PRODUCED, NO_GROUP, -1, 0] == 1
    assert made[What.ACKED, 0, 2000, 0] == 1


def test_what_could_not_be_written_has_no_offset_and_is_counted_by_its_time() -> None:
    failed = {"offset": -1, "kind": Kind.PRODUCE_FAILED, "time": 2_500_000, "timestamp": -1}
    made = run([failed, failed])
    assert made == {(What.FAILED, NO_GROUP, 2000, 0): 2}


def test_latencies_are_of_first_offers_and_of_acks() -> None:
    made = run(
        [
            offer(1, took=5000),
            offer(1, attempt=1, took=900_000),
            event(Kind.ACKED, 1, took=20_000),
            offer(2, took=8000),
            offer(3, took=-1),
        ]
    )
    assert counts(made, What.PRODUCE_OFFER) == 2
    assert made[What.MAX_PRODUCE_OFFER, 0, 0, 0] == 8000
    assert made[What.MAX_OFFER_ACK, 0, 0, 0] == 20_000


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
    facts["tp"] = rng.integers(0, 3, 500)
    packed = pack(facts).to_pylist()
    assert len({(row["tp"], row["block"]) for row in packed}) == len(packed)
    found = [unpack(row["tp"], row["block"], [row["facts"]]) for row in packed]
    rows = [row for each in found for row in zip(*(each[name].tolist() for name in FACTS.names), strict=True)]
    assert sorted(rows) == sorted(zip(*(facts[name].tolist() for name in FACTS.names), strict=True))
    assert pack({name: np.zeros(0, np.int64) for name in FACTS.names}).num_rows == 0
