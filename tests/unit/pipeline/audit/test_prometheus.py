"""The audit's gauges, read back with Prometheus' own parser."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pixy.errors import PixyError
from pixy.pipeline.audit import prometheus
from pixy.pipeline.audit.tallies import GROUP_COUNTS, TOPIC_COUNTS
from pixy.pipeline.errors import PipelineError, UsageError


def summary(**more: Any) -> dict[str, Any]:
    """A summary of two topics, one of them with a group, and one finding."""
    topics = [
        {
            "topic": topic,
            **{kind.name.lower(): 0 for kind in TOPIC_COUNTS},
            "produced": produced,
            "archive_lost": lost,
        }
        for topic, produced, lost in (("a", 7, 1), ('b"\\', 5, 0))
    ]
    topics[0] |= {"archive_delay_p50_ms": 1500.0, "archive_delay_max_ms": 2500.0}
    group = {
        "topic": "a",
        "group": "g",
        **{kind.name.lower(): 0 for kind in GROUP_COUNTS},
        "acked": 6,
        "offer_ack_p99_ms": 12.5,
    }
    return {
        "verdict": "loss",
        "run": 3,
        "at": "2026-11-21T19:00:00.250+00:00",
        "sources": ["lake", "journal"],
        "windows": {"count": 4, "closed": 3, "restated": 1, "carried": 0},
        "topics": topics,
        "groups": [group],
        "partitions": [
            {
                "topic": "a",
                "partition": 2,
                "archived_records": 6,
                "not_archived_yet": 1,
                "missing": 3,
                "lost": 1,
            }
        ],
        "found": [{"severity": "loss", "kind": "missing in the lake", "ranges": 1, "offsets": 1}],
        **more,
    }


def read(path: Path) -> dict[tuple[Any, ...], float]:
    """Return the samples by name without the prefix, then the values of the labels sorted by name."""
    return {
        (
            sample.name.removeprefix("kafka_pixy_audit_"),
            *(sample.labels[name] for name in sorted(sample.labels)),
        ): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


def test_the_gauges_have_the_summarys_values(tmp_path: Path) -> None:
    file = tmp_path / "audit.prom"
    prometheus.write(str(file), summary())
    found = read(file)
    wanted = {
        ("timestamp_seconds",): 1795287600.25,
        ("run",): 3,
        ("verdict", "loss"): 1,
        ("verdict", "clean"): 0,
        ("verdict", "fault"): 0,
        ("source", "lake"): 1,
        ("source", "journal"): 1,
        ("source", "log"): 0,
        ("windows",): 4,
        ("windows_closed",): 3,
        ("windows_restated",): 1,
        ("windows_carried",): 0,
        ("topic_produced", "a"): 7,
        ("topic_produced", 'b"\\'): 5,
        ("topic_archive_lost", "a"): 1,
        ("group_acked", "g", "a"): 6,
        ("group_lost", "g", "a"): 0,
        ("partition_missing", "2", "a"): 3,
        ("partition_lost", "2", "a"): 1,
        ("findings", "missing in the lake", "loss"): 1,
        ("latency_seconds", "", "archive_delay", "0.5", "a"): 1.5,
        ("latency_seconds", "", "archive_delay", "1", "a"): 2.5,
        ("latency_seconds", "g", "offer_ack", "0.99", "a"): 0.0125,
    }
    assert {key: found.get(key) for key in wanted} == wanted


def test_an_audit_without_data_has_no_gauges_of_topics(tmp_path: Path) -> None:
    file = tmp_path / "audit.prom"
    nothing = {"count": 0, "closed": 0, "restated": 0, "carried": 0}
    prometheus.write(
        str(file),
        summary(
            verdict="clean",
            windows=nothing,
            topics=[],
            groups=[],
            partitions=[],
            found=[],
            sources=[],
        ),
    )
    found = read(file)
    assert (found["windows",], found["verdict", "clean"]) == (0, 1)
    assert not [key for key in found if key[0].startswith(("topic_", "group_", "partition_", "findings"))]


@pytest.mark.slow
def test_the_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """A collector that reads continuously never sees a partial file."""
    file = tmp_path / "audit.prom"
    prometheus.write(str(file), summary())
    whole, over, seen = file.read_bytes(), threading.Event(), set()

    def collect() -> None:
        while not over.is_set():
            seen.add(file.read_bytes())

    collector = threading.Thread(target=collect)
    collector.start()
    for _ in range(200):
        prometheus.write(str(file), summary())
    over.set()
    collector.join()
    assert seen == {whole}
    assert [path.name for path in tmp_path.iterdir()] == ["audit.prom"]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--prometheus .*/gone/a\.prom: the folder does not exist"):
        prometheus.check_file(str(tmp_path / "gone" / "a.prom"))
    prometheus.check_file("")
    prometheus.check_file(str(tmp_path / "a.prom"))
    (tmp_path / "a.prom").mkdir()
    with pytest.raises(PipelineError, match=r"--prometheus .*/a\.prom: Is a directory") as caught:
        prometheus.write(str(tmp_path / "a.prom"), summary())
    assert isinstance(caught.value, PixyError)
    assert [path.name for path in tmp_path.iterdir()] == ["a.prom"]
