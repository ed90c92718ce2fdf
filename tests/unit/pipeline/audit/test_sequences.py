"""Sequence numbers of idempotent producers: gaps and repeats, found and explained. Pure."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.audit import sequence_scan
from pixy.pipeline.audit.contents import MOST_RANGES, Evidence, Twice, of_contents
from pixy.pipeline.audit.findings import Severity
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.sequence_scan import Sequences, of_sequences
from pixy.pipeline.audit.sequences import Event, Header, SequenceTracker, Told

TOP = 2**31


def told(*headers: Header) -> list[Told]:
    tracker = SequenceTracker()
    found = [each for header in headers for each in tracker.see(header)]
    return [each for each in (*found, *tracker.finish()) if each.event in (Event.MISSING, Event.REPEATED)]


def batch(base: int, count: int, sequence: int, producer: int = 7, epoch: int = 0) -> Header:
    return Header(base, base + count - 1, producer, epoch, sequence)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([batch(0, 5, 0), batch(5, 5, 5), batch(10, 1, 10)], []),
        # 5 to 9 were never written: every offset has its batch.
        ([batch(0, 5, 0), batch(5, 5, 10)], [Told(Event.MISSING, 5, 5, 7, 0, 5, 5, 0)]),
        # Their offsets are there without a batch: compaction, perhaps.
        ([batch(0, 5, 0), batch(10, 5, 10)], [Told(Event.MISSING, 5, 10, 7, 0, 5, 5, 5)]),
        # Another producer's batch is where they would be.
        ([batch(0, 5, 0), batch(5, 5, 0, 8), batch(10, 5, 10)], [Told(Event.MISSING, 5, 10, 7, 0, 5, 5, 0)]),
        # A marker takes an offset and no number.
        ([batch(0, 5, 0), Header(5, 5, 7, 0, -1, True), batch(6, 5, 5)], []),
        # The same batch again, part of it again, and on after it.
        ([batch(0, 5, 0), batch(5, 5, 0), batch(10, 5, 5)], [Told(Event.REPEATED, 5, 10, 7, 0, 0, 5)]),
        ([batch(0, 5, 0), batch(5, 5, 3), batch(10, 5, 8)], [Told(Event.REPEATED, 5, 7, 7, 0, 3, 2)]),
        (
            [batch(0, 5, 0), batch(5, 5, 5), batch(10, 5, 0), batch(15, 5, 10)],
            [Told(Event.REPEATED, 10, 15, 7, 0, 0, 5)],
        ),
        # A new epoch begins at 0, or lacks something.
        ([batch(0, 5, 0), batch(5, 5, 0, epoch=1), batch(10, 5, 5, epoch=1)], []),
        ([batch(0, 5, 0), batch(5, 5, 2, epoch=1)], [Told(Event.MISSING, 5, 5, 7, 1, 0, 2, 0)]),
        ([batch(0, 5, 0, epoch=1), batch(5, 5, 90), batch(10, 5, 5, epoch=1)], []),
        # Producers are apart, and those that are not idempotent have no numbers.
        ([batch(0, 5, 0), batch(5, 5, 0, 8), batch(10, 5, 5, 8), batch(15, 5, 5)], []),
        ([batch(0, 5, -1, -1, -1), batch(5, 5, -1, -1, -1)], []),
        # After 2^31 - 1 comes 0.
        (
            [batch(0, 5, TOP - 8), batch(5, 5, TOP - 3), batch(10, 5, 2)],
            [Told(Event.MISSING, 0, 0, 7, 0, 0, TOP - 8, 0)],
        ),
        ([batch(TOP, 5, TOP - 5), batch(TOP + 5, 5, 0)], []),
        (
            [batch(TOP, 5, TOP - 5), batch(TOP + 5, 5, 3)],
            [Told(Event.MISSING, TOP + 5, TOP + 5, 7, 0, 0, 3, 0)],
        ),
        # What was before the log's start is gone, as it should be; what could not have been there was never written.
        ([batch(100, 5, 40)], []),
        ([batch(100, 5, 140)], [Told(Event.MISSING, 100, 100, 7, 0, 0, 140, 100)]),
    ],
)
def test_what_is_told(headers: list[Header], expected: list[Told]) -> None:
    assert told(*headers) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=40), st.data())
def test_only_what_is_planted_is_found(sent: list[tuple[int, int]], data: st.DataObject) -> None:
    """Producers write in any order; then one batch is left out, or written again at the end."""
    numbers, offset, log = dict.fromkeys(range(4), 0), 0, []
    for producer, count in sent:
        log.append(batch(offset, count, numbers[producer], producer))
        numbers[producer] += count
        offset += count
    assert told(*log) == []
    if not log:
        return
    at = data.draw(st.integers(0, len(log) - 1))
    lost = log[at]
    again = lost._replace(base_offset=offset, last_offset=offset + lost.last_offset - lost.base_offset)
    [found] = told(*log, again)
    assert (found.event, found.producer_id, found.sequence, found.size) == (
        Event.REPEATED,
        lost.producer_id,
        lost.base_sequence,
        lost.last_offset + 1 - lost.base_offset,
    )
    # Never written, so what came later has its offsets.
    size = lost.last_offset + 1 - lost.base_offset
    rest = [
        each._replace(base_offset=each.base_offset - size, last_offset=each.last_offset - size)
        for each in log[at + 1 :]
    ]
    found = told(*log[:at], *rest)
    if any(each.producer_id == lost.producer_id for each in rest):
        [one] = found
        assert (one.event, one.sequence, one.size, one.uncovered) == (
            Event.MISSING,
            lost.base_sequence,
            size,
            0,
        )
    else:
        assert found == []


def test_who_wrote_what() -> None:
    tracker = SequenceTracker()
    headers = [
        batch(0, 5, 0),
        batch(5, 5, 5),
        batch(10, 5, -1, -1, -1),
        Header(15, 15, 7, 0, -1, True),
        batch(16, 4, 10),
    ]
    found = [each for header in headers for each in tracker.see(header)] + list(tracker.finish())
    assert [(each.event, each.start, each.end) for each in found] == [
        (Event.NUMBERED, 0, 10),
        (Event.PLAIN, 10, 15),
        (Event.NUMBERED, 16, 20),
    ]


def test_findings_of_sequences() -> None:
    found = Sequences(
        {
            ("t", 0): [Told(Event.MISSING, 5, 10, 7, 0, 5, 5, 5)],
            ("c", 0): [Told(Event.MISSING, 5, 10, 7, 0, 5, 5, 5)],
            ("u", 0): [Told(Event.MISSING, 5, 5, 7, 0, 5, 5, 0), Told(Event.REPEATED, 9, 12, 7, 1, 3, 3)],
        }
    )
    every = {
        (each.topic, each.kind): (each.severity, each.why)
        for each in of_sequences(
            found, {"c": {"cleanup.policy": "compact,delete"}, "t": {"cleanup.policy": "delete"}}
        )
    }
    assert every == {
        ("t", "sequence missing"): (
            Severity.LOSS,
            "producer 7, epoch 0: sequence 5 to 9: the log has no batch for 5 offsets",
        ),
        ("c", "sequence missing"): (
            Severity.EXPLAINED,
            "producer 7, epoch 0: sequence 5 to 9: compaction, 5 offsets have no batch",
        ),
        ("u", "sequence missing"): (
            Severity.LOSS,
            "producer 7, epoch 0: sequence 5 to 9: sent and never written, before offset 5",
        ),
        ("u", "sequence repeated"): (
            Severity.FAULT,
            "producer 7, epoch 1: sequence 3 to 5 was there before: a retry was written again",
        ),
    }


def test_holes_of_compaction_are_told_one_by_one_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_scan, "MOST_EXPLAINED", 2)
    holed = [batch(at * 10, 1, at * 10) for at in range(6)] + [batch(51, 1, 90)]
    rows = {
        "topic": ["t"] * 7,
        "partition": [0] * 7,
        "baseOffset": [each.base_offset for each in holed],
        "lastOffset": [each.last_offset for each in holed],
        "producerId": [7] * 7,
        "producerEpoch": [0] * 7,
        "baseSequence": [each.base_sequence for each in holed],
        "isControl": [False] * 7,
    }

    def told_by(compacted: frozenset[str]) -> list[tuple[str, int, int]]:
        found = sequence_scan._track(compacted)([pa.RecordBatch.from_pydict(rows)])
        return [
            (row["event"], row["start"], row["size"])
            for part in found
            for row in part.to_pylist()
            if row["event"] == "missing"
        ]

    lost = ("missing", 51, 39)  # where there is no room, compaction is no reason
    assert told_by(frozenset({"t"})) == [("missing", 1, 9), ("missing", 11, 9), lost, ("missing", 21, 27)]
    assert told_by(frozenset()) == [*(("missing", at * 10 + 1, 9) for at in range(5)), lost]
    [finding] = of_sequences(Sequences({("t", 0): [Told(Event.MISSING, 21, 50, size=27, uncovered=27)]}), {})
    assert (finding.severity, finding.why) == (
        Severity.EXPLAINED,
        "compaction, 27 more numbers of any producers",
    )


def test_duplicates_are_explained_or_not() -> None:
    def span(start: int, end: int) -> dict[tuple[str, int], Intervals]:
        return {("t", 0): Intervals.span(start, end)}

    twice = [Twice("t", 0, 100, 150, 0, 0)]  # 100 as 0, 101 as 1 ...
    evidence = Evidence(
        repeated=span(100, 110),
        plain=span(130, 140),
        answered={("t", 0): Intervals.of([(15, 20), (110, 120)])},
        numbered={("t", 0): Intervals.of([(0, 30), (100, 125)])},
    )
    found = [(each.start, each.end, each.severity, each.why) for each in of_contents(twice, evidence)]
    assert [each[:3] for each in sorted(found)] == [
        (100, 110, Severity.FAULT),
        (110, 115, Severity.EXPLAINED),
        (115, 120, Severity.EXPLAINED),
        (120, 125, Severity.EXPLAINED),
        (125, 130, Severity.UNKNOWN),
        (130, 140, Severity.FAULT),
        (140, 150, Severity.UNKNOWN),
    ]
    by_start = {start: why for start, _, _, why in found}
    assert by_start[115] == "as t/0 from 15 on: sent twice, a daemon confirmed both to producers"
    assert by_start[110] == "as t/0 from 10 on: sent twice, each has a sequence number of its own"
    many = of_contents([Twice("t", 0, at, at + 1, 0, 0) for at in range(MOST_RANGES + 1)], Evidence())
    assert list(many)[-1].why == "more than 100000 ranges; the rest is not told"
