"""The driver's view of a journal: holes, repeated batches, owners of partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pixy.journal import Kind, Lost, Stream, encode
from pixy.pipeline.audit.classify import GroupHistory
from pixy.pipeline.audit.facts import FACTS, unpack
from pixy.pipeline.audit.journal_scan import survey, to_facts
from pixy.pipeline.audit.journal_view import HoleReason, JournalView
from pixy.pipeline.errors import SourceError

SECOND = 1_000_000
HEARTBEAT = 10 * SECOND
FIRST = Stream("t", 0, "g", 1)


def record(
    sequence: int,
    events: Sequence[Any] = (),
    *,
    client: str = "a",
    epoch: int = 1,
    time: int | None = None,
    **more: Any,
) -> bytes:
    return encode(
        client,
        epoch,
        sequence,
        events,
        time=sequence * SECOND if time is None else time,
        heartbeat=HEARTBEAT,
        **more,
    )


def event(kind: Kind, offset: int, stream: Stream = FIRST, time: int = 0, attempt: int = 0) -> Any:
    return (kind, time, stream, offset, attempt, 1000 + offset, 50, 0, 0)


def view(*values: bytes, tasks: int = 1) -> JournalView:
    """Survey the journal with several tasks."""
    surveys = []
    for task in range(tasks):
        mine = [(at, value) for at, value in enumerate(values) if at % tasks == task]
        batch = pa.RecordBatch.from_pydict(
            {
                "partition": pa.array([0] * len(mine), pa.int32()),
                "offset": pa.array([at for at, _ in mine], pa.int64()),
                "value": pa.array([value for _, value in mine], pa.binary()),
            }
        )
        surveys += [out.column("survey")[0].as_py() for out in survey([batch])]
    return JournalView(surveys, "j")


NOW = 1000 * SECOND


def holes(found: JournalView, now: int = NOW) -> list[tuple[str, int, int, int]]:
    return [(hole.reason, hole.start, hole.end, hole.events) for hole in found.holes(now)]


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_complete_journal_has_no_holes(tasks: int) -> None:
    found = view(record(0), record(1, [event(Kind.ACKED, 5)]), record(2, final=True), tasks=tasks)
    assert holes(found) == []
    assert (found.events, found.clients, found.groups(), found.end) == (1, ["a"], ["g"], 2 * SECOND)
    assert found.streams_with_holes(NOW) == [False]


def test_missing_batch_numbers_are_a_hole() -> None:
    found = view(record(0), record(1), record(4), record(5, final=True))
    assert holes(found) == [(HoleReason.BATCHES_MISSING, SECOND, 4 * SECOND, 0)]
    one_missing = view(record(0), record(2, final=True))
    assert holes(one_missing) == [(HoleReason.BATCHES_MISSING, 0, 2 * SECOND, 0)]


def test_the_beginning_of_a_journal_may_have_expired() -> None:
    found = view(record(7), record(8, final=True))
    assert holes(found) == []
    assert not next(iter(found.epochs.values())).has_beginning


def test_events_that_the_daemon_dropped_are_a_hole() -> None:
    found = view(record(0), record(1, [event(Kind.ACKED, 5)], lost=Lost(17, 30, 40)), record(2, final=True))
    assert holes(found) == [(HoleReason.DROPPED, 30, 40, 17)]
    assert found.streams_with_holes(NOW) == [True]


def test_a_daemon_without_a_last_batch_counts_as_dead_after_three_heartbeats() -> None:
    found = view(record(0), record(1))
    assert holes(found, now=SECOND + 3 * HEARTBEAT) == []
    assert holes(found, now=SECOND + 3 * HEARTBEAT + 1) == [
        (HoleReason.NO_END, SECOND, SECOND + HEARTBEAT, 0)
    ]


def test_a_repeated_batch_is_read_once() -> None:
    value = record(1, [event(Kind.ACKED, 5)])
    found = view(record(0), value, value, record(2, final=True))
    assert found.repeated_records() == {(0, 2)}
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0, 0], pa.int32()),
            "offset": pa.array([1, 2], pa.int64()),
            "value": pa.array([value, value], pa.binary()),
        }
    )
    facts = list(to_facts(found.stream_numbers, {("t", 0): 4}, found.repeated_records())([batch]))
    assert [len(each) for each in facts] == [1]


def test_facts_are_events_with_numbers_for_names() -> None:
    other, elsewhere = Stream("t", 1, "h", 9), Stream("elsewhere", 0, "g", 1)
    value = record(
        0,
        [
            event(Kind.OFFERED, 70_000, time=5, attempt=2),
            event(Kind.ACKED, 3, other),
            event(Kind.ACKED, 3, elsewhere),
            event(Kind.ASSIGNED, 0),
            (Kind.PRODUCE_FAILED, 9, Stream("t", -1), -1, 0, -1, 20, 7, 1),
        ],
    )
    found = view(value)
    batch = pa.RecordBatch.from_pydict(
        {
            "partition": pa.array([0], pa.int32()),
            "offset": pa.array([0], pa.int64()),
            "value": pa.array([value], pa.binary()),
        }
    )
    (facts,) = to_facts(found.stream_numbers, {("t", 0): 4, ("t", 1): 6}, frozenset())([batch])
    rows = [
        dict(zip(FACTS.names, row, strict=True))
        for packed in facts.to_pylist()
        for columns in [unpack(packed["tp_id"], packed["block"], [packed["facts"]])]
        for row in zip(*(columns[name].tolist() for name in FACTS.names), strict=True)
    ]
    assert [(row["tp_id"], row["offset"], row["block"], row["kind"]) for row in rows] == [
        (4, -1, -1, Kind.PRODUCE_FAILED),
        (4, 70_000, 1, Kind.OFFERED),
        (6, 3, 0, Kind.ACKED),
    ]
    assert rows[1] == {
        "tp_id": 4,
        "block": 1,
        "offset": 70_000,
        "kind": 3,
        "source": found.stream_numbers["a", 1, "t", 0, "g", 1],
        "time": 5,
        "timestamp": 71_000,
        "attempt": 2,
        "took": 50,
        "code": 0,
    }


def history(*values: bytes, committed: int | None, now: int = NOW) -> GroupHistory | None:
    return view(*values).history(("t", 0), "g", committed, now)


def test_a_groups_history_starts_at_its_first_position() -> None:
    values = (
        record(
            0,
            [
                event(Kind.ASSIGNED, 10, time=1),
                event(Kind.OFFERED, 10, time=2),
                event(Kind.REVOKED, 12, time=3),
            ],
        ),
        record(1, final=True),
    )
    assert history(*values, committed=12) == GroupHistory(10, 12)
    assert history(*values, committed=None) == GroupHistory(10, 12), "the last position in the journal"
    assert view(*values).history(("t", 1), "g", 5, NOW) is None
    assert view(*values).history(("t", 0), "other", 5, NOW) is None


def test_a_history_without_its_assignment_starts_at_the_first_offer() -> None:
    values = (record(5, [event(Kind.OFFERED, 3, attempt=1), event(Kind.OFFERED, 101)]), record(6, final=True))
    assert history(*values, committed=110) == GroupHistory(101, 110)


def test_offsets_that_a_group_skips_are_listed() -> None:
    second = Stream("t", 0, "g", 2)
    values = (
        record(0, [event(Kind.ASSIGNED, 10, time=1), event(Kind.REVOKED, 12, time=3)]),
        record(1, [event(Kind.ASSIGNED, 50, second, time=4), event(Kind.REVOKED, 60, second, time=6)]),
        record(2, final=True),
    )
    assert history(*values, committed=60) == GroupHistory(10, 60, skipped=((12, 50),))
    assert history(*values, committed=75) == GroupHistory(10, 75, skipped=((12, 50), (60, 75)))
    assert history(
        *values[:1], record(1, [event(Kind.ASSIGNED, 12, second, time=4)]), committed=75
    ) == GroupHistory(10, 75, hole=SECOND + HEARTBEAT), "nothing is skipped while a member owns the partition"


def test_a_record_that_is_no_batch_is_reported_with_its_offset() -> None:
    with pytest.raises(SourceError, match=r"journal j/0, offset 1: not a journal batch.* \(and 1 more"):
        view(record(0), b"x", b"y")


def test_columns_of_each_width_decode() -> None:
    from pixy.journal import decode
    from pixy.pipeline.audit.journal_scan import column

    for spread in (0, 1, 255, 256, 70_000, 2**33):
        events = [event(Kind.ACKED, 10**12), event(Kind.ACKED, 10**12 + spread)]
        batch = decode(record(0, events))
        assert column(batch.columns["offset"], 2).tolist() == [10**12, 10**12 + spread]
        assert column(batch.columns["offset"], 2).dtype == np.int64
