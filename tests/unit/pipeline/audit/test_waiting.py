"""What waits for a group or for the archive, and how much of it is older than the bound."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pixy.config import Proxy
from pixy.pipeline.audit import findings, waiting
from pixy.pipeline.audit.gaps import Gap
from pixy.pipeline.audit.intervals import Intervals
from pixy.pipeline.audit.waiting import Waiting, find_waiting

NOW, BOUND = 1_000_000, 60_000


def sources(committed: dict[Any, int], young: int, archived: int | None = None) -> Any:
    """Return a topic of one partition with the log [100, 200); offsets from ``young`` on are younger than the bound."""

    def offsets_at(partitions: list[Any], time: int) -> dict[Any, int]:
        assert time == NOW - BOUND
        return dict.fromkeys(partitions, young)

    return SimpleNamespace(
        now=NOW * 1000,
        view=SimpleNamespace(offsets_at=offsets_at),
        partitions=[("t", 0)],
        bounds={("t", 0): (100, 200)},
        groups=sorted({group for group, *_ in committed}),
        committed=committed,
        archived_topics=lambda: [] if archived is None else ["t"],
        archived_end=lambda _tp: archived,
    )


@pytest.fixture(autouse=True)
def log(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(_proxy: Any, _topic: str, _partition: int, wanted: Intervals, _start: int) -> Any:
        return (SimpleNamespace(timestamps=[(wanted.start, 5 * wanted.start)]),)

    monkeypatch.setattr(waiting, "scan_log", scan)


@pytest.mark.parametrize(
    ("committed", "young", "expected"),
    [
        (150, 120, Waiting("t", 0, "g", 150, 200)),
        (150, 180, Waiting("t", 0, "g", 150, 200, 0, 30, 750)),
        (150, -1, Waiting("t", 0, "g", 150, 200, 0, 50, 750)),
        (40, 120, Waiting("t", 0, "g", 100, 200, 60, 20, 500)),
    ],
    ids=["young", "some late", "all late", "expired before"],
)
def test_offsets_below_the_first_young_one_are_late(committed: int, young: int, expected: Waiting) -> None:
    assert find_waiting(sources({("g", "t", 0): committed}, young), Proxy(), BOUND) == [expected]


def test_a_group_at_the_end_or_without_a_position_waits_for_nothing() -> None:
    assert find_waiting(sources({("g", "t", 0): 200, ("h", "t", 0): -1}, 120), Proxy(), BOUND) == []


def test_the_archive_waits_too_and_no_cluster_means_no_answer() -> None:
    found = find_waiting(sources({}, 190, archived=180), Proxy(), BOUND)
    assert found == [Waiting("t", 0, None, 180, 200, 0, 10, 900)]
    assert find_waiting(sources({}, 190, archived=180), None, BOUND) == []


def test_late_queues_are_behind_and_young_ones_are_explained() -> None:
    made = list(
        findings.from_waiting(
            [
                Waiting("t", 0, "g", 150, 200, 10, 30, 750),
                Waiting("t", 1, "g", 150, 200),
                Waiting("t", 2, None, 5, 9, 0, 4, 7),
            ],
            BOUND,
        )
    )
    assert [(each.severity, each.kind, each.start, each.end, each.since) for each in made] == [
        ("fault", "expired before the group read it", 140, 150, -1),
        ("behind", "group behind", 150, 200, 750),
        ("explained", "waiting for the group", 150, 200, -1),
        ("behind", "not archived yet", 5, 9, 7),
    ]
    assert made[1].why == "30 of 50 waiting offsets are older than 1 min"


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (1500, "1.5 s"),
        (90_000, "90 s"),
        (120_000, "2 min"),
        (3_600_000, "1 h"),
        (86_400_000, "1 day"),
        (10**9, "11.6 days"),
    ],
)
def test_durations_for_people(millis: int, text: str) -> None:
    assert findings.duration(millis) == text


def test_every_kind_of_finding_that_is_no_explanation_has_advice() -> None:
    from pixy.pipeline.audit.advice import Subject, advise
    from pixy.pipeline.audit.problems import PLACES
    from pixy.pipeline.audit.request import AuditRequest

    request = AuditRequest("out", "lake")
    kinds = {*PLACES, "lost to the group", "group behind", "offered twice", "offered out of order"}
    for kind in kinds | {name for _, name, _ in findings._RANGE_FINDINGS.values()}:
        found = advise(kind, Subject(request, "a topic", "g", str(Gap), ((0, 1, 2),)))
        assert found.cause, kind
        assert all("'a topic'" in text for text, _ in found.commands if " g" not in text), found


def test_a_python_that_is_missing_on_executors_is_one_line() -> None:
    from pixy.pipeline.audit.spark_jobs import run
    from pixy.pipeline.errors import SourceError

    def query() -> None:
        raise PySparkException(
            'awaitResult: java.io.IOException: Cannot run program "./env/bin/python": error=2, No such file'
        )

    with pytest.raises(
        SourceError, match=r"there is no \./env/bin/python where Spark runs Python.*spark\.pyspark\.python"
    ):
        run(query, "the log cannot be read")
