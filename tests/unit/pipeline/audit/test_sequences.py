"""Gaps and repeats of sequence numbers, and duplicate contents, are found and explained. Pure."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pixy.pipeline.audit import sequence_scan
from pixy.pipeline.audit.duplicate_contents import MAX_RANGES, DuplicateRange, Evidence, contents_findings
from pixy.pipeline.audit.findings import Severity
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.sequence_scan import Sequences, sequence_findings
from pixy.pipeline.audit.sequences import Header, Observation, ObservationKind, SequenceTracker

TOP = 2**31


def observed(*headers: Header) -> list[Observation]:
    tracker = SequenceTracker()
    found = [each for header in headers for each in tracker.add(header)]
    return [
        each
        for each in (*found, *tracker.finish())
        if each.kind in (ObservationKind.MISSING, ObservationKind.REPEATED)
    ]


def batch(base: int, count: int, sequence: int, producer: int = 7, epoch: int = 0) -> Header:
    return Header(base, base + count - 1, producer, epoch, sequence)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([batch(0, 5, 0), batch(5, 5, 5), batch(10, 1, 10)], []),
        # 5 to 9 were never written: a batch covers every offset.
        ([batch(0, 5, 0), batch(5, 5, 10)], [Observation(ObservationKind.MISSING, 5, 5, 7, 0, 5, 5, 0)]),
        # No batch covers their offsets: perhaps compaction removed them.
        ([batch(0, 5, 0), batch(10, 5, 10)], [Observation(ObservationKind.MISSING, 5, 10, 7, 0, 5, 5, 5)]),
        # Another producer's batch has the offsets that they would have.
        (
            [batch(0, 5, 0), batch(5, 5, 0, 8), batch(10, 5, 10)],
            [Observation(ObservationKind.MISSING, 5, 10, 7, 0, 5, 5, 0)],
        ),
        # A transaction marker has an offset but no number.
        ([batch(0, 5, 0), Header(5, 5, 7, 0, -1, True), batch(6, 5, 5)], []),
        # A repeated batch, a partly repeated one, and numbers that continue after it.
        (
            [batch(0, 5, 0), batch(5, 5, 0), batch(10, 5, 5)],
            [Observation(ObservationKind.REPEATED, 5, 10, 7, 0, 0, 5)],
        ),
        (
            [batch(0, 5, 0), batch(5, 5, 3), batch(10, 5, 8)],
            [Observation(ObservationKind.REPEATED, 5, 7, 7, 0, 3, 2)],
        ),
        (
            [batch(0, 5, 0), batch(5, 5, 5), batch(10, 5, 0), batch(15, 5, 10)],
            [Observation(ObservationKind.REPEATED, 10, 15, 7, 0, 0, 5)],
        ),
        # A new epoch starts at 0, or numbers are missing.
        ([batch(0, 5, 0), batch(5, 5, 0, epoch=1), batch(10, 5, 5, epoch=1)], []),
        (
            [batch(0, 5, 0), batch(5, 5, 2, epoch=1)],
            [Observation(ObservationKind.MISSING, 5, 5, 7, 1, 0, 2, 0)],
        ),
        ([batch(0, 5, 0, epoch=1), batch(5, 5, 90), batch(10, 5, 5, epoch=1)], []),
        # Each producer has its own numbers; producers without idempotence have none.
        ([batch(0, 5, 0), batch(5, 5, 0, 8), batch(10, 5, 5, 8), batch(15, 5, 5)], []),
        ([batch(0, 5, -1, -1, -1), batch(5, 5, -1, -1, -1)], []),
        # 0 follows 2^31 - 1.
        (
            [batch(0, 5, TOP - 8), batch(5, 5, TOP - 3), batch(10, 5, 2)],
            [Observation(ObservationKind.MISSING, 0, 0, 7, 0, 0, TOP - 8, 0)],
        ),
        ([batch(TOP, 5, TOP - 5), batch(TOP + 5, 5, 0)], []),
        (
            [batch(TOP, 5, TOP - 5), batch(TOP + 5, 5, 3)],
            [Observation(ObservationKind.MISSING, TOP + 5, TOP + 5, 7, 0, 0, 3, 0)],
        ),
        # Numbers below the log's start have expired; numbers that do not fit below it were never written.
        ([batch(100, 5, 40)], []),
        ([batch(100, 5, 140)], [Observation(ObservationKind.MISSING, 100, 100, 7, 0, 0, 140, 100)]),
    ],
)
def test_gaps_and_repeats_are_observed(headers: list[Header], expected: list[Observation]) -> None:
    assert observed(*headers) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20)), max_size=40), st.data())
def test_only_planted_faults_are_found(sent: list[tuple[int, int]], data: st.DataObject) -> None:
    """Producers write in any order; then one batch is omitted, or repeated at the end."""
    numbers, offset, log = dict.fromkeys(range(4), 0), 0, []
    for producer, count in sent:
        log.append(batch(offset, count, numbers[producer], producer))
        numbers[producer] += count
        offset += count
    assert observed(*log) == []
    if not log:
        return
    at = data.draw(st.integers(0, len(log) - 1))
    lost = log[at]
    again = lost._replace(base_offset=offset, last_offset=offset + lost.last_offset - lost.base_offset)
    [found] = observed(*log, again)
    assert (found.kind, found.producer_id, found.sequence, found.size) == (
        ObservationKind.REPEATED,
        lost.producer_id,
        lost.base_sequence,
        lost.last_offset + 1 - lost.base_offset,
    )
    # The batch was never written, so later batches have its offsets.
    size = lost.last_offset + 1 - lost.base_offset
    rest = [
        each._replace(base_offset=each.base_offset - size, last_offset=each.last_offset - size)
        for each in log[at + 1 :]
    ]
    found = observed(*log[:at], *rest)
    if any(each.producer_id == lost.producer_id for each in rest):
        [one] = found
        assert (one.kind, one.sequence, one.size, one.uncovered) == (
            ObservationKind.MISSING,
            lost.base_sequence,
            size,
            0,
        )
    else:
        assert found == []


def test_offsets_are_divided_into_numbered_and_unnumbered() -> None:
    tracker = SequenceTracker()
    headers = [
        batch(0, 5, 0),
        batch(5, 5, 5),
        batch(10, 5, -1, -1, -1),
        Header(15, 15, 7, 0, -1, True),
        batch(16, 4, 10),
    ]
    found = [each for header in headers for each in tracker.add(header)] + list(tracker.finish())
    assert [(each.kind, each.start, each.end) for each in found] == [
        (ObservationKind.NUMBERED, 0, 10),
        (ObservationKind.UNNUMBERED, 10, 15),
        (ObservationKind.NUMBERED, 16, 20),
    ]


def test_sequence_findings_have_severity_and_reason() -> None:
    found = Sequences(
        {
            ("t", 0): [Observation(ObservationKind.MISSING, 5, 10, 7, 0, 5, 5, 5)],
            ("c", 0): [Observation(ObservationKind.MISSING, 5, 10, 7, 0, 5, 5, 5)],
            ("u", 0): [
                Observation(ObservationKind.MISSING, 5, 5, 7, 0, 5, 5, 0),
                Observation(ObservationKind.REPEATED, 9, 12, 7, 1, 3, 3),
            ],
        }
    )
    every = {
        (each.topic, each.kind): (each.severity, each.why)
        for each in sequence_findings(
            found, {"c": {"cleanup.policy": "compact,delete"}, "t": {"cleanup.policy": "delete"}}
        )
    }
    assert every == {
        ("t", "sequence missing"): (
            Severity.LOSS,
            "producer 7, epoch 0, sequence 5 to 9: lost from the log, 5 offsets have no batch",
        ),
        ("c", "sequence missing"): (
            Severity.EXPLAINED,
            "producer 7, epoch 0, sequence 5 to 9: removed by compaction, 5 offsets have no batch",
        ),
        ("u", "sequence missing"): (
            Severity.LOSS,
            "producer 7, epoch 0, sequence 5 to 9: sent but never written before offset 5",
        ),
        ("u", "sequence repeated"): (
            Severity.FAULT,
            "producer 7, epoch 1, sequence 3 to 5: a retry was written again",
        ),
    }


def test_gaps_of_compaction_are_reported_one_by_one_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence_scan, "MAX_EXPLAINED", 2)
    streams_with_holes = [batch(at * 10, 1, at * 10) for at in range(6)] + [batch(51, 1, 90)]
    rows = {
        "topic": ["t"] * 7,
        "partition": [0] * 7,
        "baseOffset": [each.base_offset for each in streams_with_holes],
        "lastOffset": [each.last_offset for each in streams_with_holes],
        "producerId": [7] * 7,
        "producerEpoch": [0] * 7,
        "baseSequence": [each.base_sequence for each in streams_with_holes],
        "isControl": [False] * 7,
    }

    def observed_by(compacted: frozenset[str]) -> list[tuple[str, int, int]]:
        found = sequence_scan._track(compacted)([pa.RecordBatch.from_pydict(rows)])
        return [
            (row["kind"], row["start"], row["size"])
            for part in found
            for row in part.to_pylist()
            if row["kind"] == "missing"
        ]

    lost = ("missing", 51, 39)  # no offsets are free, so compaction is no explanation
    assert observed_by(frozenset({"t"})) == [("missing", 1, 9), ("missing", 11, 9), lost, ("missing", 21, 27)]
    assert observed_by(frozenset()) == [*(("missing", at * 10 + 1, 9) for at in range(5)), lost]
    [finding] = sequence_findings(
        Sequences({("t", 0): [Observation(ObservationKind.MISSING, 21, 50, size=27, uncovered=27)]}), {}
    )
    assert (finding.severity, finding.why) == (
        Severity.EXPLAINED,
        "compaction removed 27 more numbers, of any producers",
    )


@pytest.mark.slow
def test_duplicate_contents_are_explained_or_not() -> None:
    def span(start: int, end: int) -> dict[tuple[str, int], Intervals]:
        return {("t", 0): Intervals.span(start, end)}

    twice = [DuplicateRange("t", 0, 100, 150, 0, 0)]  # 100 as 0, 101 as 1 ...
    evidence = Evidence(
        repeated=span(100, 110),
        unnumbered=span(130, 140),
        confirmed={("t", 0): Intervals.of([(15, 20), (110, 120)])},
        numbered={("t", 0): Intervals.of([(0, 30), (100, 125)])},
    )
    found = [(each.start, each.end, each.severity, each.why) for each in contents_findings(twice, evidence)]
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
    assert (
        by_start[115]
        == "same content as t/0 from offset 15: sent twice; a daemon confirmed both to producers"
    )
    assert by_start[110] == "same content as t/0 from offset 10: sent twice; each has its own sequence number"
    many = contents_findings(
        [DuplicateRange("t", 0, at, at + 1, 0, 0) for at in range(MAX_RANGES + 1)], Evidence()
    )
    assert list(many)[-1].why == "there are more than 100,000 ranges; the others are not listed"
