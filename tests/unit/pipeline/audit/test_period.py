"""The offsets of a period: whole ranges of the lake, the log after them, and what an increment must look at again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pixy.pipeline.audit.findings import Finding, Severity
from pixy.pipeline.audit.open_sources import EVERYTHING, AuditSources
from pixy.pipeline.audit.period import carried, first_new, slices
from pixy.pipeline.audit.previous_run import PreviousRun
from pixy.pipeline.audit.request import AuditRequest
from pixy.pipeline.lake.checksum import Stats
from pixy.pipeline.lake.data_table import DataFile
from pixy.pipeline.lake.entry import Range
from pixy.pipeline.lake.state import Archived

TP = ("t", 0)


def archived(start: int, end: int, first: int, last: int, seq: int = 0) -> Archived:
    stats = Stats(end - start, 1, start, end - 1, first, last)
    return Archived(Range("t", "id", 0, start, end, stats), 0, "", 0, seq)


RANGES = [archived(0, 10, 1000, 1999), archived(10, 20, 1500, 2999, 1), archived(20, 30, 3000, 3999, 2)]


def opened(**more: Any) -> AuditSources:
    lake: Any = SimpleNamespace(identity=SimpleNamespace(id="lake-1"))
    return AuditSources(0, lake, ranges={TP: RANGES}, partitions=[TP], **more)


@pytest.mark.parametrize(
    ("since", "until", "expected"),
    [
        (None, None, EVERYTHING),
        (2000, None, (10, 30)),
        (2000, 3000, (10, 20)),
        (None, 1500, (0, 10)),
        (1600, 1700, (0, 20)),  # the first range may have records of the period, too
        (4000, None, (0, 0)),
    ],
)
def test_ranges_are_taken_whole(since: int | None, until: int | None, expected: tuple[int, int]) -> None:
    sources = opened(since=since, until=until)
    sources.slices = slices(sources)
    assert sources.slice(TP) == expected


def test_the_log_after_the_lake_belongs_to_the_period() -> None:
    view: Any = SimpleNamespace(offsets_at=lambda tps, _since: dict.fromkeys(tps, 35))
    sources = opened(since=4000, bounds={TP: (5, 50)}, view=view)
    sources.slices = slices(sources)
    assert sources.slice(TP)[0] == 35 and sources.clipped({TP: (5, 50)}) == {TP: (35, 50)}
    file = DataFile("f", "t", "", 1, 1, first_partition=0, last_partition=0, first=0, last=34)
    assert not sources.is_wanted(file)
    # Without a lake or a log only the journal knows the partition.
    other = AuditSources(0, partitions=[TP], since=5)
    assert slices(other) == {TP: EVERYTHING}


def previous(**more: Any) -> PreviousRun:
    inputs = {"lake": {"id": "lake-1", "entry": 1}, "settings": {"topics": ["t"], "late_after_ms": 500}}
    given = {"run": 1, "inputs": inputs, "at": 9000, "closed_before": 8000, "complete": True}
    return PreviousRun(**{**given, **more})


def test_an_increment_begins_with_the_oldest_news() -> None:
    request = AuditRequest("out", topics=("t",))
    sources = opened()
    assert first_new(request, sources, previous()) == 3000, "entry 2 is new"
    sources.ranges = {TP: RANGES[:2]}
    assert first_new(request, sources, previous()) == 8000, "windows were open"
    assert first_new(request, sources, previous(closed_before=9500)) == 8500, "queues were young"
    waiting = [(True, 700), (False, -1)]
    assert first_new(request, sources, previous(waiting=waiting)) == 700, "a group was late"


def test_everything_is_read_where_the_earlier_run_does_not_tell() -> None:
    request, sources = AuditRequest("out", topics=("t",)), opened()
    assert first_new(request, sources, PreviousRun()) is None
    assert first_new(request, sources, previous(complete=False)) is None
    assert first_new(request, sources, previous(waiting=[(True, -1)])) is None
    assert first_new(AuditRequest("out", topics=("t", "u")), sources, previous()) is None
    sources.lake = None
    assert first_new(request, sources, previous()) is None


def test_findings_outside_stay() -> None:
    sources = opened(since=2000)
    sources.slices = {TP: (10, 20)}

    def lost(start: int, end: int, kind: str = "missing in the lake", topic: str = "t") -> Finding:
        return Finding(Severity.LOSS, kind, topic, 0, None, start, end)

    old = [lost(5, 12), lost(12, 18), lost(18, 25), lost(0, 3, "group behind"), lost(1, 2, topic="u")]
    hole = Finding(Severity.UNKNOWN, "hole in the journal", since=1000)
    found = list(carried([*old, hole, Finding(Severity.UNKNOWN, "hole", since=3000)], sources))
    assert found == [lost(5, 10), lost(20, 25), lost(1, 2, topic="u"), hole]
    sources.slices = {}
    assert list(carried(old, sources)) == []
