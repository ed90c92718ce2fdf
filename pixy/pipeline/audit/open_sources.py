"""Before the judge: open the sources, in the order that makes their word comparable.

What a group has committed is asked *before* the end of the journal is looked up, with a pause between
that lets daemons write what they hold: so every ack that the committed offset counts is in the journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pixy.config.model import Proxy
from pixy.kafka import settings
from pixy.kafka.blocking import ClusterView
from pixy.pipeline.audit import engine, sources
from pixy.pipeline.audit.journal_view import JournalView
from pixy.pipeline.errors import SourceError, UsageError
from pixy.pipeline.lake import Lake, State
from pixy.pipeline.spark.hadoop_store import store_for
from pixy.wire.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Request:
    """What to audit.

    Attributes:
        lake: a lake's folder or URI; empty: none.
        proxy: the cluster; None: nobody is asked, only the lake is looked at.
        topics: empty: those of the lake and of the journal.
        groups: empty: those of the journal.
        window, watermark: milliseconds.
        journal: the topic that holds the journal; empty: the one that the configuration names.
        log: read the broker's log where the lake does not reach.
        settle: seconds that daemons have to write what they know.
        sequences: follow idempotent producers' sequence numbers through the whole log.
        contents: look for content that is there twice.
    """

    out: str
    lake: str = ""
    cluster: str = ""
    proxy: Proxy | None = None
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    window: int = 60_000
    watermark: int = 60_000
    journal: str = ""
    log: bool = True
    settle: float = 2.0
    sequences: bool = True
    contents: bool = True


@dataclass(slots=True)
class Gathered:
    """The sources, opened; what is absent is None or empty."""

    now: int
    """Microseconds since 1970."""
    lake: Lake | None = None
    state: State = field(default_factory=State)
    view: ClusterView | None = None
    journal: JournalView | None = None
    journal_frame: DataFrame | None = None
    journal_from: str = ""
    places: list[TopicPartition] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By (group, topic, partition)."""
    bounds: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    """Log start and last stable offset of the partitions that the cluster has."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)

    def archived_end(self, place: TopicPartition) -> int | None:
        """Up to where the lake has a partition; None: not at all."""
        ranges = self.state.ranges.get(place)
        return max(each.range.end for each in ranges) if ranges else None


def gather(spark: SparkSession, request: Request, told: Callable[[str], None]) -> Gathered:
    """Open everything.

    Raises:
        PixyError: a source is named that is not there or can not be read; the text names it.
    """
    found = Gathered(time.time_ns() // 1000)
    if request.lake:
        found.lake = Lake.open(request.lake, store_for(request.lake, spark))
        found.state = found.lake.state()
        told(f"lake {request.lake}: {len(found.state.files):,} files, log entry {found.state.seq}")
    clustered: dict[str, int] = {}
    if request.proxy is not None:
        found.view = ClusterView(settings.admin(request.proxy), request.proxy.net.dial_timeout)
        clustered = found.view.topics()
    _journal(spark, request, found, clustered, told)
    _places(request, found, clustered)
    if found.view is not None:
        here = [place for place in found.places if place[1] < clustered.get(place[0], 0)]
        found.bounds = found.view.bounds(here, committed=True)
        found.configs = found.view.configs(sorted({topic for topic, _ in here}))
    return found


def _places(request: Request, found: Gathered, clustered: dict[str, int]) -> None:
    places = set(found.state.ranges)
    if found.journal is not None:
        places |= found.journal.places()
    topics = set(request.topics) or {topic for topic, _ in places}
    topics -= {_journal_topic(request)}
    places |= {(topic, number) for topic in topics for number in range(clustered.get(topic, 0))}
    missing = topics - {topic for topic, _ in places}
    if missing:
        raise SourceError(
            f"topic {', '.join(sorted(missing))} does not exist: not in the cluster, the lake or the journal"
        )
    found.places = sorted(place for place in places if place[0] in topics)
    if not found.places:
        raise SourceError("there is nothing to audit: no topic in the lake or the journal, and none named")


def _journal_topic(request: Request) -> str:
    return request.journal or (request.proxy.journal.topic if request.proxy is not None else "")


def _journal(
    spark: SparkSession,
    request: Request,
    found: Gathered,
    clustered: dict[str, int],
    told: Callable[[str], None],
) -> None:
    topic = _journal_topic(request)
    if not topic:
        _no_journal(request, found)
        return
    if topic in clustered:
        _journal_of_kafka(spark, request, found, topic, clustered[topic])
    elif found.lake is not None and topic in found.state.topics():
        frame = sources.journal_of_lake(spark, found.lake, found.state, topic)
        found.journal = JournalView(engine.survey_journal(frame), topic)
        found.journal_frame, found.journal_from = frame, "lake"
    else:
        raise SourceError(f"journal topic {topic} does not exist: not in the cluster, nor in the lake")
    assert found.journal is not None
    found.groups = sorted(request.groups) or found.journal.groups()
    told(
        f"journal {topic} from {found.journal_from}: {found.journal.events:,} events of "
        f"{len(found.journal.clients)} daemons"
    )


def _no_journal(request: Request, found: Gathered) -> None:
    found.groups = sorted(request.groups)
    if request.groups and found.view is None:
        raise UsageError("--group needs a journal, or --config to ask the cluster for the group's offsets")


def _journal_of_kafka(
    spark: SparkSession, request: Request, found: Gathered, topic: str, partitions: int
) -> None:
    assert found.view is not None
    assert request.proxy is not None
    places = [(topic, number) for number in range(partitions)]
    first = found.view.bounds(places)
    surveys = engine.survey_journal(_records(spark, request.proxy, first))
    known = JournalView(surveys, topic)
    groups = list(request.groups) or known.groups()
    wanted = sorted(place for place in known.places())
    for group in groups:
        committed = found.view.committed(group, wanted)
        found.committed |= {(group, *place): offset for place, (offset, _) in committed.items()}
    time.sleep(request.settle)
    then = found.view.bounds(places)
    found.now = time.time_ns() // 1000
    later = {place: (first[place][1], then[place][1]) for place in places}
    if any(start < end for start, end in later.values()):
        surveys += engine.survey_journal(_records(spark, request.proxy, later))
    found.journal = JournalView(surveys, topic)
    found.journal_frame = _records(
        spark, request.proxy, {place: (first[place][0], then[place][1]) for place in places}
    )
    found.journal_from = "kafka"


def _records(spark: SparkSession, proxy: Proxy, bounds: dict[TopicPartition, tuple[int, int]]) -> DataFrame:
    return sources.read_kafka(spark, proxy, bounds).select("partition", "offset", "value")


def describe(found: Gathered, request: Request) -> dict[str, Any]:
    """The sources in plain values: what was used, and enough to tell whether two runs saw the same."""
    journal = found.journal
    return {
        "lake": None
        if found.lake is None
        else {
            "id": found.lake.identity.id,
            "entry": found.state.seq,
            "digest": found.state.digest,
        },
        "journal": None
        if journal is None
        else {
            "topic": journal.name,
            "from": found.journal_from,
            "events": journal.events,
            "daemons": journal.clients,
            "begin": journal.begin,
            "end": journal.end,
            "epochs": [
                [client, epoch, len(one.batches), one.events]
                for (client, epoch), one in sorted(journal.epochs.items())
            ],
        },
        "log": None
        if found.view is None
        else {
            f"{topic}/{partition}": list(bounds)
            for (topic, partition), bounds in sorted(found.bounds.items())
        },
        "committed": None
        if found.view is None or not found.groups
        else {
            f"{group} {topic}/{partition}": offset
            for (group, topic, partition), offset in sorted(found.committed.items())
        },
        "settings": {
            "window_ms": request.window,
            "watermark_ms": request.watermark,
            "topics": sorted({topic for topic, _ in found.places}),
            "groups": found.groups,
        },
    }


__all__ = ["Gathered", "Request", "describe", "gather"]
