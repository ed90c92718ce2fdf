"""A bucket of offsets against the log and the lake: sets of offsets say the same, one offset after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pixy.config import Proxy
from pixy.pipeline.audit.gaps import BatchSpan
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.errors import UsageError
from pixy.pipeline.table_audit.bounds import Expected
from pixy.pipeline.table_audit.buckets import SIZE, Bucket, Problem, compare, offsets_of
from pixy.pipeline.table_audit.repair import write_repair
from pixy.pipeline.table_audit.request import TableRequest, parse_columns
from tests.effort import examples

LOG_START, END, DUE = 20, 60, 50
offsets = st.frozensets(st.integers(0, 79))


def log_of(records: frozenset[int]) -> Any:
    """Return a scan of a log in which each offset is a batch: a record, or a marker where there is none."""

    def scan(partition: Expected, missing: Intervals) -> Sequence[BatchSpan]:
        assert missing.start >= partition.log_start, "what is gone is not asked for"
        return [
            BatchSpan(
                at,
                at + 1,
                Intervals.offsets([at] if at in records else []),
                at not in records,
                False,
                ((at, at),),
            )
            for at in range(LOG_START, END)
            if at in missing
        ]

    return scan


@settings(max_examples=examples(200), deadline=None)
@given(
    offsets,
    offsets,
    offsets,
    st.none() | st.tuples(st.integers(0, 40), st.integers(41, 60)),
    st.integers(0, 60),
)
def test_each_offset_has_the_problem_that_its_sources_tell(
    table: frozenset[int],
    records: frozenset[int],
    lake: frozenset[int],
    covered: tuple[int, int] | None,
    erased: int,
) -> None:
    lake = frozenset(at for at in lake if covered and covered[0] <= at < covered[1])
    table_end = max(table, default=-1) + 1
    gone = range(erased, erased + 4) if covered else range(0)
    why = tuple((start, start + 3, "on request") for start in gone[:2])  # they overlap
    partition = Expected("t", 0, 0, END, LOG_START, table_end, DUE, covered or (0, 0), erased=why)
    bucket = Bucket(0, *(Intervals.offsets(each) for each in (table, lake, table & records)))
    found = {}
    for each in compare(partition, [bucket], log_of(records)):
        for at in range(each.start, each.end):
            assert at not in found or Problem.DOUBLED in (found[at][0], each.problem), "one problem each"
            if each.problem is not Problem.DOUBLED:
                found[at] = (each.problem, each.source)

    def problem(at: int) -> Any:
        if at in table:
            return (Problem.BEYOND, "") if at >= END else None
        if at >= END:
            return None
        if at in gone and at not in lake:
            return Problem.ERASED, ""
        kind = Problem.MISSING if at < table_end else Problem.LATE if at < DUE else Problem.NOT_DUE
        if at in lake and (at < table_end or at < LOG_START):
            return kind, "lake"
        if at < LOG_START:
            return (Problem.EXPLAINED if covered and covered[0] <= at < covered[1] else Problem.GONE), ""
        return (kind, "broker") if at in records else (Problem.EXPLAINED, "")

    # Buckets cover whole ranges of offsets, beyond the last one here.
    assert found == {at: told for at in range(80) if (told := problem(at)) is not None}


@given(st.frozensets(st.integers(0, SIZE - 1), max_size=50), st.integers(0, 5))
def test_a_bitmap_is_spark_s(members: frozenset[int], number: int) -> None:
    bitmap = bytearray(SIZE // 8)
    for bit in members:
        bitmap[bit // 8] |= 1 << bit % 8
    assert offsets_of(bytes(bitmap), number) == Intervals.offsets(number * SIZE + bit for bit in members)
    assert offsets_of(None, number) == Intervals()


def test_the_list_for_repair_has_faults_only_and_no_more_than_one_range_in_memory(tmp_path: Any) -> None:
    partition = Expected("t", 3, 0, END, LOG_START, 40, DUE)
    findings = compare(partition, [Bucket(0, Intervals.span(30, 40))], log_of(frozenset({25, 26, 45})))
    counts = write_repair(str(tmp_path / "repair.jsonl"), ((partition, each) for each in findings))
    lines = (tmp_path / "repair.jsonl").read_text().splitlines()
    assert [line[:70] for line in lines] == [
        '{"problem": "missing", "topic": "t", "partition": 3, "start": 25, "end"',
        '{"problem": "late", "topic": "t", "partition": 3, "start": 45, "end": 4',
    ] or len(lines) == 2
    assert (counts.total(Problem.MISSING), counts.total(Problem.LATE), counts.total(Problem.GONE)) == (
        2,
        1,
        20,
    )
    assert counts.ranges == 2 and not list(tmp_path.glob("*.jsonl.*"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("offset", "partition must be named"),
        ("partition=p,offset=o,partition=q", "is given twice"),
        ("partition=p,offset=o,value=v", "is not ROLE=COLUMN"),
        ("partition=,offset", "is not ROLE=COLUMN"),
    ],
)
def test_a_wrong_mapping_is_an_error_that_names_it(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_columns(text)


def test_a_mapping_names_columns_by_role_and_a_table_of_one_topic_needs_its_name() -> None:
    columns = parse_columns("topic, partition = kafka.partition,offset=kafka.offset")
    assert columns == {"topic": "topic", "partition": "kafka.partition", "offset": "kafka.offset"}
    TableRequest("t", "parquet", columns, Proxy()).check()
    for wrong in (
        TableRequest("t", "parquet", {"partition": "p", "offset": "o"}, Proxy()),
        TableRequest("t", "parquet", {**columns, "written": "w"}, Proxy()),
        TableRequest("t", "parquet", columns, Proxy(), ("a b",)),
    ):
        with pytest.raises(UsageError):
            wrong.check()
